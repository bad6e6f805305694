"""The values in the definition of a trigger: JSON fields, durations and moments.

Every value is parsed strictly and formatted back; an invalid one raises InvalidTrigger with its
field. A duration (`1h30m`, `PT1H30M`) is elapsed time, so months and years, which have no fixed
length, are rejected. A moment is RFC 3339, RFC 9557 (`2030-02-10T09:00:00+07:00[Asia/Bangkok]`) or
local time with a zone; leap seconds (`:60`) are rejected, and years run from 1970 to 9998.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from chimes.errors import InvalidTrigger
from chimes.i18n import Message, _
from chimes.triggers.zones import Zone, parse_zone


# --- JSON fields ----------------------------------------------------------------------------------
def suggest_name(name: str, known: Iterable[str]) -> Message | None:
    """A hint with the most similar known name."""
    from difflib import get_close_matches

    folded = {word.casefold(): word for word in sorted(known)}
    found = get_close_matches(name[:64].casefold(), folded, n=1, cutoff=0.5)
    return _("did you mean {name}?", name=folded[found[0]]) if found else None


def check_keys(value: object, known: tuple[str, ...], field: str | None) -> Mapping[str, object]:
    """The value, if it is a mapping without unknown keys."""
    label = field or "trigger"
    # Nearly always a dictionary, which takes no call of the abstract class.
    if not isinstance(value, (dict, Mapping)):
        raise InvalidTrigger(
            _("{field} must be an object, not {type}", field=label, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    for key in value:
        if key not in known:
            raise InvalidTrigger(
                _(
                    "{field} has an unknown key {key}; it may have {known}",
                    field=label,
                    key=quote_text(key),
                    known=", ".join(known),
                ),
                field=str(key)[:64] if field is None else f"{field}.{str(key)[:64]}",
                code="unknown_key",
                hint=suggest_name(str(key), known),
            )
    return value


def check_text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidTrigger(
            _("{field} must be text, not {type}", field=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    return value


def quote_text(text: object) -> str:
    """The text, quoted and shortened for an error message."""
    quoted = repr(text)
    return quoted if len(quoted) <= 80 else f"{quoted[:80]}…"


# --- durations: Go style (`1h30m`, `250ms`) and ISO 8601 ------------------------------------------
_MAX_DURATION_LENGTH = 64
_MAX_NANOSECONDS = 1000 * 366 * 86400 * 10**9

_GO_UNITS = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ns": 1,
}
_GO = re.compile(r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|µs|μs|ns))+")
_GO_PART = re.compile(r"([0-9]*)\.?([0-9]*)(h|ms|m|s|us|µs|μs|ns)")
_ISO = re.compile(
    r"P(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]+))?S)?)?"
)
_ISO_UNITS = (7 * 86400, 86400, 3600, 60, 1)


def parse_duration(
    text: str | timedelta,
    *,
    field: str = "duration",
    allow_zero: bool = False,
    allow_negative: bool = False,
) -> timedelta:
    """A duration from its text; a timedelta passes through the same checks."""
    value = text if isinstance(text, timedelta) else _parse_duration(text, field)
    if value < timedelta(0) and not allow_negative:
        raise InvalidTrigger(
            _("{field} must not be negative: {text}", field=field, text=quote_text(text)),
            field=field,
            code="out_of_range",
        )
    if not value and not allow_zero:
        raise InvalidTrigger(
            _("{field} must be longer than zero", field=field), field=field, code="out_of_range"
        )
    return value


def _parse_duration(text: object, field: str) -> timedelta:
    if not isinstance(text, str):
        raise InvalidTrigger(
            _(
                "{field} must be text such as 90s, 1h30m or PT1H30M, not {type}",
                field=field,
                type=type(text).__name__,
            ),
            field=field,
            code="wrong_type",
        )
    stripped = text.strip()
    if len(stripped) > _MAX_DURATION_LENGTH:
        raise InvalidTrigger(_("{field} is too long", field=field), field=field, code="too_long")
    negative = stripped.startswith("-")
    body = stripped[1:] if stripped[:1] in ("-", "+") else stripped
    nanoseconds = _iso(body) if body[:1] in ("P", "p") else _go(body)
    if nanoseconds is None:
        raise InvalidTrigger(
            _(
                "{field} {text} is not a duration; write it like 90s, 1h30m or PT1H30M",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="bad_duration",
            hint=_duration_hint(body),
        )
    if nanoseconds > _MAX_NANOSECONDS:
        raise InvalidTrigger(
            _("{field} {text} is too long", field=field, text=quote_text(text)),
            field=field,
            code="out_of_range",
        )
    microseconds, rest = divmod(nanoseconds, 1000)
    if rest:
        raise InvalidTrigger(
            _("{field} {text} is finer than a microsecond", field=field, text=quote_text(text)),
            field=field,
            code="bad_duration",
        )
    return timedelta(microseconds=-microseconds if negative else microseconds)


def _go(body: str) -> int | None:
    if body == "0":
        return 0
    if not _GO.fullmatch(body):
        return None
    total: int = 0
    for whole, fraction, unit in _GO_PART.findall(body):
        scale = _GO_UNITS[unit]
        total += int(whole or 0) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
    return total


def _iso(body: str) -> int | None:
    upper = body.upper()
    found = _ISO.fullmatch(upper)
    if found is None or upper == "P" or upper.endswith("T"):
        return None
    seconds = sum(
        int(part or 0) * unit for part, unit in zip(found.groups()[:5], _ISO_UNITS, strict=True)
    )
    return seconds * 10**9 + int((found[6] or "").ljust(9, "0")[:9])


def _duration_hint(body: str) -> str | None:
    if re.fullmatch(r"[0-9.]+", body):
        return _("add a unit: {number}s, {number}m or {number}h", number=body)
    if re.fullmatch(r"[0-9]+ ?d(ays?)?", body.lower()):
        return _("a day is 24h or P1D")
    if re.fullmatch(r"P[0-9YMWD.,]*[YM].*", body.upper()):
        return _("months and years have no fixed length; use a cron expression")
    return None


def format_duration_iso(value: timedelta) -> str:
    """ISO 8601 with days as the largest unit: `PT1H30M`, `P1DT2H`, `PT0.25S`."""
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, fraction = divmod(abs(microseconds), 10**6)
    days, seconds = divmod(seconds, 86400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    time = f"{hours}H" if hours else ""
    time += f"{minutes}M" if minutes else ""
    if seconds or fraction:
        time += f"{_decimal(seconds, fraction, 6)}S"
    day = f"{days}D" if days else ""
    if not day and not time:
        return "PT0S"
    return f"{sign}P{day}{'T' if time else ''}{time}"


def format_duration_go(value: timedelta) -> str:
    """Like Go's Duration: `1h30m0s`, `250ms`, `0s`."""
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    left = abs(microseconds)
    if left == 0:
        return "0s"
    if left < 1000:
        return f"{sign}{left}µs"
    if left < 10**6:
        return f"{sign}{_decimal(left // 1000, left % 1000, 3)}ms"
    seconds, fraction = divmod(left, 10**6)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds, fraction, 6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(whole: int, fraction: int, digits: int) -> str:
    return f"{whole}.{fraction:0{digits}d}".rstrip("0") if fraction else str(whole)


