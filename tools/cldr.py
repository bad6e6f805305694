"""Writes cldr.json of the dashboard: the names of days, months, countries and cities in
its languages, from the CLDR data of Babel. Run it after an update of Babel.

Babel itself is not a dependency: its data of 1,000 locales take a quarter of the installed size.
"""

from __future__ import annotations

import json
from pathlib import Path

from babel import Locale
from babel.core import get_global

from chimes.web.dashboard.core.times import LOCALES

TARGET = Path(__file__).parents[1] / "src/chimes/web/dashboard/core/cldr.json"


def collect() -> dict[str, object]:
    zones: dict[str, str] = dict(sorted(get_global("zone_territories").items()))
    codes = sorted(set(zones.values()))
    languages = {}
    for language, name in LOCALES.items():
        locale = Locale.parse(name)
        languages[language] = {
            "first_week_day": locale.first_week_day,
            "days": {
                width: [str(locale.days["format"][width][day]) for day in range(7)]
                for width in ("abbreviated", "wide")
            },
            "months": {
                f"{use} {width}": [str(locale.months[use][width][month]) for month in range(1, 13)]
                for use in ("format", "stand-alone")
                for width in ("abbreviated", "wide")
            },
            "territories": {
                code: str(locale.territories[code]) for code in codes if code in locale.territories
            },
            "cities": {
                zone: str(found["city"])
                for zone, found in sorted(locale.time_zones.items())
                if "city" in found and zone in zones
            },
        }
    return {"zone_territories": zones, "languages": languages}


def text() -> str:
    return json.dumps(collect(), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
