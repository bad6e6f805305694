"""What the engine tells: a closed set of values, handed to every listener on the event loop.

Wording and counting are the listeners' business (`reports`, `metrics`, and whoever subscribes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from chimes.model.delivery import Delivery
from chimes.model.ids import NodeId
from chimes.model.planning import AnyFiring
from chimes.model.run import Run, Verdict
from chimes.model.schedule import Schedule

logger = logging.getLogger("chimes.engine")


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulesFired:
    """One batch of due schedules became rows."""

    #: What came of the schedules whose cursors moved.
    firings: tuple[AnyFiring, ...]
    runs: tuple[Run, ...]
    seconds: float

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """With their cursors moved; made when somebody asks."""
        return tuple(firing.schedule for firing in self.firings)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleBroken:
    """It could not be planned and was set aside; `last_error` says why (R2.10)."""

    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted:
    """An attempt begins its effect now, this much later than planned."""

    run: Run
    lag: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    run: Run
    #: How long the attempt took.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRetrying:
    """An attempt failed; the run waits for its next one."""

    run: Run
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictFenced:
    """Ownership was lost before the verdict came: it was refused and changed nothing."""

    run: Run
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDropped:
    """This node stopped an attempt without a verdict: another one will be made."""

    run: Run
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunHandedOn:
    """This node gave a flow back in the middle, or what only others can carry out: another one
    goes on with it."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetStuck:
    """A target went on although it was told to stop; its place is used again without it."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetBroken:
    """A target raised instead of answering with an outcome."""

    run: Run
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRescued:
    """Taken from a node whose lease had ended; the run as it is now."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseEnded:
    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsPruned:
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryEnded:
    """Delivered, or given up: the dead letter."""

    delivery: Delivery
    #: How long the attempt took.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRetrying:
    """An attempt failed; the delivery waits for its next one."""

    delivery: Delivery
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryFenced:
    """Somebody else has it by now, or it was tried again by hand: the verdict was refused."""

    delivery: Delivery


@dataclass(frozen=True, kw_only=True, slots=True)
class SenderBroken:
    """A channel raised instead of answering with a result."""

    delivery: Delivery
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesPruned:
    """Deliveries and inbox items beyond the retention."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeJoined:
    node_id: NodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLost:
    """This node may no longer trust its lease; it joins again under another id."""

    node_id: NodeId
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeBeat:
    node_id: NodeId
    #: Seconds that this machine's wall clock is ahead of the store's (F50).
    clock_skew: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDraining:
    """An operator asked this node to take nothing new."""

    node_id: NodeId
    running: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResumed:
    node_id: NodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreClockJumped:
    """The store's clock went on by more or less than the time that passed here (F51, F52)."""

    #: Negative: it was put back.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreRegressed:
    """The store has forgotten what it had taken down (F28); this node lets everything go."""

    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DutyFailed:
    """A pass failed and will be tried again. `first`: the one before it had not failed."""

    duty: str
    error: Exception
    first: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DutyRecovered:
    duty: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackBegan:
    """The store cannot schedule although it answers: this node times what its application has
    declared from memory (R2.33)."""

    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackEnded:
    """The store schedules again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotsTaken:
    """Slots timed in memory whose runs another node had made already (R2.16)."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainStarted:
    node_id: NodeId
    running: int
    grace: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainEnded:
    node_id: NodeId
    #: Runs that the grace was too short for.
    given_up: int


Event = (
    SchedulesFired
    | ScheduleBroken
    | RunStarted
    | RunEnded
    | RunRetrying
    | VerdictFenced
    | RunDropped
    | RunHandedOn
    | TargetStuck
    | TargetBroken
    | RunRescued
    | PauseEnded
    | RunsPruned
    | DeliveryEnded
    | DeliveryRetrying
    | DeliveryFenced
    | SenderBroken
    | MessagesPruned
    | NodeJoined
    | NodeLost
    | NodeBeat
    | NodeDraining
    | NodeResumed
    | StoreClockJumped
    | StoreRegressed
    | DutyFailed
    | DutyRecovered
    | FallbackBegan
    | FallbackEnded
    | SlotsTaken
    | DrainStarted
    | DrainEnded
)
Listener = Callable[[Event], None]


class Events:
    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        """A listener with an attribute `hears` is told of events of these types only: every run
        tells several, and most listeners wait for others."""
        self._listeners = tuple(listeners)
        self._hearing: dict[type[Event], tuple[Listener, ...]] = {}

    def emit(self, event: Event) -> None:
        hearing = self._hearing.get(event.__class__)
        if hearing is None:
            hearing = self._hearing[event.__class__] = self._who_hears(event.__class__)
        for listener in hearing:
            try:
                listener(event)
            except Exception:
                # A listener only watches: what breaks in it must not reach the work (R2.10).
                logger.exception("a listener failed on %s", type(event).__name__)

    def _who_hears(self, kind: type[Event]) -> tuple[Listener, ...]:
        return tuple(each for each in self._listeners if kind in getattr(each, "hears", (kind,)))
