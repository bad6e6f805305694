"""What a server store went through, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """They only rise."""

    #: Units tried again because somebody else was in the way (F26).
    conflicts: int = 0
    #: Units tried again because their connection was lost (F22).
    lost: int = 0
    #: Commits whose answer was lost (F23).
    ambiguous: int = 0
    #: Units that got no connection in time (F31).
    no_connection: int = 0
