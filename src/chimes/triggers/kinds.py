"""The kinds of triggers: once, every and cron, with their JSON form and their text form.

`Trigger` is the union of them. `trigger_from_dict` reads the JSON form strictly,
`parse_trigger_text` the text form: a cron expression, `every 5m`, or a moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import Note, TriggerBase, parse_bound
from chimes.triggers.calendars import MAX_MOVE_DAYS, Band, Calendar, OpenDays, bands
from chimes.triggers.cron_fields import EVERY, MAX_EXPRESSION_LENGTH, CronFields, parse_fields
from chimes.triggers.cron_search import (
    SEARCH_SECONDS,
    CronSearch,
    WallTimes,
    WallUnion,
    clock_change_flags,
)
from chimes.triggers.values import (
    check_keys,
    check_year,
    format_duration_go,
    format_duration_iso,
    format_moment,
    from_microseconds,
    parse_duration,
    place,
    quote_text,
    read_moment,
    suggest_name,
    to_microseconds,
    zones_differ,
)
from chimes.triggers.zones import UTC_NAME, Zone, parse_zone

# --- once: a single moment ------------------------------------------------------------------------
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class SingleFire:
    """The search of a trigger with one fire, or none."""

    at: int | None
    special: Note | None

    def after(self, moment: int) -> int | None:
        return self.at if self.at is not None and self.at > moment else None

    def before(self, moment: int) -> int | None:
        return self.at if self.at is not None and self.at < moment else None

    def count(self, first: int, last: int) -> int:
        return int(self.at is not None and first <= self.at <= last)

    def note(self, fire: int) -> Note | None:
        return self.special

    def unless_excluded(
        self, local: datetime, calendars: tuple[Calendar, ...], zone: Zone
    ) -> SingleFire:
        """Apply the calendars, given the local time in the trigger's zone."""
        if not calendars:
            return self
        day, rest = divmod(to_microseconds(local.replace(tzinfo=UTC)), _DAY)
        minute = rest // 60_000_000
        band = next((each for each in bands(calendars) if each.start <= minute < each.end), None)
        if band is None:
            return SingleFire(None, None)
        policy = band.policy(day)
        if policy is None:
            return self
        target = None if policy == "skip" else band.moved(day, policy)
        if target is None:
            return SingleFire(None, None)
        wall, fraction = divmod(target * _DAY + rest, 1_000_000)
        second, in_gap = zone.from_local(wall)
        at = second * 1_000_000 + (0 if in_gap else fraction)
        return SingleFire(at, "moved_by_calendar")


@dataclass(frozen=True, slots=True, init=False)
class Once(TriggerBase):
    """Fires once, at `at`.

    With an offset (or as an aware datetime) `at` is an instant, stored in UTC. Without one it is
    wall time in `timezone`, stored as wall time; `instant` is then the first of two in a fold, or
    the end of a gap.
    """

    kind: ClassVar[Literal["once"]] = "once"

    at: str
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    instant: datetime = field(init=False, repr=False, compare=False)
    _search: SingleFire = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        at: str | datetime,
        *,
        timezone: str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
    ) -> None:
        put = object.__setattr__
        given = None if timezone is None else parse_zone(timezone)
        parsed = read_moment(at.isoformat() if isinstance(at, datetime) else at)
        if parsed.zone is not None and given is not None and parsed.zone.name != given.name:
            raise zones_differ(parsed.zone, given, "at")
        zone = given or parsed.zone
        put(self, "timezone", None if zone is None else zone.name)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone)
        applies = zone or parse_zone(UTC_NAME)
        instant, moved = parsed.instant, False
        if instant is None:
            instant, moved = place(parsed.local, applies)
            put(self, "at", parsed.local.isoformat())
            local = parsed.local
        else:
            put(self, "at", format_moment(instant))
            local = self.local(instant).replace(tzinfo=None)
        put(self, "instant", check_year(instant, "at"))
        fire = SingleFire(to_microseconds(instant), "moved_by_gap" if moved else None)
        put(self, "_search", fire.unless_excluded(local, self.exclude, applies))

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def warnings(self) -> tuple[Note, ...]:
        return () if self._search.special is None else (self._search.special,)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "at": self.at}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        return found | self._bounds_dict()


