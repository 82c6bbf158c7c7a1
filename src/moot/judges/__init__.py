"""Judges without a seat that score answers: how they are asked, what their scores pay, and how good they are."""
