"""Base class of triggers: `next_after`, `previous_before`, bounds, previews and the JSON form.

The fires of a trigger are a set F of instants. `next_after(t)` is the earliest of F after t,
`previous_before(t)` the latest before t; so each undoes the other. `start_at` and `end_at` are
inclusive bounds of F. The engine counts runs against `max_runs`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.calendars import Calendar, NamedCalendar, parse_calendar
from chimes.triggers.searches import (
    Note,
    Search,
    SpanSearch,
    UnresolvedSearch,
)
from chimes.triggers.values import (
    EPOCH,
    LAST_MICROSECOND,
    aware_required,
    check_keys,
    check_year,
    format_duration_iso,
    format_moment,
    from_microseconds,
    parse_duration,
    parse_moment,
    quote_text,
    suggest_name,
    to_microseconds,
)
from chimes.triggers.zones import UTC_NAME, Zone, parse_zone

if TYPE_CHECKING:
    from chimes.triggers import Trigger

#: Why a rule has no fire: its month has too few business days, or the sun neither rises nor sets.
AbsenceReason = Literal["no_business_day", "no_sunrise", "no_sunset"]

MAX_CALENDARS = 16
NO_JITTER = timedelta(0)
MAX_RUNS = 2**53
NEVER_FIRES = "never_fires"
#: JSON keys of every trigger.
_BOUNDS = ("start_at", "end_at", "max_runs", "exclude", "jitter", "spread")
#: Longest jitter or spread.
MAX_DELAY = timedelta(days=31)
_KINDS: dict[str, type[TriggerBase]] = {}


class Fire(NamedTuple):
    """One fire: the instant, the local time in the trigger's zone, and an optional note."""

    at: datetime
    local: datetime
    note: Note | None


class Absence(NamedTuple):
    """A time at which a rule has no fire: when that is certain, and the reason."""

    at: datetime
    reason: AbsenceReason
    #: The number in the reason, such as that of a business day.
    number: int = 0


