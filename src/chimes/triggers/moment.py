"""Moments: RFC 3339, RFC 9557 (`2030-02-10T09:00:00+07:00[Asia/Bangkok]`), or local time + zone.

Leap seconds (`:60`) are rejected; years run from 1970 to 9998.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.duration import quote_text
from chimes.triggers.zones import Zone, parse_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR = 1970
LAST_YEAR = 9998
# The last microsecond of 9998: nothing fires later, and nothing here overflows.
LAST_MICROSECOND = (datetime(9999, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) - 1

_MAX_TEXT_LENGTH = 128
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]"
    r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?(?:\[!?([^\]=]+)\])?"
)


class ParsedMoment(NamedTuple):
    """A parsed moment: `instant` if the text has an offset, else `local` time without a zone."""

    local: datetime
    instant: datetime | None
    zone: Zone | None


def to_microseconds(moment: datetime, field: str = "moment") -> int:
    """Microseconds since 1970 of an aware datetime."""
    try:
        since = moment - EPOCH
        return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
    except (TypeError, AttributeError):
        raise aware_required(moment, field) from None


def aware_required(given: object, field: str) -> InvalidTrigger:
    naive = isinstance(given, datetime)
    return InvalidTrigger(
        _("{field} must be an aware datetime, not a naive one", field=field)
        if naive
        else _(
            "{field} must be an aware datetime, not {type}",
            field=field,
            type=type(given).__name__,
        ),
        field=field,
        code="naive_datetime" if naive else "wrong_type",
        hint=_("give it a tzinfo, such as datetime.UTC") if naive else None,
    )


def from_microseconds(value: int) -> datetime:
    # timedelta takes twice as long to split the microseconds itself.
    seconds, microseconds = divmod(value, 1_000_000)
    return EPOCH + timedelta(0, seconds, microseconds)


def format_moment(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z`, fractions only where there are any."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def place(local: datetime, zone: Zone) -> tuple[datetime, bool]:
    """The instant of a naive wall time in a zone, and whether a gap moved it."""
    since = local.replace(tzinfo=UTC) - EPOCH
    second, moved = zone.from_local(since.days * 86400 + since.seconds)
    return from_microseconds(second * 1_000_000 + (0 if moved else since.microseconds)), moved


def parse_moment(text: str, zone: Zone | str | None = None, *, field: str = "at") -> datetime:
    """Parse to an aware UTC datetime; local time needs a zone."""
    given = parse_zone(zone) if isinstance(zone, str) else zone
    parsed = read_moment(text, field=field)
    if parsed.instant is not None:
        return parsed.instant
    applies = parsed.zone or given
    if parsed.zone and given and parsed.zone.name != given.name:
        raise zones_differ(parsed.zone, given, field)
    if applies is None:
        raise InvalidTrigger(
            _(
                "{field} {text} has neither an offset nor a timezone",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="no_zone",
            hint=_("add Z or an offset such as +07:00, or name a timezone"),
        )
    return check_year(place(parsed.local, applies)[0], field)


def zones_differ(one: Zone, other: Zone, field: str) -> InvalidTrigger:
    return InvalidTrigger(
        _(
            "{field} names {zone}, but the timezone is {timezone}",
            field=field,
            zone=one.name,
            timezone=other.name,
        ),
        field=field,
        code="zone_mismatch",
    )


def check_year(moment: datetime, field: str) -> datetime:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise InvalidTrigger(
            _(
                "{field} must lie between {first} and {last}",
                field=field,
                first=FIRST_YEAR,
                last=LAST_YEAR,
            ),
            field=field,
            code="out_of_range",
        )
    return moment


def read_moment(text: object, *, field: str = "at") -> ParsedMoment:
    """Parse the text without applying a zone from outside."""
    if not isinstance(text, str):
        raise InvalidTrigger(
            _(
                "{field} must be text such as 2030-02-10T09:00:00Z, not {type}",
                field=field,
                type=type(text).__name__,
            ),
            field=field,
            code="wrong_type",
        )
    found = _MOMENT.fullmatch(text.strip()) if len(text) <= _MAX_TEXT_LENGTH else None
    if found is None:
        raise InvalidTrigger(
            _("{field} {text} is not a date and time", field=field, text=quote_text(text)),
            field=field,
            code="bad_moment",
            hint=_("write it like 2030-02-10T09:00:00Z or 2030-02-10T09:00:00+07:00"),
        )
    if found[6] == "60":
        raise InvalidTrigger(
            _(
                "{field} {text} is a leap second, which cannot be scheduled",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="leap_second",
        )
    local = _local(found, text, field)
    zone = parse_zone(found[12], field=field) if found[12] else None
    if not found[8] and not found[9]:
        return ParsedMoment(local, None, zone)
    offset = _offset(found, text, field)
    instant = check_year(local.replace(tzinfo=UTC) - offset, field)
    if zone is not None and found[9]:
        actual = zone.offset_at(to_microseconds(instant) // 1_000_000)
        if actual != offset // timedelta(seconds=1):
            raise InvalidTrigger(
                _(
                    "{field} {text} has an offset that {zone} does not have at that time",
                    field=field,
                    text=quote_text(text),
                    zone=zone.name,
                ),
                field=field,
                code="offset_mismatch",
            )
    return ParsedMoment(local, instant, zone)


def _local(found: re.Match[str], text: str, field: str) -> datetime:
    year, month, day, hour, minute = (int(found[group]) for group in range(1, 6))
    microsecond = int((found[7] or "").ljust(6, "0")[:6])
    try:
        local = datetime(year, month, day, hour, minute, int(found[6] or 0), microsecond)  # noqa: DTZ001
    except ValueError as error:
        raise InvalidTrigger(
            _(
                "{field} {text} is not a real date and time: {error}",
                field=field,
                text=quote_text(text),
                error=str(error),
            ),
            field=field,
            code="bad_moment",
        ) from None
    return check_year(local, field)


def _offset(found: re.Match[str], text: str, field: str) -> timedelta:
    if found[8]:
        return timedelta(0)
    hours, minutes = int(found[10]), int(found[11])
    if hours > 23 or minutes > 59:
        raise InvalidTrigger(
            _("{field} {text} has an impossible offset", field=field, text=quote_text(text)),
            field=field,
            code="bad_moment",
        )
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if found[9] == "-" else offset
