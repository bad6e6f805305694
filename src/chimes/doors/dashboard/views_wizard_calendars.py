"""What a schedule leaves out, as the wizard's form has it: holidays of a country, dates, hours of
the week. The calendars themselves are those of the triggers (UX A.4, TIME "Bounds")."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from babel.core import get_global

from chimes.doors.dashboard.times import locale_of
from chimes.errors import InvalidInput
from chimes.wording import LANGUAGES, say

MOST_EXCLUSIONS = 16
#: The fields of one row.
PARTS = ("kind", "value", "days", "from", "to", "then")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_Fields = dict[str, str]
_Plain = dict[str, object]


# --- countries -----------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _codes() -> tuple[str, ...]:
    """Countries with a clock of their own: each of them has holidays (tests/dashboard hold this
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
    days, _, span = text.strip().partition(" ")
    start, dash, end = span.partition("-")
    if not dash:
        raise InvalidInput(
            say("Write weekdays and a span of time."), field=f"ex{place}_value", code="bad_calendar"
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
