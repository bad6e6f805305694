"""Converts triggers of the API to editor form fields and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from chimes.errors import InvalidInput
from chimes.i18n import LANGUAGES, _
from chimes.triggers import (
    format_duration_iso,
    format_moment,
    parse_duration,
    parse_moment,
    trigger_from_dict,
)
from chimes.web.dashboard.core.cldr import locale_of, zone_territories
from chimes.web.dashboard.core.times import zone_info

Fields = dict[str, str]
JsonObject = dict[str, object]

MAX_EXCLUSIONS = 16
#: Fields of an exclusion row.
PARTS = ("kind", "value", "days", "from", "to", "then")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


# --- countries -----------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _codes() -> tuple[str, ...]:
    """Returns the countries that have a time zone. A test checks that each of them has holidays:
    importing the holidays package here would take a second."""
    known = {code for code in zone_territories().values() if code.isalpha()}
    return tuple(sorted(known - {"ZZ"}))


@lru_cache(maxsize=len(LANGUAGES))
def countries(language: str) -> tuple[tuple[str, str], ...]:
    """Returns codes and names, sorted by name."""
    names = locale_of(language).territories
    return tuple(
        sorted(((code, names.get(code, code)) for code in _codes()), key=lambda each: each[1])
    )


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, str]:
    return {name.casefold(): code for lang in LANGUAGES for code, name in countries(lang)}


def country_code(text: str) -> str:
    """Returns `TH` for Thailand, ไทย or 泰国.

    Other text is returned as a code (`US-CA`); the calendar parser reports unknown codes."""
    found = _by_name().get(text.strip().casefold())
    if found is not None:
        return found
    country, dash, part = text.strip().partition("-")
    return f"{country.upper()}{dash}{part.upper()}" if len(country) == 2 else text.strip()


# --- from a calendar to fields -------------------------------------------------------------------
def exclusion_fields(place: int, calendar: object) -> Fields:
    if not isinstance(calendar, Mapping):
        return {}
    found = {"then": str(calendar.get("on_excluded", "skip"))}
    if "holidays" in calendar:
        found |= {"kind": "holidays", "value": str(calendar["holidays"])}
    elif "weekly" in calendar:
        found |= {"kind": "weekly"} | _window_fields(calendar["weekly"])
    elif "calendar" in calendar:
        found |= {"kind": "calendar", "value": str(calendar["calendar"])}
    elif "ranges" in calendar:
        pairs = ", ".join("/".join(each) for each in calendar["ranges"])
        found |= {"kind": "ranges", "value": pairs}
    else:
        found |= {"kind": "dates", "value": ", ".join(calendar["dates"])}
    return {f"ex{place}_{name}": value for name, value in found.items()}


def _window_fields(windows: list[Mapping[str, object]]) -> Fields:
    """Returns fields for a single window; several windows become text."""
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


def exclusions(fields: Mapping[str, str]) -> list[JsonObject]:
    """Raises InvalidInput with the name of the form field for invalid time windows."""
    return [
        _exclusion(fields, place) for place in range(MAX_EXCLUSIONS + 1) if is_filled(fields, place)
    ]


def _exclusion(fields: Mapping[str, str], place: int) -> JsonObject:
    value = fields.get(f"ex{place}_value", "").strip()
    found: JsonObject
    match fields[f"ex{place}_kind"]:
        case "holidays":
            found = {"holidays": country_code(value)}
        case "weekly" if fields.get(f"ex{place}_days"):
            found = {
                "weekly": [
                    {
                        "days": fields[f"ex{place}_days"].split(","),
                        "from": fields.get(f"ex{place}_from") or "00:00",
                        # A time input cannot express 24:00, so 00:00 means the end of the day.
                        "to": _end(fields.get(f"ex{place}_to", "")),
                    }
                ]
            }
        case "weekly":
            windows = [_window(each, place) for each in value.split(";") if each.strip()]
            found = {"weekly": windows}
        case "calendar":
            found = {"calendar": value}
        case "ranges":
            found = {"ranges": [each.split("/") for each in value.replace(",", " ").split()]}
        case _:
            found = {"dates": value.replace(",", " ").split()}
    then = fields.get(f"ex{place}_then", "skip") or "skip"
    return found if then == "skip" else {**found, "on_excluded": then}


def _end(text: str) -> str:
    return "24:00" if text in ("", "00:00") else text


def _window(text: str, place: int) -> JsonObject:
    days, _space, span = text.strip().partition(" ")
    start, dash, end = span.partition("-")
    if not dash:
        raise InvalidInput(
            _("Enter weekdays and a time range."), field=f"ex{place}_value", code="bad_calendar"
        )
    return {"days": _days(days), "from": start.strip(), "to": end.strip()}


def _days(text: str) -> list[str]:
    """Expands ranges such as `MON-FRI`; other values are validated by the trigger parser."""
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


#: Largest first: an interval is shown in the largest unit that divides it.
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
#: Rules by day of the month and weekday.
_SIMPLE_RULES = {
    ("*", "*"): "daily",
    ("*", "1-5"): "weekdays",
    ("L", "*"): "last",
    ("LW", "*"): "last_working",
}
#: Initial values of a new form.
DEFAULT_TRIGGER: Mapping[str, str] = {
    "when": "days",
    "rule": "weekdays",
    "rule_time": "09:00",
    "rule_days": "1",
    "rule_date": "1",
    "rule_nth": "1",
    "rule_weekday": "1",
    "every": "15",
    "unit": "min",
    "event": "webhook",
    "hook_scheme": "none",
}
#: Form fields of an event trigger, by kind and key of its JSON.
EVENT_FIELDS: Mapping[str, Mapping[str, str]] = {
    "webhook": {"scheme": "hook_scheme", "secret": "hook_secret"},
    "run_end": {"schedule": "source_schedule", "status": "source_status"},
    "file": {"path": "path"},
    "sql": {"connection": "connection", "query": "query", "interval": "interval"},
}
#: Kinds that are edited as JSON.
JSON_KINDS = ("any", "rrule", "business_day", "sun")
_PACE_FIELDS = ("debounce", "throttle")
#: Of all kinds.
EVENT_NAMES = (
    "event",
    *(name for names in EVENT_FIELDS.values() for name in names.values()),
    *_PACE_FIELDS,
    "batch_count",
    "batch_within",
)


# --- from a trigger to fields ------------------------------------------------------------------
def trigger_fields(trigger: JsonObject, home: str) -> Fields:
    """Returns the fields of a trigger. `home` is the zone for the times of an interval."""
    kind = str(trigger["kind"])
    zone = str(trigger.get("timezone") or (home if kind == "every" else "UTC"))
    # A stored zone needs no confirmation, even if its name is ambiguous.
    found: Fields = {**DEFAULT_TRIGGER, "when": kind, "zone": zone, "zone_sure": zone}
    if kind in JSON_KINDS:
        text = json.dumps(trigger, ensure_ascii=False)
        return found | {"when": "json", "trigger_json": text, "zone": home, "zone_sure": home}
    if kind in EVENT_FIELDS:
        return found | _event_fields(trigger, kind) | {"zone": home, "zone_sure": home}
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
    delays = (name for name in ("jitter", "spread") if name in trigger)
    found |= {name: short_duration(str(trigger[name])) for name in delays}
    for name, key in (("start", "start_at"), ("end", "end_at")):
        if key in trigger:
            found[name] = local_text(parse_moment(str(trigger[key])), zone)
    if "max_runs" in trigger:
        found["max_runs"] = str(trigger["max_runs"])
    excluded = trigger.get("exclude")
    for place, each in enumerate(excluded if isinstance(excluded, list) else []):
        found |= exclusion_fields(place, each)
    return found


def interval_fields(every: timedelta) -> Fields:
    for unit, size in UNITS.items():
        if every % size == timedelta(0):
            return {"every": str(every // size), "unit": unit}
    seconds = Decimal(every // timedelta(microseconds=1)) / 1_000_000
    return {"every": f"{seconds.normalize():f}", "unit": "s"}


def local_text(moment: datetime, zone: str) -> str:
    """Formats a local time for a date input; with its offset if the wall time is ambiguous."""
    local = moment.astimezone(zone_info(zone)).replace(tzinfo=None)
    text = local.isoformat(timespec="seconds" if not local.microsecond else "microseconds")
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text if parse_moment(text, zone) == moment else format_moment(moment)


def short_duration(text: str) -> str:
    """Formats a duration as `1h30m` instead of `PT1H30M`. Zero and fractions stay unchanged."""
    length = parse_duration(text, allow_zero=True)
    if not length or length % UNITS["s"]:
        return text
    minutes, seconds = divmod(length // UNITS["s"], 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _once_instant(trigger: JsonObject) -> datetime:
    found = trigger_from_dict(
        {key: trigger[key] for key in ("kind", "at", "timezone") if key in trigger}
    )
    instant: datetime | None = getattr(found, "instant", None)
    assert instant is not None
    return instant


# --- from fields to a trigger ------------------------------------------------------------------
def trigger_body(fields: Mapping[str, str], now: datetime) -> JsonObject:
    """Returns the trigger as an API body. Raises InvalidInput with the name of the form field for
    missing or malformed values; the trigger parser validates the rest."""
    kind, zone = fields.get("when", ""), fields.get("zone", "")
    found: JsonObject
    if kind == "event":
        return _event_body(fields)
    if kind == "json":
        return _json_body(fields, zone)
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
            raise InvalidInput(_("Choose when to run."), field="when", code="missing")
    if kind != "every" and zone:
        found["timezone"] = zone
    if fields.get("anchor") and (kind == "every" or _is_interval(fields)):
        found["anchor"] = _moment(fields["anchor"], zone, "anchor")
    found |= {name: fields[name] for name in ("jitter", "spread") if fields.get(name)}
    for name, key in (("start", "start_at"), ("end", "end_at")):
        if fields.get(name):
            found[key] = _moment(fields[name], zone, name)
    if fields.get("max_runs"):
        found["max_runs"] = parse_int(fields, "max_runs")
    excluded = exclusions(fields)
    return found | ({"exclude": excluded} if excluded else {})


def _json_body(fields: Mapping[str, str], zone: str) -> JsonObject:
    """The trigger as written, in the zone of the form if it names none."""
    try:
        found = json.loads(fields.get("trigger_json", ""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(
            _("Enter the trigger as a JSON object."), field="trigger_json", code="bad_json"
        )
    if zone and found.get("kind") in ("rrule", "business_day", "sun", "cron", "once"):
        return {"timezone": zone, **found}
    return found


def _event_fields(trigger: JsonObject, kind: str) -> Fields:
    found = {"when": "event", "event": kind}
    for key, name in EVENT_FIELDS[kind].items():
        value = trigger.get(key)
        if isinstance(value, list):
            found[name] = ",".join(str(each) for each in value)
        elif value is not None:
            found[name] = short_duration(str(value)) if key == "interval" else str(value)
    for name in _PACE_FIELDS:
        if name in trigger:
            found[name] = short_duration(str(trigger[name]))
    batch = trigger.get("batch")
    if isinstance(batch, Mapping):
        found["batch_count"] = str(batch["count"])
        found["batch_within"] = short_duration(str(batch["within"]))
    return found


def _event_body(fields: Mapping[str, str]) -> JsonObject:
    kind = fields.get("event", "")
    if kind not in EVENT_FIELDS:
        raise InvalidInput(_("Choose when to run."), field="event", code="missing")
    found: JsonObject = {"kind": kind}
    for key, name in EVENT_FIELDS[kind].items():
        value = fields.get(name, "").strip()
        if key == "status" and value:
            found[key] = [each.strip() for each in value.split(",") if each.strip()]
        elif value or key in ("schedule", "path", "connection", "query"):
            found[key] = value
    if found.get("scheme") == "none":
        found.pop("secret", None)
    found |= {name: fields[name].strip() for name in _PACE_FIELDS if fields.get(name, "").strip()}
    if fields.get("batch_count") or fields.get("batch_within"):
        found["batch"] = {
            "count": parse_int(fields, "batch_count"),
            "within": fields.get("batch_within", ""),
        }
    return found


def rule_expression(fields: Mapping[str, str]) -> str:
    """Returns the cron expression of a calendar rule."""
    hour, _colon, minute = fields.get("rule_time", "").partition(":")
    if not (hour.isdigit() and minute[:2].isdigit()):
        raise InvalidInput(_("Enter a time."), field="rule_time", code="missing")
    clock = f"{int(minute[:2])} {int(hour)}"
    match fields.get("rule", ""):
        case "weekdays":
            return f"{clock} * * 1-5"
        case "weekly":
            days = ",".join(each for each in fields.get("rule_days", "").split(",") if each)
            if not days:
                raise InvalidInput(_("Choose at least one day."), field="rule_days", code="missing")
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
    """Returns the calendar rule for a cron expression; empty if no rule reproduces it exactly."""
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


def parse_int(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "").strip()
    if not text.lstrip("-").isdigit() or len(text) > 18:
        raise InvalidInput(_("Enter a whole number."), field=name, code="not_a_number")
    return int(text)


def _at(fields: Mapping[str, str], now: datetime) -> str:
    if delay := fields.get("in", ""):
        later = now + parse_duration(delay.replace(" ", ""), field="in")
        return format_moment(later.replace(microsecond=0))
    if not fields.get("at"):
        raise InvalidInput(_("Enter a date and time."), field="at", code="missing")
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
            _("Enter the interval as a number."), field="every", code="not_a_number"
        ) from None
    return format_duration_iso(timedelta(microseconds=int(micro)))


def _is_interval(fields: Mapping[str, str]) -> bool:
    return fields.get("when") == "cron" and "@every" in fields.get("expression", "")


def _moment(text: str, zone: str, field: str) -> str:
    return format_moment(parse_moment(text, zone or "UTC", field=field))
