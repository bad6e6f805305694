"""Actions of a knowledge network, executed by the configured action service."""

from chimes.targets.action.runner import ActionRunner
from chimes.targets.action.service import ActionConfig

__all__ = ["ActionConfig", "ActionRunner"]
