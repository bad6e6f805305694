"""What happens by itself: schedules fire, runs are carried out, lost ones are rescued."""

from chimes.engine.engine import Engine
from chimes.engine.events import Event, Listener

__all__ = ["Engine", "Event", "Listener"]
