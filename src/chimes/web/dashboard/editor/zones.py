"""Time zone search by city, country, offset or abbreviation, in three languages.

Names come from CLDR (Babel), rules from the pinned tzdata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from chimes.i18n import LANGUAGES, _
from chimes.language import short_weekday
from chimes.triggers import zone_names
from chimes.web.dashboard.core.cldr import locale_of, zone_territories
from chimes.web.dashboard.core.times import zone_info

#: Abbreviations; some stand for several zones.
_ABBREVIATIONS: Mapping[str, tuple[str, ...]] = {
    "bkk": ("Asia/Bangkok",),
    "ict": ("Asia/Bangkok", "Asia/Ho_Chi_Minh"),
    "est": ("America/New_York", "EST"),
    "edt": ("America/New_York",),
    "et": ("America/New_York",),
    "cst": ("America/Chicago", "Asia/Shanghai"),
    "cdt": ("America/Chicago",),
    "mst": ("America/Denver", "MST"),
    "mdt": ("America/Denver",),
    "pst": ("America/Los_Angeles", "Asia/Manila"),
    "pdt": ("America/Los_Angeles",),
    "gmt": ("UTC", "Europe/London"),
    "bst": ("Europe/London",),
    "cet": ("Europe/Berlin", "Europe/Paris"),
    "cest": ("Europe/Berlin", "Europe/Paris"),
    "eet": ("Europe/Athens",),
    "msk": ("Europe/Moscow",),
    "ist": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "sgt": ("Asia/Singapore",),
    "hkt": ("Asia/Hong_Kong",),
    "jst": ("Asia/Tokyo",),
    "kst": ("Asia/Seoul",),
    "wib": ("Asia/Jakarta",),
    "aest": ("Australia/Sydney",),
    "aedt": ("Australia/Sydney",),
    "nzst": ("Pacific/Auckland",),
    "z": ("UTC",),
    "utc": ("UTC",),
}
#: Additional search terms: cities without a zone of their own.
_EXTRA_CITIES: Mapping[str, tuple[str, ...]] = {
    "Asia/Shanghai": ("beijing", "peking", "ปักกิ่ง", "北京"),
    "Asia/Bangkok": ("กรุงเทพฯ", "กรุงเทพมหานคร", "เชียงใหม่"),
    "Asia/Kolkata": ("delhi", "mumbai", "bangalore", "เดลี", "มุมไบ", "新德里", "孟买"),
    "America/Los_Angeles": ("seattle", "ซานฟรานซิสโก", "旧金山"),
    "America/New_York": ("boston", "washington", "วอชิงตัน", "华盛顿"),
    "Europe/Berlin": ("munich", "frankfurt", "hamburg", "มิวนิก", "慕尼黑", "法兰克福"),
    "Asia/Ho_Chi_Minh": ("saigon", "hanoi", "ไซ่ง่อน", "ฮานอย", "河内"),
    "Australia/Sydney": ("canberra",),
}
#: IANA names of fixed offsets that users usually write for a zone with daylight saving time.
_FIXED_OFFSET_NAMES: Mapping[str, tuple[str, str]] = {
    "est": ("America/New_York", "UTC-5"),
    "mst": ("America/Denver", "UTC-7"),
}
_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])\s*([0-9]{1,2})(?::?([0-9]{2}))?")
_MAX_CHOICES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneChoice:
    name: str
    #: City and country in the language of the viewer.
    place: str
    #: Current offset, such as `UTC+7`.
    offset: str
    #: Current local time, such as `10:24`.
    clock: str
    #: Current local weekday, such as `Mon`.
    weekday: str
    #: Whether the offset changes within a year.
    has_dst: bool
    #: The viewer's zone; a zone that schedules use.
    mine: bool = False
    recent: bool = False
    #: The default of the instance.
    default: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownZones:
    """Zones that are listed first."""

    mine: str = ""
    default: str = ""
    #: Zones of existing schedules, most frequent first.
    recent: Sequence[str] = ()

    def first(self) -> list[str]:
        return [*dict.fromkeys(each for each in (self.mine, *self.recent, self.default) if each)]


NO_KNOWN_ZONES = KnownZones()
_MAX_RECENT = 4
_MAX_CLOCKS = 6


def recent_zones(zones: Iterable[str]) -> tuple[str, ...]:
    known = zone_names()
    counted = Counter(each for each in zones if each in known)
    return tuple(name for name, _count in counted.most_common(_MAX_RECENT))


@lru_cache(maxsize=1)
def _territories() -> Mapping[str, str]:
    """Returns the canonical zones with their country; links and historic names are left out."""
    known = zone_names()
    return {name: code for name, code in zone_territories().items() if name in known} | {"UTC": ""}


@lru_cache(maxsize=2000)
def _place(name: str, language: str) -> tuple[str, str]:
    """Returns city and country in a language."""
    locale = locale_of(language)
    code = _territories().get(name, "")
    city = name.rpartition("/")[2].replace("_", " ")
    return locale.cities.get(name, city), locale.territories.get(code, "")


@lru_cache(maxsize=1)
def _index() -> Mapping[str, str]:
    """Returns the case-folded search terms of each zone."""
    found = {}
    for name, code in _territories().items():
        words = [name, name.replace("_", " "), code, *_EXTRA_CITIES.get(name, ())]
        for language in LANGUAGES:
            words += _place(name, language)
        found[name] = " ".join(words).casefold()
    return found


def choice(
    name: str, language: str, now: datetime, known: KnownZones = NO_KNOWN_ZONES
) -> ZoneChoice:
    city, country = _place(name, language)
    local = now.astimezone(zone_info(name))
    return ZoneChoice(
        name=name,
        place=f"{city}, {country}" if country else city,
        offset=_offset_text(local),
        clock=f"{local:%H:%M}",
        weekday=short_weekday(local, language),
        has_dst=_has_dst(name, now),
        mine=name == known.mine,
        recent=name in known.recent,
        default=name == known.default,
    )


def world_clock(
    zone: str, language: str, now: datetime, known: KnownZones
) -> tuple[ZoneChoice, ...]:
    """Returns the current time in the schedule's zone, the viewer's zone and others."""
    names = [each for each in (zone, *known.first(), "UTC") if each in zone_names()]
    return tuple(
        choice(name, language, now, known) for name in [*dict.fromkeys(names)][:_MAX_CLOCKS]
    )


def search_zones(
    text: str, language: str, now: datetime, known: KnownZones = NO_KNOWN_ZONES
) -> tuple[ZoneChoice, ...]:
    """Returns the zones that match a text, best match first; without a text, the known zones."""
    wanted = " ".join(text.casefold().split())
    if not wanted:
        names: Sequence[str] = [*dict.fromkeys((*known.first(), "UTC"))]
    else:
        first = known.first()
        names = sorted(
            _matching(wanted, now),
            key=lambda name: first.index(name) if name in first else len(first),
        )[:_MAX_CHOICES]
    return tuple(choice(name, language, now, known) for name in names)


def unique_zone(text: str, now: datetime, sure: str = "") -> str | None:
    """Returns the only zone that a text can mean; None if there are none or several.

    `sure` is a name that the user has already confirmed."""
    wanted = " ".join(text.casefold().split())
    if text in zone_names() and (text == sure or wanted not in _FIXED_OFFSET_NAMES):
        return text
    found = _matching(wanted, now, strict=True)
    return found[0] if len(found) == 1 else None


def _matching(wanted: str, now: datetime, *, strict: bool = False) -> list[str]:
    if wanted in _ABBREVIATIONS:
        return list(_ABBREVIATIONS[wanted])
    if offset := _OFFSET.fullmatch(wanted):
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        shift = timedelta(minutes=-minutes if offset[1] == "-" else minutes)
        return _common_first(
            name for name in _territories() if now.astimezone(zone_info(name)).utcoffset() == shift
        )
    index = _index()
    exact = [name for name in index if name.casefold() == wanted or _is_place(name, wanted)]
    if exact or strict:
        others = [] if strict else [n for n in index if n not in exact and wanted in index[n]]
        return [*exact, *others]
    starts = _common_first(name for name, words in index.items() if f" {wanted}" in f" {words}")
    return starts or _common_first(name for name, words in index.items() if wanted in words)


def _common_first(names: Iterable[str]) -> list[str]:
    """Sorts common zones first: those with abbreviations or additional search terms."""
    common = {*_EXTRA_CITIES, *(name for found in _ABBREVIATIONS.values() for name in found)}
    return sorted(names, key=lambda name: name not in common)


def _is_place(name: str, wanted: str) -> bool:
    if wanted in _EXTRA_CITIES.get(name, ()):
        return True
    return any(
        wanted == part.casefold() for language in LANGUAGES for part in _place(name, language)
    )


def _offset_text(local: datetime) -> str:
    shift = local.utcoffset() or timedelta(0)
    minutes = int(abs(shift).total_seconds()) // 60
    sign = "-" if shift < timedelta(0) else "+"
    rest = f":{minutes % 60:02d}" if minutes % 60 else ""
    return f"UTC{sign}{minutes // 60}{rest}"


def _has_dst(name: str, now: datetime) -> bool:
    zone = zone_info(name)
    shifts = {
        (now + timedelta(days=30 * month)).astimezone(zone).utcoffset() for month in range(12)
    }
    return len(shifts) > 1


def zone_error(text: str, found: Sequence[ZoneChoice]) -> str:
    """Returns the message for a text that is not exactly one zone."""
    if not found:
        return _("Unknown time zone {text!r}.", text=text[:64])
    if fixed := _FIXED_OFFSET_NAMES.get(text.strip().casefold()):
        return _(
            "{text!r} is ambiguous: {zone} (with daylight saving time) or {offset} all year?",
            text=text[:64],
            zone=fixed[0],
            offset=fixed[1],
        )
    return _("{text!r} matches several time zones. Choose one.", text=text[:64])
