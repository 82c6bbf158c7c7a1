"""A turn in tokens: rendering, speaking, teacher forcing, a played debate, datums and credit."""
