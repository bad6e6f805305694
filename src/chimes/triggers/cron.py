"""The cron trigger: an expression in a time zone, with rules for clock changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import TriggerBase, parse_bound
from chimes.triggers.calendars import Calendar, OpenDays, bands
from chimes.triggers.cron_fields import EVERY, MAX_EXPRESSION_LENGTH, CronFields, parse_fields
from chimes.triggers.cron_search import (
    CronSearch,
    WallTimes,
    WallUnion,
    clock_change_flags,
)
from chimes.triggers.every import MICROSECOND, IntervalSearch, parse_interval
from chimes.triggers.values import (
    format_moment,
    from_microseconds,
    quote_text,
    suggest_name,
    to_microseconds,
)
from chimes.triggers.zones import UTC_NAME, Zone, parse_zone

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
        step = parse_interval(body[len(EVERY) :], "expression") // MICROSECOND
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
