"""An engine that is cut off after so many calls: what a kill leaves behind, at a moment that a test chooses."""

from __future__ import annotations

from typing import Any

from moot.engine.scripted import ScriptedEngine


def dies_after(calls: int) -> type[ScriptedEngine]:
    class Dies(ScriptedEngine):
        left = calls

        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("cut off")
            return await super().sample(*args, **kwargs)

    return Dies
