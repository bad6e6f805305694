"""Executes commands: each in a session of its own, below a supervising process.

The worker (`runner`) starts a supervisor (`supervisor`), which starts the command, reads its output
and ends whatever it has started: when the worker says so, and when the worker dies.
"""

from chimes.targets.command.runner import CommandRunner

__all__ = ["CommandRunner"]
