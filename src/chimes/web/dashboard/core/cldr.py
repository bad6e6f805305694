"""Names and formats of the Unicode CLDR for the languages of the dashboard.

The data are in `cldr.json`, which `tools/cldr.py` writes from those of Babel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from importlib.resources import files
from typing import Any

_FIELD = re.compile(r"'([^']*)'|(y+|M+|d+|E+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Locale:
    #: 0 is Monday.
    first_week_day: int
    #: By width, `abbreviated` or `wide`; from Monday.
    days: Mapping[str, list[str]]
    #: By use and width, such as `stand-alone abbreviated`; from January.
    months: Mapping[str, list[str]]
    #: By code of ISO 3166.
    territories: Mapping[str, str]
    #: By time zone; only those whose name differs from that of the zone.
    cities: Mapping[str, str]

    def format_date(self, day: date, pattern: str) -> str:
        """`pattern` has fields of CLDR: `y`, `M`, `MMM`, `MMMM`, `d`, `EEE`, `EEEE`, and quoted
        texts."""

        def fill(found: re.Match[str]) -> str:
            match found[2]:
                case None:
                    return found[1]
                case "y":
                    return str(day.year)
                case "M":
                    return str(day.month)
                case "MMM":
                    return self.months["format abbreviated"][day.month - 1]
                case "MMMM":
                    return self.months["format wide"][day.month - 1]
                case "d":
                    return str(day.day)
                case "EEE":
                    return self.days["abbreviated"][day.weekday()]
                case "EEEE":
                    return self.days["wide"][day.weekday()]
            raise ValueError(f"unknown field {found[2]!r} of a date")

        return _FIELD.sub(fill, pattern)


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        files("chimes.web.dashboard.core").joinpath("cldr.json").read_text(encoding="utf-8")
    )
    return found


@cache
def locale_of(language: str) -> Locale:
    return Locale(**_data()["languages"][language])


def zone_territories() -> Mapping[str, str]:
    """The country of each time zone."""
    found: Mapping[str, str] = _data()["zone_territories"]
    return found


# All three languages group digits by commas and have a decimal point.
def format_decimal(value: float, places: int = 3) -> str:
    """`1,234.5`, with at most so many decimal places."""
    exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    text = f"{exact:,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def format_percent(share: float, places: int = 0) -> str:
    return f"{format_decimal(float(Decimal(str(share)) * 100), places)}%"
