"""A text that is told to people, and nothing else."""

from chimes.targets.message.runner import MessageRunner

__all__ = ["MessageRunner"]
