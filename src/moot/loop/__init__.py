"""The training loop: what one run remembers, and one step after the other. It stands on `rl/` and `evaluate/`, which know nothing of it."""
