"""Actions of a knowledge network, executed by the configured action service (R0.24)."""

from chimes.targets.action.config import ActionConfig
from chimes.targets.action.runner import ActionRunner

__all__ = ["ActionConfig", "ActionRunner"]
