"""Cron by brute force: steps through time and checks each field against the wall clock.

Shares no code with the product. Zones come from zoneinfo with the same pinned tzdata.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
THREE_HOURS = timedelta(hours=3)


@cache
def zone_info(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


class CronOracle:
    def __init__(
        self, expression: str, zone: str = "UTC", *, dst: str = "chimes", quartz: bool = False
    ) -> None:
        parts = expression.upper().split()
        self.quartz = quartz or len(parts) == 7
        if len(parts) == 5:
            parts = ["0", *parts]
        if len(parts) == 6:
            parts.append("*")
        self.second, self.minute, self.hour, self.dom, self.month, self.dow, self.year = parts
        self.zone = zone_info(zone)
        self.step = timedelta(minutes=1) if self.second == "0" else timedelta(seconds=1)
        interval = any(sign in self.minute + self.hour for sign in "*/")
        hourly = any(sign in self.hour for sign in "*/")
        wild = self.minute.startswith("*") or self.hour.startswith("*")
        self.after_gap = {"chimes": not hourly, "vixie": not wild, "robfig": False}[dst]
        self.twice = {"chimes": interval, "vixie": wild, "robfig": True}[dst]
        self._times: dict[str, set[int]] = {}

    def fires(self, low: datetime, high: datetime) -> list[datetime]:
        """Every fire in [low, high]; low must be on a whole step."""
        found = set()
        at = low
        before = (low - self.step).astimezone(self.zone).utcoffset()
        while at <= high:
            local = at.astimezone(self.zone)
            offset = local.utcoffset()
            if offset != before:
                shift = offset - before
                if timedelta(0) < shift <= THREE_HOURS and self.after_gap:
                    lost = (at + before).replace(tzinfo=None)
                    end = (at + offset).replace(tzinfo=None)
                    while lost < end:
                        if self.matches(lost):
                            found.add(at)
                        lost += self.step
            if self.matches(local) and (self.twice or not self.is_repeat(at, local)):
                found.add(at)
            before = offset
            at += self.step
        return sorted(found)

    def is_repeat(self, at: datetime, local: datetime) -> bool:
        if local.fold == 0:
            return False
        first = local.replace(fold=0).utcoffset() - local.utcoffset()
        return first <= THREE_HOURS

    def matches(self, local: datetime) -> bool:
        return (
            local.minute in self.values("minute", self.minute, 0, 59)
            and local.hour in self.values("hour", self.hour, 0, 23)
            and local.second in self.values("second", self.second, 0, 59)
            and self.matches_day(local.date())
        )

    def values(self, label: str, text: str, low: int, high: int, names: list[str] = []) -> set[int]:  # noqa: B006
        if label not in self._times:
            self._times[label] = set().union(
                *(self.term(term, low, high, names) for term in text.split(","))
            )
        return self._times[label]

    def term(self, term: str, low: int, high: int, names: list[str]) -> set[int]:
        body, _, step = term.partition("/")
        number = {name: index + (low if names is DAYS else 0) for index, name in enumerate(names)}
        if body in ("*", "?", ""):
            first, last = low, high
        elif "-" in body:
            first, last = (
                number.get(end) if end in number else int(end) for end in body.split("-")
            )
        else:
            first = number[body] if body in number else int(body)
            last = high if step else first
        size = high - low + 1
        if last < first:
            last += size
        picked = range(first, last + 1, int(step or 1))
        return {(value - low) % size + low for value in picked}

    @cache  # noqa: B019
    def matches_day(self, day: date) -> bool:
        if day.month not in self.values("month", self.month, 1, 12, MONTHS):
            return False
        if self.year != "*" and day.year not in self.values("year", self.year, 1970, 2199):
            return False
        by_date = any(self.matches_date(day, term) for term in self.dom.split(","))
        by_weekday = any(self.matches_weekday(day, term) for term in self.dow.split(","))
        if self.quartz or self.dom[0] in "*?" or self.dow[0] in "*?":
            return by_date and by_weekday
        return by_date or by_weekday

    def matches_date(self, day: date, term: str) -> bool:
        last = calendar.monthrange(day.year, day.month)[1]
        if term.endswith("W"):
            if term == "LW":
                target = last
            elif term.startswith("L-"):
                target = last - int(term[2:-1])
            else:
                target = int(term[:-1])
            if not 1 <= target <= last:
                return False
            working = [
                number
                for number in range(1, last + 1)
                if date(day.year, day.month, number).isoweekday() < 6
            ]
            return day.day == min(working, key=lambda number: abs(number - target))
        if term.startswith("L"):
            return day.day == last - int(term[2:] or 0)
        return day.day in self.term(term, 1, 31, [])

    def matches_weekday(self, day: date, term: str) -> bool:
        low = 1 if self.quartz else 0
        own = day.isoweekday() % 7 + low
        last = calendar.monthrange(day.year, day.month)[1]
        if term == "L":
            return own == 6 + low
        if "#" in term:
            wanted, _, nth = term.partition("#")
            return own in self.term(wanted, low, low + 6, DAYS) and (day.day + 6) // 7 == int(nth)
        if term.endswith("L"):
            return own in self.term(term[:-1], low, low + 6, DAYS) and day.day + 7 > last
        return own in self.term(term, low, low + 6, DAYS)


def days_from(start: date, count: int) -> list[date]:
    return [start + timedelta(days=number) for number in range(count)]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)
