"""The heart: debates, votes and rewards, by the standard library alone."""

from moot.debate import rewards as rewards  # a scoring names its reward, so all of them are known wherever one is made
