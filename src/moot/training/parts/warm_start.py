"""How the supervised start teaches, where it is not taught as usual."""

from __future__ import annotations

from moot.settings.warm import WarmStart as WarmSettings
from moot.training.part import Part


class WarmStart(Part):
    """Batches, rate and examples of the warm start. Measured: docs/experiment.md."""

    Settings = WarmSettings  # type: ignore[assignment]  # a configuration reads it too
    settings: WarmSettings
