"""Silences: periods in which notifications of matching schedules are not sent (ADR 76).

One document in the store holds them. The sender reads it; a delivery that a silence covers ends as
`suppressed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from chimes.errors import Conflict
from chimes.i18n import _
from chimes.model import replace
from chimes.model.ids import ScheduleId

#: Name of the checkpoint that holds the document.
SILENCES_CHECKPOINT = "silences"
#: How long ended silences are remembered: messages that waited meanwhile are still covered.
RETENTION = timedelta(days=7)
MAX_SILENCES = 200
#: Of one owner, for silences of members.
MAX_OWN_SILENCES = 20

#: Labels to match: a value, or None for any value.
LabelFilter = Mapping[str, str | None]


def has_labels(labels: Mapping[str, str | None], wanted: LabelFilter) -> bool:
    """Whether all wanted labels are among those of a schedule."""
    return all(
        name in labels and (value is None or labels[name] == value)
        for name, value in wanted.items()
    )


class Silence(Struct, frozen=True, kw_only=True):
    """Without labels and schedule, it covers everything of its owner, or of all."""

    id: str
    labels: LabelFilter = {}
    #: Id of a schedule; empty: any.
    schedule: str = ""
    #: Covers only notifications of this owner; empty: of all.
    owner: str = ""
    since: datetime
    until: datetime
    reason: str = ""
    by: str = ""

    def is_active(self, at: datetime) -> bool:
        return self.since <= at < self.until

    def covers(
        self, schedule_id: ScheduleId | None, owner: str, labels: Mapping[str, str | None]
    ) -> bool:
        return (
            self.owner in ("", owner)
            and self.schedule in ("", schedule_id)
            and has_labels(labels, self.labels)
        )


class Silences(Struct, frozen=True, kw_only=True):
    """The document."""

    silences: tuple[Silence, ...] = ()


def add_silence(silences: Iterable[Silence], new: Silence, now: datetime) -> tuple[Silence, ...]:
    """Forgets those that ended long ago; Conflict if there are too many."""
    left = [each for each in silences if each.until > now - RETENTION]
    current = [each for each in left if each.until > now]
    own = [each for each in current if each.owner == new.owner]
    if len(current) >= MAX_SILENCES or (new.owner and len(own) >= MAX_OWN_SILENCES):
        raise Conflict(
            _(
                "there are {count} silences, which is the maximum; delete one first",
                count=len(own) if new.owner else len(current),
            ),
            code="too_many_silences",
        )
    # Of ended ones, the newest stay.
    ended = sorted((each for each in left if each.until <= now), key=lambda each: each.until)
    return (*ended[-MAX_SILENCES:], *current, new)


def end_silence(silences: Iterable[Silence], silence_id: str, now: datetime) -> tuple[Silence, ...]:
    """Ends it now; one that has not begun is removed."""
    return tuple(
        replace(each, until=min(each.until, now)) if each.id == silence_id else each
        for each in silences
        if each.id != silence_id or each.since < now
    )
