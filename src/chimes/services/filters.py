"""Filter language of lists: `status:failed label:billing kind:http owner:me next:<1h report`.

The dashboard (search box, URL, chips), the parameter `q` of the API and the command line share it.
A word with a name before a colon is a condition; other words are text to find. Quotes keep spaces
and colons: `label:"big one"`. The dashboard reports an invalid condition and ignores it; the API
rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from urllib.parse import quote_plus

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import ERROR_KEY_LENGTH
from chimes.model.listing import RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.run import FAILED_STATUSES, Origin, Run, RunStatus
from chimes.triggers.values import parse_duration, parse_moment, suggest_name

MAX_LENGTH = 500
#: Keeps sums with `now` within the range of datetime.
_MAX_SPAN = timedelta(days=36_500)
_WORD = re.compile(r'(?:(?P<name>[a-z]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_DAYS = re.compile(r"([0-9]{1,5})d")
_SWITCH_STATES = ("enabled", "paused")
SCHEDULE_STATES = (*_SWITCH_STATES, *(each.value for each in RunStatus if each.terminal))
KINDS = (
    *("http", "task", "flow", "agent", "sync", "action", "message", "command"),
    *("celery", "dask", "kubernetes", "amqp", "nats", "redis_stream", "kafka"),
)
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

Sort = TypeVar("Sort", ScheduleSort, RunSort)


def sorts_by_name(kind: type[Sort]) -> dict[str, Sort]:
    """Sort orders by the names that all lists accept: `next` and `next_run_at` are the same."""
    short = {each.removesuffix("_at").removesuffix("_run"): each for each in kind}
    return short | {each.value: each for each in kind}


@dataclass(frozen=True, slots=True)
class Chip:
    """One condition; without a name it is a search text."""

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
    #: Messages about invalid conditions, shown below the search box.
    errors: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """As in the search box and in the URL."""
        return " ".join(chip.text for chip in self.chips)

    def require_valid(self) -> None:
        """InvalidInput if a condition is invalid: without it, an action would affect more objects
        than intended."""
        if self.errors:
            raise InvalidInput(self.errors[0], field="q", code="bad_filter", source="query")

    def without(self, chip: Chip) -> Filter:
        return Filter(chips=tuple(each for each in self.chips if each != chip))

    def with_chip(self, chip: Chip) -> Filter:
        """Replaces other chips of the same name."""
        others = tuple(each for each in self.chips if each.name != chip.name)
        return Filter(chips=(*others, chip))

    def plus(self, text: str) -> Filter:
        """As `with_chip`, from the text of a chip."""
        name, _colon, value = text.partition(":")
        return self.with_chip(Chip(name, value))

    def address(self, path: str, **more: str) -> str:
        params = {"q": self.text, **more} if self.chips else more
        # Faster than urlencode: a page has hundreds of these. The names need no quoting.
        pairs = [f"{name}={quote_plus(value)}" for name, value in params.items()]
        return f"{path}?{'&'.join(pairs)}" if pairs else path

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(chip.value for chip in self.chips if chip.name == name)

    def get(self, name: str) -> str | None:
        """The last one wins."""
        values = self.all(name)
        return values[-1] if values else None


def read_filter(text: str, names: Iterable[str]) -> Filter:
    """Chips of a list whose conditions have these names. Others are kept and reported; a URL is a
    search text."""
    known = tuple(names)
    chips: list[Chip] = []
    errors: list[Message] = []
    if len(text) > MAX_LENGTH:
        errors.append(_("a filter has at most {limit} characters", limit=MAX_LENGTH))
    for match in _WORD.finditer(text[:MAX_LENGTH].replace("\0", " ")):
        name, quoted = match["name"] or "", match["quoted"]
        value = quoted if quoted is not None else match["plain"]
        if name and value.startswith("//"):
            name, value = "", match[0]
        chip = Chip(name, value)
        if name and name not in known:
            errors.append(_unknown_condition(chip, known))
        # A word of a text may occur twice.
        if not name or chip not in chips:
            chips.append(chip)
    return Filter(chips=tuple(chips), errors=tuple(errors))


def _unknown_condition(chip: Chip, known: tuple[str, ...]) -> Message:
    nearest = suggest_name(chip.name, known)
    if nearest is None:
        return _(
            "{chip}: this list has no condition {name}, only {known}; text with a colon is written "
            "in quotes",
            chip=chip.text,
            name=chip.name,
            known=", ".join(known),
        )
    return _(
        "{chip}: this list has no condition {name}. Did you mean {nearest}?",
        chip=chip.text,
        name=chip.name,
        nearest=nearest.values["name"],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFilter:
    filter: Filter
    query: ScheduleQuery


def schedule_filter(
    found: Filter, actor: Actor, now: datetime, query: ScheduleQuery | None = None
) -> ScheduleFilter:
    """`query` contains sorting and paging, which are not part of the filter."""
    result, errors = query or ScheduleQuery(), list(found.errors)
    for chip in found.chips:
        try:
            if chip.name == "next":
                result = replace(result, due_by=now + _within(chip.value))
            elif (condition := _SCHEDULE_CONDITIONS.get(chip.name)) is not None:
                result = condition(result, chip.value, actor)
        except InvalidInput as error:
            errors.append(_("{chip}: {why}", chip=chip.text, why=error.message))
    return ScheduleFilter(filter=replace(found, errors=tuple(errors)), query=result)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """The query for the store, and conditions that the store cannot apply."""

    filter: Filter
    query: RunQuery
    #: Text to find in the schedule's name or in the error, in any case of letters.
    text: str = ""
    #: A run whose error all results share.
    same: RunId | None = None
    #: That error, cut to `ERROR_KEY_LENGTH`.
    error: str | None = None

    @property
    def scans(self) -> bool:
        """Whether runs are filtered in memory."""
        return bool(self.text) or self.error is not None

    def matches(self, run: Run) -> bool:
        if self.error is not None and run.error[:ERROR_KEY_LENGTH] != self.error:
            return False
        text = self.text.lower()
        return text in run.schedule_name.lower() or text in run.error.lower()

    def with_error(self, error: str) -> RunFilter:
        """Only failed runs with this error."""
        query = self.query
        if not query.statuses:
            query = replace(query, statuses=tuple(sorted(FAILED_STATUSES)))
        return replace(self, error=error[:ERROR_KEY_LENGTH], query=query)


def run_filter(
    found: Filter, actor: Actor, now: datetime, query: RunQuery | None = None
) -> RunFilter:
    result, errors, words = query or RunQuery(), list(found.errors), list[str]()
    same: RunId | None = None
    for chip in found.chips:
        try:
            if not chip.name:
                words.append(chip.value)
            elif chip.name == "since":
                result = replace(result, since=_moment(chip.value, now))
            elif chip.name == "until":
                result = replace(result, until=_moment(chip.value, now))
            elif chip.name == "same":
                same = RunId(chip.value)
            elif (condition := _RUN_CONDITIONS.get(chip.name)) is not None:
                result = condition(result, chip.value, actor)
        except InvalidInput as error:
            errors.append(_("{chip}: {why}", chip=chip.text, why=error.message))
    return RunFilter(
        filter=replace(found, errors=tuple(errors)), query=result, text=" ".join(words), same=same
    )


ScheduleCondition = Callable[[ScheduleQuery, str, Actor], ScheduleQuery]
RunCondition = Callable[[RunQuery, str, Actor], RunQuery]


def _text(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    return replace(query, text=value if query.text is None else f"{query.text} {value}")


def _state(query: ScheduleQuery, value: str, actor: Actor) -> ScheduleQuery:
    """Whether the schedule is enabled, or the status of its last run."""
    if _one_of(value, SCHEDULE_STATES) in _SWITCH_STATES:
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


_SCHEDULE_CONDITIONS: Mapping[str, ScheduleCondition] = {
    "": _text,
    "status": _state,
    "kind": _kind,
    "label": _label,
    "owner": _schedule_owner,
    "namespace": _schedule_namespace,
}
_RUN_CONDITIONS: Mapping[str, RunCondition] = {
    "status": _status,
    "schedule": _schedule,
    "origin": _origin,
    "owner": _run_owner,
    "namespace": _run_namespace,
    "node": _node,
}


def _one_of(value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidInput(_("must be one of {known}", known=", ".join(known)))
    return value


def _owner(value: str, actor: Actor) -> Owner:
    """`me`, or an owner such as `user:anna`. The services check what the actor may see."""
    if value == "me":
        return actor.owner
    kind, _colon, name = value.partition(":")
    if not name or kind not in tuple(OwnerType):
        raise InvalidInput(_('must be "me" or an owner such as user:anna'))
    return Owner(type=OwnerType(kind), id=name)


def _moment(value: str, now: datetime) -> datetime:
    """`24h` (ago), or a timestamp; without an offset it is UTC, so that a URL is unambiguous."""
    if "-" in value:
        return parse_moment(value, "UTC")
    return now - _within(value)


def _within(value: str) -> timedelta:
    """`<1h`; the sign is optional. Also accepts days."""
    text = value.removeprefix("<")
    if days := _DAYS.fullmatch(text):
        return min(timedelta(days=int(days[1])), _MAX_SPAN)
    return min(parse_duration(text), _MAX_SPAN)
