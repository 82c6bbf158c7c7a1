"""What the texts of the task `constraints` are about, and words that they must hold."""

from __future__ import annotations

_TOPICS = """
a walk in the rain; learning to swim; an old bridge; the first day at school; a broken clock; bread; a night
train; moving house; a lost dog; the colour blue; winter mornings; a visit to the dentist; growing tomatoes; a
small island; the sound of bells; a letter; mending a bicycle; a market at noon; how tea is made; a quiet
library; the moon; a football match; waiting for a bus; a new neighbour; the smell of coffee; a lighthouse;
climbing a hill; a birthday; the sea at night; a good chair; riding a horse; an empty street; cooking for
friends; a long queue; an apple tree; snow in spring; a small shop; writing by hand; a flight of stairs; the
first warm day; a choir; a storm; losing a game; an old coat; a garden wall; crossing a river; a power cut;
sleeping in a tent; a museum; a kite; a cat on a roof; painting a room; a song from childhood; a mountain hut; a
telephone call; the end of summer; a stone; a ferry; learning a language; a campfire
"""
_WORDS = """
water light stone table river door hand window music road house bread paper garden morning evening friend story
small long early late quiet bright round cold slow old north silver metal salt
"""
TOPICS = [" ".join(topic.split()) for topic in _TOPICS.split(";")]
"""Sixty."""
WORDS = _WORDS.split()
FIRST_WORDS = ["today", "once", "nobody", "sometimes", "here", "yesterday", "outside", "perhaps"]
LAST_WORDS = ["and that was all", "for a long time", "in the end", "until next year", "as it should be"]