# --- every: a fixed interval of elapsed time ------------------------------------------------------
# Slots are at anchor + k·N, in integer microseconds, independent of zones; calendars apply in UTC.
# Without an anchor the slots are aligned to the Unix epoch.

_MINUTE = 60_000_000
SEARCH_DAYS = SEARCH_SECONDS // 86400


class IntervalSearch:
    """The slots of one interval."""

    __slots__ = ("_anchor", "_bands", "_first", "_reach", "_step")

    def __init__(self, step: int, anchor: int | None, calendars: tuple[Calendar, ...]) -> None:
        self._step = step
        self._anchor = anchor or 0
        self._first = anchor
        self._bands = self._relevant(bands(calendars)) if calendars else None
        moves = any(calendar.on_excluded != "skip" for calendar in calendars)
        self._reach = MAX_MOVE_DAYS if moves else 0

    def _relevant(self, found: list[Band]) -> list[Band]:
        if self._step % _DAY:
            return found
        minute = self._anchor % _DAY // _MINUTE
        return [band for band in found if band.start <= minute < band.end]

    def number(self, slot: int) -> int:
        """k of the slot at, or last before, this instant."""
        return (slot - self._anchor) // self._step

    def slot_from(self, start: int) -> int:
        """The first slot at or after `start`, calendars aside."""
        if self._first is not None and start <= self._first:
            return self._first
        return self._anchor - (self._anchor - start) // self._step * self._step

    def slot_until(self, end: int) -> int | None:
        """The last slot at or before `end`, calendars aside."""
        if self._first is not None and end < self._first:
            return None
        return self._anchor + (end - self._anchor) // self._step * self._step

    def after(self, moment: int) -> int | None:
        """The first fire after this instant."""
        if self._bands is None:
            return self.slot_from(moment + 1)
        day = moment // _DAY
        last = day + SEARCH_DAYS if self._bands else day - 1
        while day <= last:
            found = [
                slot
                for band in self._bands
                for source in band.sources(day)
                if (slot := self._first_in(band, source, day, moment + 1)) is not None
            ]
            if found:
                return min(found)
            # Skip days too far from any slot.
            near = self.slot_from((day + 1 - self._reach) * _DAY)
            day = max(day + 1, near // _DAY - self._reach)
        return None

    def before(self, moment: int) -> int | None:
        """The last fire before this instant."""
        if self._bands is None:
            return self.slot_until(moment - 1)
        day = moment // _DAY
        last = day - SEARCH_DAYS if self._bands else day + 1
        while day >= last:
            found = [
                slot
                for band in self._bands
                for source in band.sources(day)
                if (slot := self._last_in(band, source, day, moment - 1)) is not None
            ]
            if found:
                return max(found)
            near = self.slot_until((day + self._reach) * _DAY - 1)
            if near is None:
                return None
            day = min(day - 1, near // _DAY + self._reach)
        return None

    def count(self, first: int, last: int) -> int:
        """How many fires lie from `first` to `last`; iterates only with calendars."""
        if self._bands:
            found, at = 0, self.after(first - 1)
            while at is not None and at <= last:
                found, at = found + 1, self.after(at)
            return found
        end = self.slot_until(last)
        start = self.slot_from(first)
        return 0 if end is None or end < start else (end - start) // self._step + 1

    def note(self, fire: int) -> Note | None:
        return "moved_by_calendar" if self.slot_until(fire) != fire else None

    def _first_in(self, band: Band, source: int, day: int, start: int) -> int | None:
        shift = (day - source) * _DAY
        opens = source * _DAY + band.start * _MINUTE
        slot = self.slot_from(max(opens, start - shift))
        return slot + shift if slot < source * _DAY + band.end * _MINUTE else None

    def _last_in(self, band: Band, source: int, day: int, end: int) -> int | None:
        shift = (day - source) * _DAY
        closes = source * _DAY + band.end * _MINUTE
        slot = self.slot_until(min(closes - 1, end - shift))
        if slot is None or slot < source * _DAY + band.start * _MINUTE:
            return None
        return slot + shift


MIN_INTERVAL = timedelta(milliseconds=1)
MAX_INTERVAL = timedelta(days=3653)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, init=False)
class Every(TriggerBase):
    """Fires at anchor + k·every, k ≥ 0; a future anchor is the first slot.

    Without an anchor the slots are aligned to the Unix epoch; a schedule sets an anchor with
    `anchored`. `jitter` delays each run by a hash of the schedule's id
    and k in [0, jitter); it is never longer than `every`, so runs keep their order.
    """

    kind: ClassVar[Literal["every"]] = "every"

    every: timedelta
    anchor: datetime | None
    jitter: timedelta | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    _search: IntervalSearch = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        every: str | timedelta,
        *,
        anchor: datetime | str | None = None,
        jitter: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
    ) -> None:
        step = parse_interval(every, "every")
        put = object.__setattr__
        put(self, "every", step)
        put(self, "anchor", parse_bound(anchor, None, "anchor"))
        put(self, "jitter", None if jitter is None else _jitter(jitter, step))
        self._set_bounds(start_at, end_at, max_runs, exclude, None)
        first = None if self.anchor is None else to_microseconds(self.anchor)
        put(self, "_search", IntervalSearch(step // _MICROSECOND, first, self.exclude))

    def anchored(self, moment: datetime) -> Self:
        aware = from_microseconds(to_microseconds(moment))
        return self if self.anchor is not None else replace(self, anchor=aware)

    def jitter_for(self, schedule_id: str, slot: datetime) -> timedelta:
        if not self.jitter:
            return timedelta(0)
        from hashlib import sha256

        number = self._search.number(to_microseconds(slot, "slot"))
        digest = sha256(f"{schedule_id}\0{number}".encode()).digest()
        return timedelta(0, 0, int.from_bytes(digest[:16]) % (self.jitter // _MICROSECOND))

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "every": format_duration_iso(self.every)}
        if self.anchor is not None:
            found["anchor"] = format_moment(self.anchor)
        if self.jitter is not None:
            found["jitter"] = format_duration_iso(self.jitter)
        return found | self._bounds_dict()


def parse_interval(value: str | timedelta, name: str) -> timedelta:
    """A duration that may be used as an interval."""
    step = parse_duration(value, field=name)
    if not MIN_INTERVAL <= step <= MAX_INTERVAL:
        raise InvalidTrigger(
            _("{field} must be between 1ms and 10 years", field=name),
            field=name,
            code="out_of_range",
        )
    return step


def _jitter(value: str | timedelta, step: timedelta) -> timedelta:
    jitter = parse_duration(value, field="jitter", allow_zero=True)
    if jitter > step:
        raise InvalidTrigger(
            _("jitter must not be longer than the interval"), field="jitter", code="out_of_range"
        )
    return jitter


# --- cron: an expression in a zone, with rules for clock changes (`cron_search`) ------------------
Dialect = Literal["auto", "unix", "seconds", "quartz"]
Dst = Literal["chimes", "vixie", "robfig"]

DIALECTS = ("auto", "unix", "seconds", "quartz")
POLICIES = ("chimes", "vixie", "robfig")
_PREFIXES = ("CRON_TZ=", "TZ=")


@dataclass(frozen=True, slots=True, init=False)
class Cron(TriggerBase):
    """Fires where the wall clock of its zone matches the expression.

    `dialect` is chosen by the number of fields (5 unix, 6 seconds first, 7 quartz) unless given.
    A `CRON_TZ=` or `TZ=` prefix wins over `timezone`. `dst` is the policy for clock changes; see
    cron_search. `anchor` is for `@every` only, as for Every.
    """

    kind: ClassVar[Literal["cron"]] = "cron"

    expression: str
    timezone: str | None
    dialect: Dialect
    dst: Dst
    anchor: datetime | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    _prefix: str | None = field(init=False, repr=False, compare=False)
    _search: CronSearch | IntervalSearch = field(init=False, repr=False, compare=False)
    _fields: CronFields | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        expression: str,
        *,
        timezone: str | None = None,
        dialect: Dialect = "auto",
        dst: Dst = "chimes",
        anchor: datetime | str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
    ) -> None:
        put = object.__setattr__
        text = _normalize(expression)
        prefix, body = _split(text)
        named = None if timezone is None else parse_zone(timezone)
        zone = named if prefix is None else parse_zone(prefix, field="expression")
        put(self, "expression", text)
        put(self, "timezone", None if named is None else named.name)
        put(self, "dialect", _choice(dialect, DIALECTS, "dialect"))
        put(self, "dst", _choice(dst, POLICIES, "dst"))
        put(self, "anchor", parse_bound(anchor, zone, "anchor"))
        put(self, "_prefix", prefix)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone)
        if body.lower().startswith(f"{EVERY} "):
            put(self, "_fields", None)
            put(self, "_search", self._interval(body))
            return
        if self.anchor is not None:
            raise InvalidTrigger(
                _("Only @every counts from an anchor"), field="anchor", code="unknown_key"
            )
        fields = parse_fields(body, self.dialect)
        put(self, "_fields", fields)
        put(self, "_search", self._compiled(fields, zone or parse_zone(UTC_NAME)))

    def _interval(self, body: str) -> IntervalSearch:
        step = parse_interval(body[len(EVERY) :], "expression") // _MICROSECOND
        first = None if self.anchor is None else to_microseconds(self.anchor)
        return IntervalSearch(step, first, self.exclude)

    def _compiled(self, fields: CronFields, zone: Zone) -> CronSearch:
        after_gap, twice = clock_change_flags(fields, self.dst)
        plain = WallTimes(fields.days, fields.minutes, fields.seconds)
        if not self.exclude:
            return CronSearch(plain, plain, zone, after_gap=after_gap, twice=twice)
        wall = WallUnion(
            [
                WallTimes(OpenDays(fields.days, band), minutes, fields.seconds)
                for band in bands(self.exclude)
                if (minutes := fields.minutes & (1 << band.end) - (1 << band.start))
            ]
        )
        return CronSearch(wall, plain, zone, after_gap=after_gap, twice=twice)

    @property
    def zone(self) -> str:
        return self._prefix or self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        if self.timezone is not None or self._prefix is not None:
            return self
        return replace(self, timezone=name)

    def anchored(self, moment: datetime) -> Self:
        aware = from_microseconds(to_microseconds(moment))
        if self.anchor is not None or self._fields is not None:
            return self
        return replace(self, anchor=aware)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "expression": self.expression}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        if self.dialect != "auto":
            found["dialect"] = self.dialect
        if self.dst != "chimes":
            found["dst"] = self.dst
        if self.anchor is not None:
            found["anchor"] = format_moment(self.anchor)
        return found | self._bounds_dict()


