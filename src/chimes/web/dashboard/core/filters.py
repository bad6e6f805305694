"""Filters as people write them: `status:failed label:billing kind:http owner:me next:<1h report`.

One grammar for the box, the URL and the chips. What is not understood is said, and hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import quote_plus

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.run import Origin, RunStatus
from chimes.triggers.duration import parse_duration
from chimes.triggers.moment import parse_moment

LONGEST = 500
#: Nobody has runs that are older.
_FURTHEST = timedelta(days=36_500)
_WORD = re.compile(r'(?:(?P<name>[a-z]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_DAYS = re.compile(r"([0-9]{1,5})d")
_SWITCH = ("enabled", "paused")
SCHEDULE_STATES = (*_SWITCH, *(each.value for each in RunStatus if each.terminal))
KINDS = ("http", "task", "flow", "agent", "sync", "action", "message")
SCHEDULE_NAMES = ("status", "label", "kind", "owner", "next", "namespace")
RUN_NAMES = (
    "status",
    "schedule",
    "origin",
    "owner",
    "namespace",
    "node",
    "since",
    "until",
    "same",
)


@dataclass(frozen=True, slots=True)
class Chip:
    """One condition; without a name it is text to search for."""

    name: str
    value: str

    @property
    def text(self) -> str:
        shown = (
            f'"{self.value}"' if not self.value or re.search(r"\s|:|\"", self.value) else self.value
        )
        return f"{self.name}:{shown}" if self.name else shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    chips: tuple[Chip, ...] = ()
    #: What was not understood, to be said beside the box.
    wrong: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """As it stands in the box and in the URL."""
        return " ".join(chip.text for chip in self.chips)

    def without(self, chip: Chip) -> Filter:
        return Filter(chips=tuple(each for each in self.chips if each != chip))

    def with_chip(self, chip: Chip) -> Filter:
        """Instead of others of its name."""
        kept = tuple(each for each in self.chips if each.name != chip.name)
        return Filter(chips=(*kept, chip))

    def plus(self, text: str) -> Filter:
        """With the chip that is written so, instead of others of its name."""
        name, _unused, value = text.partition(":")
        return self.with_chip(Chip(name, value))

    def address(self, path: str, **more: str) -> str:
        found = {"q": self.text, **more} if self.chips else more
        # Names are ours; there are hundreds of these on a page.
        pairs = [f"{name}={quote_plus(value)}" for name, value in found.items()]
        return f"{path}?{'&'.join(pairs)}" if pairs else path

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(chip.value for chip in self.chips if chip.name == name)

    def get(self, name: str) -> str | None:
        """The last one counts."""
        found = self.all(name)
        return found[-1] if found else None


def read_filter(text: str, names: Iterable[str]) -> Filter:
    """Chips of these names; a word with another name before a colon is searched for as it is."""
    known = frozenset(names)
    chips: list[Chip] = []
    wrong: list[Message] = []
    if len(text) > LONGEST:
        wrong.append(_("a filter has at most {most} characters", most=LONGEST))
    for found in _WORD.finditer(text[:LONGEST].replace("\0", " ")):
        name, quoted = found["name"] or "", found["quoted"]
        value = quoted if quoted is not None else found["plain"]
        if name and name not in known:
            name, value = "", found[0]
        chip = Chip(name, value)
        if chip not in chips:
            chips.append(chip)
    return Filter(chips=tuple(chips), wrong=tuple(wrong))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFilter:
    """The question to the store, and what the store cannot be asked."""

    filter: Filter
    query: ScheduleQuery
    #: Only those that fire within this time from now.
    next_within: timedelta | None = None


def schedule_filter(
    found: Filter, actor: Actor, query: ScheduleQuery | None = None
) -> ScheduleFilter:
    """`query`: sort and page, which are not part of the filter."""
    asked, wrong = query or ScheduleQuery(), list(found.wrong)
    within: timedelta | None = None
    for chip in found.chips:
        try:
            if chip.name == "next":
                within = _within(chip.value)
            else:
                asked = _SCHEDULE_PARTS[chip.name](asked, chip.value, actor)
        except InvalidInput as error:
            wrong.append(_("{chip}: {why}", chip=chip.text, why=error.message))
    return ScheduleFilter(
        filter=replace(found, wrong=tuple(wrong)), query=asked, next_within=within
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    filter: Filter
    query: RunQuery
    #: Text to be found in the schedule's name or the error; the store is not asked for it.
    text: str | None = None
    #: Only those that ended with the same error as this run; the store is not asked for it.
    same: RunId | None = None


def run_filter(
    found: Filter, actor: Actor, now: datetime, query: RunQuery | None = None
) -> RunFilter:
    asked, wrong, text = query or RunQuery(), list(found.wrong), None
    same: RunId | None = None
    for chip in found.chips:
        try:
            if not chip.name:
                text = chip.value if text is None else f"{text} {chip.value}"
            elif chip.name == "since":
                asked = replace(asked, since=_moment(chip.value, now))
            elif chip.name == "until":
                asked = replace(asked, until=_moment(chip.value, now))
            elif chip.name == "same":
                same = RunId(chip.value)
            else:
                asked = _RUN_PARTS[chip.name](asked, chip.value, actor)
        except InvalidInput as error:
            wrong.append(_("{chip}: {why}", chip=chip.text, why=error.message))
    return RunFilter(filter=replace(found, wrong=tuple(wrong)), query=asked, text=text, same=same)


SchedulePart = Callable[[ScheduleQuery, str, Actor], ScheduleQuery]
RunPart = Callable[[RunQuery, str, Actor], RunQuery]


def _text(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    return replace(query, text=value if query.text is None else f"{query.text} {value}")


def _state(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    """Whether it is on, or how its last run ended."""
    if _one_of(value, SCHEDULE_STATES) in _SWITCH:
        return replace(query, enabled=value == "enabled")
    last = dict.fromkeys((*query.last_statuses, RunStatus(value)))
    return replace(query, last_statuses=tuple(last))


def _kind(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    return replace(query, kind=_one_of(value, KINDS))


def _label(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    name, equals, wanted = value.partition("=")
    return replace(query, label=name, label_value=wanted if equals else None)


def _schedule_owner(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    return replace(query, owner=_owner(value, actor))


def _schedule_namespace(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    return replace(query, namespace=value)


def _status(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    status = RunStatus(_one_of(value, tuple(RunStatus)))
    return replace(query, statuses=tuple(dict.fromkeys((*query.statuses, status))))


def _schedule(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    return replace(query, schedule_id=ScheduleId(value))


def _origin(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    return replace(query, origin=Origin(_one_of(value, tuple(Origin))))


def _run_owner(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    return replace(query, owner=_owner(value, actor))


def _run_namespace(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    return replace(query, namespace=value)


def _node(query: RunQuery, value: str, actor: Actor) -> RunQuery:
    return replace(query, holder=NodeId(value))


_SCHEDULE_PARTS: Mapping[str, SchedulePart] = {
    "": _text,
    "status": _state,
    "kind": _kind,
    "label": _label,
    "owner": _schedule_owner,
    "namespace": _schedule_namespace,
}
_RUN_PARTS: Mapping[str, RunPart] = {
    "status": _status,
    "schedule": _schedule,
    "origin": _origin,
    "owner": _run_owner,
    "namespace": _run_namespace,
    "node": _node,
}


def _one_of(value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidInput(_("one of {known}", known=", ".join(known)))
    return value


def _owner(value: str, actor: Actor) -> Owner:
    """`me`, or `user:somebody`. What the actor may not see the services leave out anyway."""
    if value == "me":
        return actor.owner
    kind, _unused, name = value.partition(":")
    if not name or kind not in tuple(OwnerType):
        raise InvalidInput(_("me, or one such as user:anna"))
    return Owner(type=OwnerType(kind), id=name)


def _moment(value: str, now: datetime) -> datetime:
    """`24h` ago, or a moment; one without an offset is UTC, so that an address means one thing."""
    if "-" in value:
        return parse_moment(value, "UTC")
    return now - min(_within(value), _FURTHEST)


def _within(value: str) -> timedelta:
    """`<1h`; the sign may be left out. Days, too: people say them here."""
    text = value.removeprefix("<")
    if days := _DAYS.fullmatch(text):
        return timedelta(days=int(days[1]))
    return parse_duration(text)
