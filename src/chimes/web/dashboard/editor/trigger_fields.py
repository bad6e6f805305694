"""The section "when" of the wizard: a trigger as the API reads it, to fields of a form and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from babel.core import get_global

from chimes.errors import InvalidInput
from chimes.i18n import LANGUAGES, _
from chimes.triggers import (
    format_duration_iso,
    format_moment,
    parse_duration,
    parse_moment,
    trigger_from_dict,
)
from chimes.web.dashboard.core.times import locale_of, zone_info

# @@ What a schedule leaves out, as the wizard's form has it: holidays of a country, dates, hours
# of the week. The calendars themselves are those of the triggers (UX A.4, TIME "Bounds").

MOST_EXCLUSIONS = 16
#: The fields of one row.
PARTS = ("kind", "value", "days", "from", "to", "then")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_Fields = dict[str, str]
_Plain = dict[str, object]


# --- countries -----------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _codes() -> tuple[str, ...]:
    """Countries with a clock of their own: each of them has holidays (tests/web/dashboard hold this
    against the package, which takes a second to load)."""
    known = {code for code in get_global("zone_territories").values() if code.isalpha()}
    return tuple(sorted(known - {"ZZ"}))


@lru_cache(maxsize=len(LANGUAGES))
def countries(language: str) -> tuple[tuple[str, str], ...]:
    """Codes and names, by their names."""
    names = locale_of(language).territories
    return tuple(
        sorted(((code, str(names.get(code, code))) for code in _codes()), key=lambda each: each[1])
    )


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, str]:
    return {name.casefold(): code for lang in LANGUAGES for code, name in countries(lang)}


def country_code(text: str) -> str:
    """`TH` for Thailand, ไทย or 泰国; what is no name of a country is left as it is: it may be a
    code with a part of the country (`US-CA`), or the error is told by whoever reads it."""
    found = _by_name().get(text.strip().casefold())
    if found is not None:
        return found
    country, dash, part = text.strip().partition("-")
    return f"{country.upper()}{dash}{part.upper()}" if len(country) == 2 else text.strip()


# --- from a calendar to fields -------------------------------------------------------------------
def exclusion_fields(place: int, calendar: object) -> _Fields:
    if not isinstance(calendar, Mapping):
        return {}
    found = {"then": str(calendar.get("on_excluded", "skip"))}
    if "holidays" in calendar:
        found |= {"kind": "holidays", "value": str(calendar["holidays"])}
    elif "weekly" in calendar:
        found |= {"kind": "weekly"} | _window_fields(calendar["weekly"])
    else:
        found |= {"kind": "dates", "value": ", ".join(calendar["dates"])}
    return {f"ex{place}_{name}": value for name, value in found.items()}


def _window_fields(windows: list[Mapping[str, object]]) -> _Fields:
    """One window has fields of its own; several are a text."""
    if len(windows) != 1:
        return {"value": "; ".join(_window_text(each) for each in windows)}
    (window,) = windows
    return {"days": _days_of(window), "from": str(window["from"]), "to": str(window["to"])}


def _window_text(window: Mapping[str, object]) -> str:
    return f"{_days_of(window)} {window['from']}-{window['to']}"


def _days_of(window: Mapping[str, object]) -> str:
    days = window["days"]
    return ",".join(str(each) for each in days) if isinstance(days, list) else str(days)


# --- from fields to calendars --------------------------------------------------------------------
def is_filled(fields: Mapping[str, str], place: int) -> bool:
    kind = fields.get(f"ex{place}_kind", "")
    own = kind == "weekly" and bool(fields.get(f"ex{place}_days"))
    return bool(kind) and (own or bool(fields.get(f"ex{place}_value")))


def exclusions(fields: Mapping[str, str]) -> list[_Plain]:
    """InvalidInput, by the name of the field, for hours that cannot be read."""
    return [
        _exclusion(fields, place)
        for place in range(MOST_EXCLUSIONS + 1)
        if is_filled(fields, place)
    ]


def _exclusion(fields: Mapping[str, str], place: int) -> _Plain:
    value = fields.get(f"ex{place}_value", "").strip()
    found: _Plain
    match fields[f"ex{place}_kind"]:
        case "holidays":
            found = {"holidays": country_code(value)}
        case "weekly" if fields.get(f"ex{place}_days"):
            found = {
                "weekly": [
                    {
                        "days": fields[f"ex{place}_days"].split(","),
                        "from": fields.get(f"ex{place}_from") or "00:00",
                        # A field for times knows no 24:00, and nothing ends as its day begins.
                        "to": _end(fields.get(f"ex{place}_to", "")),
                    }
                ]
            }
        case "weekly":
            windows = [_window(each, place) for each in value.split(";") if each.strip()]
            found = {"weekly": windows}
        case _:
            found = {"dates": value.replace(",", " ").split()}
    then = fields.get(f"ex{place}_then", "skip") or "skip"
    return found if then == "skip" else {**found, "on_excluded": then}


def _end(text: str) -> str:
    return "24:00" if text in ("", "00:00") else text


def _window(text: str, place: int) -> _Plain:
    days, _unused, span = text.strip().partition(" ")
    start, dash, end = span.partition("-")
    if not dash:
        raise InvalidInput(
            _("Write weekdays and a span of time."), field=f"ex{place}_value", code="bad_calendar"
        )
    return {"days": _days(days), "from": start.strip(), "to": end.strip()}


def _days(text: str) -> list[str]:
    """`MON-FRI` is a run of days; anything else is left to whoever reads the trigger."""
    found: list[str] = []
    for each in text.upper().split(","):
        first, dash, last = each.partition("-")
        if dash and first in _WEEKDAYS and last in _WEEKDAYS:
            start, end = _WEEKDAYS.index(first), _WEEKDAYS.index(last)
            count = (end - start) % 7 + 1
            found += [_WEEKDAYS[(start + step) % 7] for step in range(count)]
        else:
            found.append(each)
    return found


Fields = dict[str, str]
Plain = dict[str, object]

#: Largest first: an interval is shown in the largest unit that it is a whole number of.
UNITS: Mapping[str, timedelta] = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
COMMON_CRONS = (
    "*/15 * * * *",
    "0 * * * *",
    "0 9 * * *",
    "0 9 * * 1-5",
    "0 8 * * 1",
    "0 0 1 * *",
    "0 18 L * *",
)
_SIMPLE = re.compile(
    r"(?P<minute>[0-9]{1,2}) (?P<hour>[0-9]{1,2})"
    r" (?P<date>\*|LW?|[0-9]{1,2}(?:,[0-9]{1,2})*) \*"
    r" (?P<days>\*|1-5|[0-6](?:,[0-6])*|[0-6](?:#[1-4]|L))"
)
#: By date and weekdays.
_SIMPLE_RULES = {
    ("*", "*"): "daily",
    ("*", "1-5"): "weekdays",
    ("L", "*"): "last",
    ("LW", "*"): "last_working",
}
#: What is asked of somebody who has not said anything yet.
EMPTY: Mapping[str, str] = {
    "when": "days",
    "rule": "weekdays",
    "rule_time": "09:00",
    "rule_days": "1",
    "rule_date": "1",
    "rule_nth": "1",
    "rule_weekday": "1",
    "every": "15",
    "unit": "min",
}


# --- from a trigger to fields ------------------------------------------------------------------
def trigger_fields(trigger: Plain, home: str) -> Fields:
    """`home` is the zone for the moments of an interval, which has none of its own."""
    kind = str(trigger["kind"])
    zone = str(trigger.get("timezone") or (home if kind == "every" else "UTC"))
    # It was chosen, whatever else its name could mean.
    found: Fields = {**EMPTY, "when": kind, "zone": zone, "zone_sure": zone}
    match kind:
        case "once":
            found["at"] = local_text(_once_instant(trigger), zone)
        case "every":
            found |= interval_fields(parse_duration(str(trigger["every"])))
        case _:
            found["expression"] = str(trigger["expression"])
            found["dialect"] = str(trigger.get("dialect", ""))
            found["dst"] = str(trigger.get("dst", ""))
            if not found["dialect"] and not found["dst"]:
                found |= rule_fields(found["expression"])
    if "anchor" in trigger:
        found["anchor"] = local_text(parse_moment(str(trigger["anchor"])), zone)
    if "jitter" in trigger:
        found["jitter"] = short_duration(str(trigger["jitter"]))
    for name, key in (("start", "start_at"), ("end", "end_at")):
        if key in trigger:
            found[name] = local_text(parse_moment(str(trigger[key])), zone)
    if "max_runs" in trigger:
        found["max_runs"] = str(trigger["max_runs"])
    left_out = trigger.get("exclude")
    for place, each in enumerate(left_out if isinstance(left_out, list) else []):
        found |= exclusion_fields(place, each)
    return found


def interval_fields(every: timedelta) -> Fields:
    for unit, size in UNITS.items():
        if every % size == timedelta(0):
            return {"every": str(every // size), "unit": unit}
    seconds = Decimal(every // timedelta(microseconds=1)) / 1_000_000
    return {"every": f"{seconds.normalize():f}", "unit": "s"}


def local_text(moment: datetime, zone: str) -> str:
    """As a date field has it; with its offset where the wall clock alone would not tell (the second
    of two equal hours)."""
    local = moment.astimezone(zone_info(zone)).replace(tzinfo=None)
    text = local.isoformat(timespec="seconds" if not local.microsecond else "microseconds")
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text if parse_moment(text, zone) == moment else format_moment(moment)


def short_duration(text: str) -> str:
    """As people write it: `1h30m`, `45s`, not `PT1H30M`. Zero and fractions stay as they are."""
    length = parse_duration(text, allow_zero=True)
    if not length or length % UNITS["s"]:
        return text
    minutes, seconds = divmod(length // UNITS["s"], 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _once_instant(trigger: Plain) -> datetime:
    found = trigger_from_dict(
        {key: trigger[key] for key in ("kind", "at", "timezone") if key in trigger}
    )
    instant: datetime | None = getattr(found, "instant", None)
    assert instant is not None
    return instant


# --- from fields to a trigger ------------------------------------------------------------------
def trigger_plain(fields: Mapping[str, str], now: datetime) -> Plain:
    """As the API reads it. InvalidInput, by the name of the field, for what cannot be a trigger at
    all; what can be one is judged by whoever reads it."""
    kind, zone = fields.get("when", ""), fields.get("zone", "")
    found: Plain
    match kind:
        case "once":
            found = {"kind": "once", "at": _at(fields, now)}
        case "every":
            found = {"kind": "every", "every": _every(fields)}
        case "days":
            found = {"kind": "cron", "expression": rule_expression(fields)}
        case "cron":
            found = {"kind": "cron", "expression": fields.get("expression", "")}
            found |= {key: fields[key] for key in ("dialect", "dst") if fields.get(key)}
        case _:
            raise InvalidInput(_("Choose when it runs."), field="when", code="missing")
    if kind != "every" and zone:
        found["timezone"] = zone
    if fields.get("anchor") and (kind == "every" or _is_interval(fields)):
        found["anchor"] = _moment(fields["anchor"], zone, "anchor")
    if fields.get("jitter") and kind == "every":
        found["jitter"] = fields["jitter"]
    for name, key in (("start", "start_at"), ("end", "end_at")):
        if fields.get(name):
            found[key] = _moment(fields[name], zone, name)
    if fields.get("max_runs"):
        found["max_runs"] = whole(fields, "max_runs")
    left_out = exclusions(fields)
    return found | ({"exclude": left_out} if left_out else {})


def rule_expression(fields: Mapping[str, str]) -> str:
    """The cron expression of a rule for days: every day, some weekdays, a date, the second Tuesday,
    the last one."""
    hour, _unused, minute = fields.get("rule_time", "").partition(":")
    if not (hour.isdigit() and minute[:2].isdigit()):
        raise InvalidInput(_("At what time?"), field="rule_time", code="missing")
    clock = f"{int(minute[:2])} {int(hour)}"
    match fields.get("rule", ""):
        case "weekdays":
            return f"{clock} * * 1-5"
        case "weekly":
            days = ",".join(each for each in fields.get("rule_days", "").split(",") if each)
            if not days:
                raise InvalidInput(_("On which days?"), field="rule_days", code="missing")
            return f"{clock} * * {days}"
        case "monthly":
            return f"{clock} {fields.get('rule_date') or 1} * *"
        case "nth":
            weekday, nth = fields.get("rule_weekday") or 1, fields.get("rule_nth") or 1
            return f"{clock} * * {weekday}L" if nth == "last" else f"{clock} * * {weekday}#{nth}"
        case "last":
            return f"{clock} L * *"
        case "last_working":
            return f"{clock} LW * *"
        case _:
            return f"{clock} * * *"


def rule_fields(expression: str) -> Fields:
    """The rule for days that says the same, for people who do not read cron; empty: there is none.
    Only one that is written back exactly as it was."""
    parts = _SIMPLE.fullmatch(expression)
    if parts is None or int(parts["minute"]) > 59 or int(parts["hour"]) > 23:
        return {}
    date, days = parts["date"], parts["days"]
    found = {"when": "days", "rule_time": f"{int(parts['hour']):02}:{int(parts['minute']):02}"}
    if (date, days) in _SIMPLE_RULES:
        found["rule"] = _SIMPLE_RULES[date, days]
    elif date == "*" and days[1:2] in ("#", "L"):
        nth = days[2:] or "last"
        found |= {"rule": "nth", "rule_weekday": days[0], "rule_nth": nth}
    elif date == "*":
        found |= {"rule": "weekly", "rule_days": days}
    else:
        found |= {"rule": "monthly", "rule_date": date}
    return found if rule_expression(found) == expression else {}


def whole(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "").strip()
    if not text.lstrip("-").isdigit() or len(text) > 18:
        raise InvalidInput(_("Write a whole number."), field=name, code="not_a_number")
    return int(text)


def _at(fields: Mapping[str, str], now: datetime) -> str:
    if ahead := fields.get("in", ""):
        later = now + parse_duration(ahead.replace(" ", ""), field="in")
        return format_moment(later.replace(microsecond=0))
    if not fields.get("at"):
        raise InvalidInput(_("On which day, and at what time?"), field="at", code="missing")
    return fields["at"]


def _every(fields: Mapping[str, str]) -> str:
    try:
        count = Decimal(fields.get("every", "").strip())
        size = UNITS[fields.get("unit", "min")]
        micro = count * (size // timedelta(microseconds=1))
        if not micro.is_finite() or micro <= 0 or micro > 10**18:
            raise ValueError
    except (InvalidOperation, ValueError, KeyError):
        raise InvalidInput(
            _("Write how many, as a number."), field="every", code="not_a_number"
        ) from None
    return format_duration_iso(timedelta(microseconds=int(micro)))


def _is_interval(fields: Mapping[str, str]) -> bool:
    return fields.get("when") == "cron" and "@every" in fields.get("expression", "")


def _moment(text: str, zone: str, field: str) -> str:
    return format_moment(parse_moment(text, zone or "UTC", field=field))
