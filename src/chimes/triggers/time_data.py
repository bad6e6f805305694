"""Time-zone and holiday data: their versions, records of them, and triggers as an earlier version
computed them.

A record has the clock changes of a zone, or the holidays of a country, of the coming years. With it
the fires of a trigger can be computed as they were before an update of the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct

from chimes.triggers import Trigger
from chimes.triggers.calendars import RECORDED_HOLIDAYS, holiday_days, is_country
from chimes.triggers.zones import RECORDED_ZONES, UTC_NAME, Zone, parse_zone, zone_names

#: How far records reach.
RECORDED_YEARS = 3
_CODE = re.compile(r"[A-Z]{2}(-[A-Z0-9]+)?")


class ZoneRecord(Struct, frozen=True, kw_only=True):
    """The offset at the time of the record, and the changes after it: second and new offset."""

    offset: int
    changes: tuple[tuple[int, int], ...] = ()


@lru_cache(maxsize=1)
def data_versions() -> tuple[str, str]:
    """The versions of tzdata and holidays; empty if a package is missing."""
    return _version("tzdata"), _version("holidays")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def version_number(text: str) -> tuple[int, ...]:
    """For comparisons: 2026.10 is newer than 2026.9."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", text))


def record_zone(name: str, since: datetime, until: datetime) -> ZoneRecord:
    """What the present data say about this zone."""
    first, last = int(since.timestamp()), int(until.timestamp())
    zone = parse_zone(name)
    table = zone.table(first)
    return ZoneRecord(
        offset=zone.offset_at(first),
        changes=tuple(
            (each.start, each.offset) for each in table.segments if first < each.start <= last
        ),
    )


def from_then_on(record: ZoneRecord, since: datetime, until: datetime) -> ZoneRecord:
    """The part of a record in this period, to compare it with another."""
    first, last = int(since.timestamp()), int(until.timestamp())
    offset = record.offset
    for at, after in record.changes:
        if at <= first:
            offset = after
    return ZoneRecord(
        offset=offset,
        changes=tuple(each for each in record.changes if first < each[0] <= last),
    )


def record_holidays(code: str, since: datetime) -> tuple[int, ...]:
    """The holidays of the recorded years, as days since 1970."""
    days: set[int] = set()
    for year in recorded_years(since):
        days |= holiday_days(code, year)
    return tuple(sorted(days))


def recorded_years(since: datetime) -> range:
    return range(since.year, since.year + RECORDED_YEARS)


def recorded_until(since: datetime) -> datetime:
    """The end of the last recorded year."""
    return datetime(since.year + RECORDED_YEARS, 1, 1, tzinfo=UTC) - timedelta(seconds=1)


def used_data(trigger: Trigger) -> tuple[frozenset[str], frozenset[str]]:
    """The zones and the countries whose data its fires depend on, also of triggers within it."""
    zones, codes = {trigger.zone}, set[str]()
    _collect(trigger.to_dict(), zones, codes)
    return frozenset(zones & zone_names() - {UTC_NAME}), frozenset(codes)


def _collect(value: object, zones: set[str], codes: set[str]) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "timezone" and isinstance(each, str):
                zones.add(each)
            elif name in ("holidays", "calendar") and isinstance(each, str):
                # A shared calendar may have such a name, too.
                if _CODE.fullmatch(each) and is_country(each):
                    codes.add(each)
            else:
                _collect(each, zones, codes)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _collect(each, zones, codes)


@contextmanager
def recorded_data(
    zones: Mapping[str, ZoneRecord], holidays: Mapping[str, tuple[int, ...]], since: datetime
) -> Iterator[None]:
    """Within it, triggers that are built and searched use these records instead of the present
    data. `since`: when the holidays were recorded."""
    years = recorded_years(since)
    starts = {
        year: (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).days for year in (*years, years.stop)
    }
    days = {
        (code, year): frozenset(day for day in found if starts[year] <= day < starts[year + 1])
        for code, found in holidays.items()
        for year in years
    }
    zone_token = RECORDED_ZONES.set({name: _zone(name, each) for name, each in zones.items()})
    holiday_token = RECORDED_HOLIDAYS.set(days)
    try:
        yield
    finally:
        RECORDED_HOLIDAYS.reset(holiday_token)
        RECORDED_ZONES.reset(zone_token)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _zone(name: str, record: ZoneRecord) -> Zone:
    return Zone.of_changes(
        name,
        [at for at, _after in record.changes],
        [record.offset, *(o for _at, o in record.changes)],
    )