class TriggerBase:
    """Behaviour common to Cron, Every and Once."""

    __slots__ = ()

    kind: ClassVar[str]
    #: Its JSON keys, without the bounds.
    json_keys: ClassVar[tuple[str, ...]]
    #: The keys that it needs; by default the first of `json_keys`.
    required: ClassVar[tuple[str, ...]]
    #: Those of them that are not text.
    structured: ClassVar[tuple[str, ...]] = ()
    #: The bounds that it may have.
    bounds: ClassVar[tuple[str, ...]] = _BOUNDS
    #: Fires on events instead of at times: it has no slots.
    on_event: ClassVar[bool] = False
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    #: Delays each run by a hash of the schedule's id and the slot, shorter than this.
    jitter: timedelta | None
    #: Delays every run of a schedule by the same hash of its id, shorter than this: schedules with
    #: the same times and the same spread are distributed over it.
    spread: timedelta | None
    _search: Search

    def __init_subclass__(cls) -> None:
        # A subclass of a kind, as an application may define one, does not replace the kind.
        if TriggerBase in cls.__bases__ and hasattr(cls, "kind"):
            _KINDS[cls.kind] = cls
            if "required" not in cls.__dict__:
                cls.required = cls.json_keys[:1]

    def next_after(self, moment: datetime) -> datetime | None:
        """The first fire after an aware moment, in UTC; None if there is none within 60 years."""
        try:
            since = moment - EPOCH
            after = (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
        except (TypeError, AttributeError):
            raise aware_required(moment, "moment") from None
        if self.start_at is not None:
            after = max(after, to_microseconds(self.start_at) - 1)
        found = self._search.after(after)
        if found is None or found > LAST_MICROSECOND:
            return None
        seconds, microseconds = divmod(found, 1_000_000)
        at = EPOCH + timedelta(0, seconds, microseconds)
        return at if self.end_at is None or at <= self.end_at else None

    def previous_before(self, moment: datetime) -> datetime | None:
        """The last fire before an aware moment, in UTC; None if there is none within 60 years."""
        before = min(to_microseconds(moment), LAST_MICROSECOND + 1)
        if self.end_at is not None:
            before = min(before, to_microseconds(self.end_at) + 1)
        found = self._search.before(before)
        if found is None:
            return None
        at = from_microseconds(found)
        return at if self.start_at is None or at >= self.start_at else None

    def count_between(self, first: datetime, last: datetime) -> int:
        """The number of fires between two moments, inclusive. Computed without iterating where
        possible, so that a long outage costs no more than a short one."""
        low, high = to_microseconds(first), min(to_microseconds(last), LAST_MICROSECOND)
        if self.start_at is not None:
            low = max(low, to_microseconds(self.start_at))
        if self.end_at is not None:
            high = min(high, to_microseconds(self.end_at))
        return self._search.count(low, high) if low <= high else 0

    def fires(self, after: datetime, count: int) -> list[Fire]:
        """Up to `count` fires after a moment, each with a note for previews."""
        found: list[Fire] = []
        at = self.next_after(after)
        while at is not None and len(found) < count:
            found.append(Fire(at, self.local(at), self._search.note(to_microseconds(at))))
            at = self.next_after(at)
        return found

    def local(self, at: datetime) -> datetime:
        """The instant in the trigger's zone, with the UTC offset at that time."""
        second = to_microseconds(at) // 1_000_000
        return at.astimezone(timezone(timedelta(seconds=self._zone().offset_at(second))))

    @property
    def zone(self) -> str:
        """The IANA name of the zone that applies."""
        return UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        """The same trigger in this zone, if it has no zone itself."""
        parse_zone(name)
        return self

    def anchored(self, moment: datetime) -> Self:
        """The same trigger counting from this moment, if it is an interval without an anchor."""
        to_microseconds(moment)
        return self

    def with_default_anchor(self) -> Self:
        """The same trigger with the anchor that a schedule has if none is given: an interval counts
        from `start_at`, else from 1970-01-01T00:00:00Z. So `every 10m` is at :00, :10 …,
        independently of when and by what it is created, and nodes that share no state compute the
        same slots."""
        return self.anchored(self.start_at or EPOCH)

    def seeded(self, seed: str) -> Self:
        """The same trigger with this seed for its hashed fields (`H`), if it has any."""
        return self

    @property
    def is_example(self) -> bool:
        """Whether its fires depend on a seed (`seeded`) that it does not have."""
        return False

    def calendar_names(self) -> frozenset[str]:
        """The named calendars that it uses. A business day may name a country instead."""
        return frozenset(each.name for each in self.exclude if each.name is not None)

    def countries(self) -> frozenset[str]:
        """Those of `calendar_names` that may be countries."""
        return frozenset()

    def calendars(self) -> dict[str, NamedCalendar]:
        """The named calendars whose contents it has."""
        return {
            each.name: contents
            for each in self.exclude
            if each.name is not None and (contents := each.contents()) is not None
        }

    def with_calendars(self, known: Mapping[str, NamedCalendar]) -> Self:
        """The same trigger with these contents of its named calendars."""
        if not self.calendar_names():
            return self
        return replace(self, exclude=tuple(each.resolved(known) for each in self.exclude))  # type: ignore[type-var]

    def absences(self, first: datetime, last: datetime) -> Iterable[Absence]:
        """Times between two moments for which the trigger has a rule but no fire, such as a polar
        day without a sunset."""
        return ()

    def jitter_for(self, schedule_id: str, slot: datetime) -> timedelta:
        """The delay of a run after its slot; never part of the slot. Always shorter than the time
        to the next slot, so that runs keep their order."""
        if self.jitter is None and self.spread is None:
            return NO_JITTER
        delay = NO_JITTER
        if self.spread:
            delay = _hashed(schedule_id, self.spread)
        if self.jitter:
            delay += _hashed(f"{schedule_id}\0{self._slot_number(slot)}", self.jitter)
        following = self.next_after(slot)
        return delay if following is None else delay % (following - slot)

    def _slot_number(self, slot: datetime) -> int:
        """What the jitter of a slot depends on."""
        return to_microseconds(slot, "slot")

    def warnings(self) -> tuple[Note, ...]:
        """Notes for the author of the trigger."""
        return ()

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """The input of `trigger_from_dict`, without default values."""

    def shown(self) -> dict[str, object]:
        """`to_dict` for responses: without secrets, seed and the contents of named calendars."""
        return self._without_context(self.to_dict())

    def _without_context(self, plain: dict[str, object]) -> dict[str, object]:
        if self.exclude:
            plain["exclude"] = [calendar.shown() for calendar in self.exclude]
        return plain

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by value; the search is compiled again."""
        return trigger_from_dict, (self.to_dict(),)

    def _zone(self) -> Zone:
        return parse_zone(self.zone)

    def _set_bounds(
        self,
        start_at: datetime | str | None,
        end_at: datetime | str | None,
        max_runs: int | None,
        exclude: Iterable[object],
        zone: Zone | None,
        jitter: str | timedelta | None,
        spread: str | timedelta | None,
    ) -> None:
        put = object.__setattr__
        start = None if start_at is None else parse_bound(start_at, zone, "start_at")
        end = None if end_at is None else parse_bound(end_at, zone, "end_at")
        if start is not None and end is not None and end < start:
            raise InvalidTrigger(
                _("end_at is earlier than start_at"), field="end_at", code="out_of_range"
            )
        put(self, "start_at", start)
        put(self, "end_at", end)
        put(self, "max_runs", _runs(max_runs))
        put(self, "exclude", () if exclude == () else _calendars(exclude))
        put(self, "jitter", None if jitter is None else _delay(jitter, "jitter"))
        put(self, "spread", None if spread is None else _delay(spread, "spread"))

    def _compile(self, build: Callable[[], Search], zone: Zone) -> Search:
        """The search that `build` makes, without the excluded spans of time. A trigger whose named
        calendars are not known yet has no fires to search."""
        if not self.exclude:
            return build()
        for calendar in self.exclude:
            if calendar.name is not None and calendar.version is None:
                return UnresolvedSearch(calendar.name)
        spans = sorted(
            (to_microseconds(start), to_microseconds(end))
            for calendar in self.exclude
            for start, end in calendar.moments(zone)
        )
        return SpanSearch(build(), spans) if spans else build()

    def _bounds_dict(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.start_at is not None:
            found["start_at"] = format_moment(self.start_at)
        if self.end_at is not None:
            found["end_at"] = format_moment(self.end_at)
        if self.max_runs is not None:
            found["max_runs"] = self.max_runs
        if self.exclude:
            found["exclude"] = [calendar.to_dict() for calendar in self.exclude]
        if self.jitter is not None:
            found["jitter"] = format_duration_iso(self.jitter)
        if self.spread is not None:
            found["spread"] = format_duration_iso(self.spread)
        return found


def _hashed(text: str, below: timedelta) -> timedelta:
    from hashlib import sha256

    digest = sha256(text.encode()).digest()
    return timedelta(0, 0, int.from_bytes(digest[:16]) % (below // timedelta(microseconds=1)))


def _delay(value: str | timedelta, field: str) -> timedelta:
    delay = parse_duration(value, field=field, allow_zero=True)
    if delay > MAX_DELAY:
        raise InvalidTrigger(
            _("{key} may be at most 31 days", key=field), field=field, code="out_of_range"
        )
    return delay


def trigger_keys(kind: str) -> tuple[str, ...]:
    """The JSON keys of a kind of trigger, without the kind; none for an unknown kind."""
    return (*_KINDS[kind].json_keys, *_KINDS[kind].bounds) if kind in _KINDS else ()


def trigger_from_dict(value: object) -> Trigger:
    """The trigger that `to_dict` wrote; InvalidTrigger names the key that is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(value, dict) and not (isinstance(kind, str) and kind in _KINDS):
        raise InvalidTrigger(
            _(
                "kind must be one of {kinds}, not {kind}",
                kinds=", ".join(sorted(_KINDS)),
                kind=quote_text(kind),
            ),
            field="kind",
            code="unknown_kind" if isinstance(kind, str) else "missing_key",
            hint=suggest_name(kind, sorted(_KINDS)) if isinstance(kind, str) else None,
        )
    found = _KINDS[kind] if isinstance(kind, str) else TriggerBase
    keys = (*found.json_keys, *found.bounds) if isinstance(kind, str) else ()
    given = dict(check_keys(value, ("kind", *keys), None))
    del given["kind"]
    for key in found.required:
        if key not in given:
            raise InvalidTrigger(
                _("A trigger of kind {kind} needs {key}", kind=kind, key=key),
                field=key,
                code="missing_key",
            )
        if not isinstance(given[key], str) and key not in found.structured:
            raise InvalidTrigger(
                _("{key} must be text, not {type}", key=key, type=type(given[key]).__name__),
                field=key,
                code="wrong_type",
            )
    for key, each in given.items():
        if each is None:
            raise InvalidTrigger(
                _("{key} must not be null; leave it out instead", key=key),
                field=key,
                code="wrong_type",
            )
    build: Callable[..., Trigger] = found  # type: ignore[assignment]
    if "except" in given:
        given["except_"] = given.pop("except")
    return build(**given)


def never_fires(trigger: Trigger, after: datetime) -> bool:
    """Whether the trigger has no fire after this moment, within the search bound, and does not wait
    for events."""
    return not trigger.on_event and trigger.next_after(after) is None


def ensure_fires(trigger: Trigger, after: datetime) -> None:
    """Reject a trigger that has no fire after this moment."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("The trigger never fires: no future time matches it"),
            field="trigger",
            code=NEVER_FIRES,
        )


def parse_bound(value: object, zone: Zone | None, field: str) -> datetime | None:
    """A bound given as text or aware datetime, in UTC."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise aware_required(value, field)
        return check_year(check_year(value, field).astimezone(UTC), field)
    if isinstance(value, str):
        return parse_moment(value, zone, field=field)
    raise InvalidTrigger(
        _(
            "{field} must be a moment such as 2030-02-10T09:00:00Z, not {type}",
            field=field,
            type=type(value).__name__,
        ),
        field=field,
        code="wrong_type",
    )


def _runs(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTrigger(
            _("max_runs must be a whole number, not {type}", type=type(value).__name__),
            field="max_runs",
            code="wrong_type",
        )
    if not 1 <= value <= MAX_RUNS:
        raise InvalidTrigger(_("max_runs must be 1 or more"), field="max_runs", code="out_of_range")
    return value


def _calendars(value: object) -> tuple[Calendar, ...]:
    if isinstance(value, (Calendar, Mapping)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise InvalidTrigger(
            _("exclude must be a list of calendars, not {type}", type=type(value).__name__),
            field="exclude",
            code="wrong_type",
        )
    if len(value) > MAX_CALENDARS:
        raise InvalidTrigger(
            _(
                "exclude may have up to {most} calendars, not {count}",
                most=MAX_CALENDARS,
                count=len(value),
            ),
            field="exclude",
            code="out_of_range",
        )
    return tuple(parse_calendar(each, f"exclude[{index}]") for index, each in enumerate(value))
