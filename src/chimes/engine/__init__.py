"""The engine: background duties of a node that fire schedules, execute runs and send messages."""

from chimes.engine.engine import Engine
from chimes.engine.events import Event, Listener

__all__ = ["Engine", "Event", "Listener"]
