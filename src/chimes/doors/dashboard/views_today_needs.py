"""What needs attention, with its cause in words and the one thing to do about it (UX A.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.doors.dashboard import times
from chimes.doors.dashboard.clock_words import touched_in_words
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.views_system import CLOCK_WARNING
from chimes.model.access import Actor
from chimes.model.attention import Attention, Attentions, Cause, joined
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.node import Node
from chimes.model.recipient import Channel
from chimes.retelling import retold
from chimes.service.clock_watch import Coming, Noticing, ZoneChange
from chimes.service.refusals import Refusal
from chimes.service.snoozing import PutOff, awake
from chimes.wording import Wording, counted, say

#: Of what somebody else said; the whole of it is in the log.
_LONGEST = 160


# --- nodes ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Skewed:
    """A node whose clock is off; in seconds, ahead of the store's above zero."""

    id: NodeId
    offset: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """What is wrong with the nodes; for those who see everything."""

    gone: tuple[NodeId, ...] = ()
    none_alive: bool = False
    #: Some are alive, and an operator has asked all of those to drain.
    all_drained: bool = False
    skewed: tuple[Skewed, ...] = ()
    #: What the store says about itself.
    degraded: str = ""

    @property
    def troubles(self) -> int:
        nobody = self.none_alive and not self.gone
        others = nobody + self.all_drained + bool(self.degraded)
        return len(self.gone) + len(self.skewed) + others


def nodes_seen(nodes: Iterable[Node], degraded: str, now: datetime) -> Nodes:
    known = tuple(nodes)
    gone = tuple(node.id for node in known if node.lease_until <= now)
    skewed = tuple(
        Skewed(id=node.id, offset=node.clock_offset)
        for node in known
        if node.lease_until > now and abs(node.clock_offset) > CLOCK_WARNING
    )
    alive = [node for node in known if node.lease_until > now]
    return Nodes(
        gone=gone,
        none_alive=not alive,
        all_drained=bool(alive) and all(node.drain for node in alive),
        skewed=skewed,
        degraded=degraded,
    )


# --- schedules ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Needing:
    item: Attention
    #: The one thing to do about it: `run`, `log`, `edit` or `resume`; empty: only to look.
    best: str
    may_operate: bool
    may_write: bool
    #: Its cause, where more is known of it than the sign says.
    text: Wording | None = None

    @property
    def log_address(self) -> str:
        """The log of the run that shows it, or why nothing ran."""
        if self.item.sign.run_id is not None and self.item.sign.cause is not Cause.MISSED:
            return f"/ui/runs/{self.item.sign.run_id}"
        return f"/ui/schedules/{self.item.schedule.id}/log"


_BEST = {
    Cause.STOPPED: "edit",
    Cause.REFUSED: "edit",
    Cause.FAILING: "run",
    Cause.MISSED: "run",
    Cause.LATE: "log",
    Cause.PAUSE_OVER: "resume",
    Cause.CLOCK_CHANGE: "edit",
}


def needing_attention(
    found: Attentions, actor: Actor, texts: Mapping[ScheduleId, Wording] | None = None
) -> tuple[Needing, ...]:
    """`texts`: of those whose cause is REFUSED or CLOCK_CHANGE."""
    return tuple(_needing(each, actor, texts or {}) for each in found.items)


def _needing(item: Attention, actor: Actor, texts: Mapping[ScheduleId, Wording]) -> Needing:
    owner, cause = item.schedule.owner, item.sign.cause
    operates, writes = actor.may_operate(owner), actor.may_write(owner)
    best = _BEST[cause]
    allowed = {"edit": writes, "run": operates, "resume": operates, "log": True}[best]
    told = cause in (Cause.REFUSED, Cause.CLOCK_CHANGE)
    return Needing(
        item=item,
        best=best if allowed else "log",
        may_operate=operates,
        may_write=writes,
        text=texts.get(item.schedule.id) if told else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """The gravest of those that nobody has put off."""

    items: tuple[Needing, ...]
    total: int
    #: Put off by this reader, or known.
    snoozed: int
    #: Changes of the clocks that are near.
    clocks: tuple[Wording, ...]

    @property
    def more(self) -> int:
        return self.total - len(self.items)


def needs_of(
    known: Attentions,
    put_off: Mapping[ScheduleId, PutOff],
    refused: Iterable[Refusal],
    coming: Coming,
    actor: Actor,
    look: Look,
    now: datetime,
    *,
    limit: int,
) -> Needs:
    """`known`: as many of them as `limit` and as are put off."""
    refused = tuple(refused)
    more = (*(each.found for each in refused), *(each.found for each in coming.noticing))
    every = joined(known, more)
    found = awake(every, put_off, limit)
    texts = causes_in_words(refused, coming.noticing, look, now)
    return Needs(
        items=needing_attention(found, actor, texts),
        total=found.total,
        snoozed=every.total - found.total,
        clocks=zones_in_words(coming, look, now),
    )


def causes_in_words(
    refusals: Iterable[Refusal], noticing: Iterable[Noticing], look: Look, now: datetime
) -> dict[ScheduleId, Wording]:
    """For each schedule its gravest: a refusal rather than a change of the clocks."""
    found = {each.found.schedule.id: touched_in_words(each.touched, look, now) for each in noticing}
    return found | {each.found.schedule.id: _refused(each, look) for each in refusals}


def _refused(refusal: Refusal, look: Look) -> Wording:
    error = retold(refusal.error, look.language)
    error = error if len(error) <= _LONGEST else f"{error[:_LONGEST]}…"
    match refusal.channel:
        case None:
            return say("Its receiver does not accept the secret or token: {error}", error=error)
        case Channel.TELEGRAM:
            return say("Telegram does not accept its messages: {error}", error=error)
        case Channel.EMAIL:
            return say("The mail server does not accept its messages: {error}", error=error)
        case _:
            return say("Its webhook does not accept messages: {error}", error=error)


# --- changes of the clocks ------------------------------------------------------------------------
def zones_in_words(coming: Coming, look: Look, now: datetime) -> tuple[Wording, ...]:
    return tuple(_zone_in_words(each, look, now) for each in coming.zones)


def _zone_in_words(coming: ZoneChange, look: Look, now: datetime) -> Wording:
    change = coming.change
    when = times.absolute(change.at, change.zone, look, now=now)
    span = times.span(abs(change.by), look.language)
    if change.by.total_seconds() > 0:
        return counted(
            "{when}: the clocks of {zone} go forward by {span}; {count} schedule goes by them.",
            "{when}: the clocks of {zone} go forward by {span}; {count} schedules go by them.",
            coming.schedules,
            when=when,
            zone=change.zone,
            span=span,
        )
    return counted(
        "{when}: the clocks of {zone} go back by {span}; {count} schedule goes by them.",
        "{when}: the clocks of {zone} go back by {span}; {count} schedules go by them.",
        coming.schedules,
        when=when,
        zone=change.zone,
        span=span,
    )
