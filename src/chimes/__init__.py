"""Chimes: durable schedules, one run per slot."""

from chimes.triggers import Cron, Every, Once

__all__ = ["Cron", "Every", "Once", "__version__"]

__version__ = "0.1.0"
