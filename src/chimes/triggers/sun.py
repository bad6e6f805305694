"""The sun trigger: sunrise or sunset at a place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import Absence, TriggerBase
from chimes.triggers.calendars import Calendar, bands
from chimes.triggers.searches import Note, OpenFires, Search
from chimes.triggers.values import (
    format_duration_iso,
    from_microseconds,
    parse_duration,
    quote_text,
    suggest_name,
    to_microseconds,
)
from chimes.triggers.zones import EPOCH_ORDINAL, UTC_NAME, parse_zone

Event = Literal["sunrise", "sunset"]
EVENTS: tuple[Event, ...] = ("sunrise", "sunset")
MAX_OFFSET = timedelta(hours=12)
_DAY = 86400
_MICRO = 1_000_000
#: Every place has a sunrise within a year.
_SEARCH_DAYS = 400
_LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL - 1


@lru_cache(maxsize=16384)
def event_second(event: Event, latitude: float, longitude: float, day: int) -> int | None:
    """The second of the event on a day since 1970, which begins at midnight of the local mean time
    of the longitude; None if it does not happen."""
    from astral import Observer
    from astral import sun as astral_sun

    find = astral_sun.sunrise if event == "sunrise" else astral_sun.sunset
    zone = timezone(timedelta(hours=_mean_hours(longitude)))
    at = date.fromordinal(day + EPOCH_ORDINAL)
    try:
        return round(find(Observer(latitude, longitude), at, zone).timestamp())
    except ValueError:
        return None


def _mean_hours(longitude: float) -> int:
    """How far the local mean time of a longitude is ahead of UTC."""
    return round(longitude / 15)


class SunSearch:
    """The events of one place."""

    __slots__ = ("_event", "_latitude", "_longitude", "_offset", "_shift")

    def __init__(self, event: Event, latitude: float, longitude: float, offset: int) -> None:
        self._event: Event = event
        self._latitude = latitude
        self._longitude = longitude
        self._offset = offset
        self._shift = _mean_hours(longitude) * 3600

    def at(self, day: int) -> int | None:
        """The fire of a day, in microseconds."""
        if not -_LAST_DAY < day <= _LAST_DAY:
            return None
        found = event_second(self._event, self._latitude, self._longitude, day)
        return None if found is None else found * _MICRO + self._offset

    def day(self, moment: int) -> int:
        """The day whose event is at about this instant."""
        return ((moment - self._offset) // _MICRO + self._shift) // _DAY

    def after(self, moment: int) -> int | None:
        first = self.day(moment) - 1
        for day in range(first, first + _SEARCH_DAYS):
            at = self.at(day)
            if at is not None and at > moment:
                return at
        return None

    def before(self, moment: int) -> int | None:
        last = self.day(moment) + 1
        for day in range(last, last - _SEARCH_DAYS, -1):
            at = self.at(day)
            if at is not None and at < moment:
                return at
        return None

    def count(self, first: int, last: int) -> int:
        days = range(self.day(first) - 1, self.day(last) + 2)
        return sum((at := self.at(day)) is not None and first <= at <= last for day in days)

    def note(self, fire: int) -> Note | None:
        return None


@dataclass(frozen=True, slots=True, init=False)
class Sun(TriggerBase):
    """Fires at each sunrise or sunset of a place, earlier or later by `offset`; not on polar days
    and in polar nights. `timezone` is used for calendars and to show local times.

    Needs the package astral (`pip install chimes[sun]`). Times are accurate to about a minute.
    """

    kind: ClassVar[Literal["sun"]] = "sun"
    json_keys: ClassVar[tuple[str, ...]] = ("event", "latitude", "longitude", "offset", "timezone")
    required: ClassVar[tuple[str, ...]] = ("event", "latitude", "longitude")
    structured: ClassVar[tuple[str, ...]] = ("latitude", "longitude")

    event: Event
    latitude: float
    longitude: float
    offset: timedelta
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    _events: SunSearch = field(init=False, repr=False, compare=False)
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        event: str,
        *,
        latitude: float,
        longitude: float,
        offset: str | timedelta = timedelta(0),
        timezone: str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
    ) -> None:
        put = object.__setattr__
        found = next((each for each in EVENTS if each == event), None)
        if found is None:
            raise InvalidTrigger(
                _(
                    "{field} must be one of {known}, not {value}",
                    field="event",
                    known=", ".join(EVENTS),
                    value=quote_text(event),
                ),
                field="event",
                code="bad_choice",
                hint=suggest_name(event, EVENTS) if isinstance(event, str) else None,
            )
        _require_astral()
        put(self, "event", found)
        put(self, "latitude", _degrees(latitude, "latitude", 90))
        put(self, "longitude", _degrees(longitude, "longitude", 180))
        shift = parse_duration(offset, field="offset", allow_zero=True, allow_negative=True)
        if abs(shift) > MAX_OFFSET:
            raise InvalidTrigger(
                _("offset must be between -12h and 12h"), field="offset", code="out_of_range"
            )
        put(self, "offset", shift)
        zone = None if timezone is None else parse_zone(timezone)
        put(self, "timezone", None if zone is None else zone.name)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone, jitter, spread)
        micros = shift // timedelta(microseconds=1)
        events = SunSearch(found, self.latitude, self.longitude, micros)
        put(self, "_events", events)
        applies = zone or parse_zone(UTC_NAME)

        def search() -> Search:
            return OpenFires(events, bands(self.exclude), applies) if self.exclude else events

        put(self, "_search", self._compile(search, applies))

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def absences(self, first: datetime, last: datetime) -> Iterable[Absence]:
        """Polar days and nights, at their noon."""
        low, high = to_microseconds(first), to_microseconds(last)
        hours = _mean_hours(self.longitude)
        for day in range(self._events.day(low) - 1, self._events.day(high) + 2):
            noon = (day * _DAY + _DAY // 2 - hours * 3600) * _MICRO
            if low <= noon <= high and self._events.at(day) is None:
                yield Absence(
                    from_microseconds(noon),
                    "no_sunrise" if self.event == "sunrise" else "no_sunset",
                )

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {
            "kind": self.kind,
            "event": self.event,
            "latitude": self.latitude,
            "longitude": self.longitude,
        }
        if self.offset:
            found["offset"] = format_duration_iso(self.offset)
        if self.timezone is not None:
            found["timezone"] = self.timezone
        return found | self._bounds_dict()


def _require_astral() -> None:
    from importlib.util import find_spec

    if find_spec("astral") is None:
        raise InvalidTrigger(
            _("triggers of kind sun need the package astral"),
            field="kind",
            code="not_installed",
            hint=_("run: pip install 'chimes[sun]'"),
        )


def _degrees(value: object, field: str, most: int) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidTrigger(
            _("{key} must be a number, not {type}", key=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    if not -most <= value <= most:
        raise InvalidTrigger(
            _("{key} must be between -{most} and {most} degrees", key=field, most=most),
            field=field,
            code="out_of_range",
        )
    return float(value)