# --- moments --------------------------------------------------------------------------------------
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR = 1970
LAST_YEAR = 9998
# The last microsecond of 9998: nothing fires later, and nothing here overflows.
LAST_MICROSECOND = (datetime(9999, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) - 1

_MAX_MOMENT_LENGTH = 128
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
    found = _MOMENT.fullmatch(text.strip()) if len(text) <= _MAX_MOMENT_LENGTH else None
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
    local = _local_time(found, text, field)
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


def _local_time(found: re.Match[str], text: str, field: str) -> datetime:
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


# --- times that people write: relative to now, or a moment ----------------------------------------
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LENGTH_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LENGTH = re.compile(
    r"(?:([0-9]{1,6})\s*(w(?:eeks?)?|d(?:ays?)?|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\s*)+"
)
_LENGTH_PART = re.compile(r"([0-9]+)\s*([wdhms])[a-z]*")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def parse_time(
    text: str, *, now: datetime, zone: Zone | str, past: bool = False, field: str = "time"
) -> datetime:
    """A time that a person wrote, as an aware UTC datetime.

    Besides moments: `now`; a length such as `24h`, which lies before now if `past`, else after it;
    `24h ago`, `in 2h`; `yesterday`, `today`, `tomorrow` or a weekday, each alone (its midnight) or
    with a clock time (`tomorrow 10:00`); a clock time of today; a date. Local times are in
    `zone`."""
    place_in = parse_zone(zone) if isinstance(zone, str) else zone
    words = " ".join(text.casefold().split())
    if words == "now":
        return now
    if (length := _relative_length(words, past=past)) is not None:
        return check_year(now + length, field)
    clock = _CLOCK.search(words)
    if clock is not None and clock.end() == len(words):
        words = words[: clock.start()].strip().removesuffix(" at")
    else:
        clock = None
    today = _local_date(now, place_in)
    day = today if not words and clock is not None else _day(words, today, past=past)
    if day is None:
        if _MOMENT.fullmatch(text.strip()):
            return parse_moment(text, place_in, field=field)
        raise InvalidTrigger(
            _("{field} {text} is not a time", field=field, text=quote_text(text)),
            field=field,
            code="bad_moment",
            hint=_(
                "write it like 24h, yesterday, 'tomorrow 10:00', 'in 2h' or"
                " 2030-02-10T09:00:00+07:00"
            ),
        )
    try:
        hour, minute, second = (int(clock[part] or 0) for part in (1, 2, 3)) if clock else (0, 0, 0)
        local = day.replace(hour=hour, minute=minute, second=second)
    except ValueError:
        raise InvalidTrigger(
            _("{field} {text} is not a real time of day", field=field, text=quote_text(text)),
            field=field,
            code="bad_moment",
        ) from None
    return check_year(place(local, place_in)[0], field)


def parse_date(text: str, *, now: datetime, zone: Zone | str, field: str = "date") -> datetime:
    """The local midnight, without a zone, of a date, `yesterday`, `today`, `tomorrow` or a weekday,
    which is the latest one."""
    place_in = parse_zone(zone) if isinstance(zone, str) else zone
    found = _day(" ".join(text.casefold().split()), _local_date(now, place_in), past=True)
    if found is None:
        raise InvalidTrigger(
            _("{field} {text} is not a date", field=field, text=quote_text(text)),
            field=field,
            code="bad_moment",
            hint=_("write it like 2030-01-31, today or yesterday"),
        )
    return check_year(found, field)


def _relative_length(words: str, *, past: bool) -> timedelta | None:
    """The signed distance from now; None if the words are no length."""
    sign = -1 if past else 1
    if words.endswith(" ago"):
        words, sign = words.removesuffix(" ago"), -1
    elif words.startswith("in "):
        words, sign = words.removeprefix("in "), 1
    elif words[:1] in ("-", "+"):
        words, sign = words[1:], -1 if words[0] == "-" else 1
    if _LENGTH.fullmatch(words):
        seconds = sum(
            int(number) * _LENGTH_UNITS[unit] for number, unit in _LENGTH_PART.findall(words)
        )
        return sign * timedelta(seconds=seconds)
    nanoseconds = _iso(words) if words[:1] == "p" else _go(words)
    if nanoseconds is None or nanoseconds > _MAX_NANOSECONDS:
        return None
    return sign * timedelta(microseconds=nanoseconds // 1000)


def _local_date(now: datetime, zone: Zone) -> datetime:
    offset = zone.offset_at(to_microseconds(now) // 1_000_000)
    local = now.astimezone(UTC) + timedelta(seconds=offset)
    return local.replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)


def _day(words: str, today: datetime, *, past: bool) -> datetime | None:
    if words in _DAYS:
        return today + timedelta(days=_DAYS[words])
    if words in _WEEKDAYS:
        ahead = (_WEEKDAYS.index(words) - today.weekday()) % 7
        if past:
            return today - timedelta(days=(7 - ahead) % 7 or 7)
        return today + timedelta(days=ahead or 7)
    found = _DATE.fullmatch(words)
    try:
        return datetime(*(int(found[part]) for part in (1, 2, 3))) if found else None  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError:
        return None
