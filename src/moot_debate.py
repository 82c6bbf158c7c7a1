"""The environment `moot-debate` of verifiers, which looks for a module of that name at the top: see
moot/integrations/verifiers_env.py."""

from moot.integrations.verifiers_env import DebateEnv, DebateHarness, DebateTaskset

__all__ = ["DebateEnv", "DebateHarness", "DebateTaskset"]
