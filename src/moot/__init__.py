"""Train language models by debate: copies of one model argue, vote on each other, and the votes are the reward."""

__version__ = "0.1.0"
