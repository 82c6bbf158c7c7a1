"""Debates for other people's trainers: each module needs the package it is named after."""