def _normalize(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidTrigger(
            _("A cron expression must be text, not {type}", type=type(expression).__name__),
            field="expression",
            code="wrong_type",
        )
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidTrigger(
            _(
                "A cron expression may have up to {most} characters, not {count}",
                most=MAX_EXPRESSION_LENGTH,
                count=len(expression),
            ),
            field="expression",
            code="too_long",
        )
    text = " ".join(expression.split())
    if not text:
        raise InvalidTrigger(_("The cron expression is empty"), field="expression", code="empty")
    return text


def _split(text: str) -> tuple[str | None, str]:
    """The zone of a prefix, if any, and the rest."""
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            zone, _unused, body = text[len(prefix) :].partition(" ")
            if not body:
                raise InvalidTrigger(
                    _("There is no cron expression after {text}", text=quote_text(text)),
                    field="expression",
                    code="empty",
                )
            return zone, body
    return None, text


def _choice(value: object, known: tuple[str, ...], name: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise InvalidTrigger(
        _(
            "{field} must be one of {known}, not {value}",
            field=name,
            known=", ".join(known),
            value=quote_text(value),
        ),
        field=name,
        code="bad_choice" if isinstance(value, str) else "wrong_type",
        hint=suggest_name(value, known) if isinstance(value, str) else None,
    )


# --- JSON form: tagged dicts ----------------------------------------------------------------------
Trigger = Cron | Every | Once

NEVER_FIRES = "never_fires"

_BOUNDS = ("start_at", "end_at", "max_runs", "exclude")
# The first key of each is required.
_KEYS: dict[str, tuple[str, ...]] = {
    "cron": ("expression", "timezone", "dialect", "dst", "anchor", *_BOUNDS),
    "every": ("every", "anchor", "jitter", *_BOUNDS),
    "once": ("at", "timezone", *_BOUNDS),
}
_CLASSES: dict[str, Callable[..., Trigger]] = {"cron": Cron, "every": Every, "once": Once}


def trigger_from_dict(value: object) -> Trigger:
    """The trigger that `to_dict` wrote; InvalidTrigger names the key that is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(value, dict) and not (isinstance(kind, str) and kind in _KEYS):
        raise InvalidTrigger(
            _(
                "kind must be one of {kinds}, not {kind}",
                kinds=", ".join(_KEYS),
                kind=quote_text(kind),
            ),
            field="kind",
            code="unknown_kind" if isinstance(kind, str) else "missing_key",
            hint=suggest_name(kind, _KEYS) if isinstance(kind, str) else None,
        )
    keys = _KEYS[kind] if isinstance(kind, str) else ()
    given = dict(check_keys(value, ("kind", *keys), None))
    del given["kind"]
    if keys[0] not in given:
        raise InvalidTrigger(
            _("A trigger of kind {kind} needs {key}", kind=kind, key=keys[0]),
            field=keys[0],
            code="missing_key",
        )
    first = given.pop(keys[0])
    if not isinstance(first, str):
        raise InvalidTrigger(
            _("{key} must be text, not {type}", key=keys[0], type=type(first).__name__),
            field=keys[0],
            code="wrong_type",
        )
    for key, each in given.items():
        if each is None:
            raise InvalidTrigger(
                _("{key} must not be null; leave it out instead", key=key),
                field=key,
                code="wrong_type",
            )
    return _CLASSES[str(kind)](first, **given)


def never_fires(trigger: Trigger, after: datetime) -> bool:
    """Whether the trigger has no fire after this moment, within the search bound."""
    return trigger.next_after(after) is None


def ensure_fires(trigger: Trigger, after: datetime) -> None:
    """Reject a trigger that has no fire after this moment."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("The trigger never fires: no future time matches it"),
            field="trigger",
            code=NEVER_FIRES,
        )


# --- text form ------------------------------------------------------------------------------------
_EVERY_TEXT = re.compile(r"@?every\s+(\S+)", re.IGNORECASE)
_COUNTED = re.compile(r"every(?:\s+([0-9]+))?\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "24h", "week": "168h"}
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FORMS = _(
    'write a cron expression such as "0 9 * * 1-5", an interval such as "every 5m", '
    "or a moment such as 2030-02-10T09:00:00+07:00"
)


def parse_trigger_text(text: str, zone: str | None, dialect: Dialect = "auto") -> Trigger:
    """Raises InvalidTrigger. Local times are in `zone`, or in UTC."""
    stripped = text.strip()
    if stripped.partition(" ")[0].isalpha() and not _is_interval(stripped):
        raise InvalidTrigger(
            _(
                '{text} is not a valid time; write an interval as "{suggested}"',
                text=quote_text(stripped),
                suggested=_suggest_interval(stripped),
            ),
            field="expression",
            code="not_a_time",
            hint=_FORMS,
        )
    if found := _EVERY_TEXT.fullmatch(stripped):
        return Every(found[1])
    if _MOMENT.match(stripped):
        return Once(stripped, timezone=zone)
    try:
        return Cron(stripped, timezone=zone, dialect=dialect)
    except InvalidTrigger as error:
        if error.code == "field_count" and not error.hint:
            error.hint = _FORMS
        raise


def _is_interval(text: str) -> bool:
    return _EVERY_TEXT.fullmatch(text) is not None and _COUNTED.fullmatch(text) is None


def _suggest_interval(text: str) -> str:
    """The valid form of texts such as `every 5 minutes`."""
    found = _COUNTED.fullmatch(text)
    if found is None:
        return "every 5m"
    unit = _UNITS[found[2].lower()]
    return f"every {int(found[1] or 1) * int(unit[:-1])}{unit[-1]}"


def format_trigger_text(trigger: Trigger) -> str:
    """The cron expression, `@every 5m`, or the RFC 3339 time in UTC."""
    match trigger:
        case Cron():
            return trigger.expression
        case Every():
            every = format_duration_go(trigger.every)
            for zero in ("0s", "0m"):
                shorter = every.removesuffix(zero)
                if shorter and shorter[-1] in "mh":
                    every = shorter
            return f"@every {every}"
        case Once():
            at = trigger.instant.astimezone(UTC).isoformat().removesuffix("+00:00")
            return f"{at.rstrip('0')}Z" if "." in at else f"{at}Z"
