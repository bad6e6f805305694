"""A language's sentences as patterns, and how any of them is taken apart.

The groups of a pattern are named alike in every language; in which order they come is its affair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from chimes.language.days import WORKING, DateKind, DateTerm, Days, Weekdays
from chimes.language.limits import DurationUnit
from chimes.language.masks import Numbers
from chimes.language.rereading.building import Draft
from chimes.language.times import At, ClockUnit, Listed, Rate, Repeated, Times, Values
from chimes.triggers.calendar import DAY_NAMES

_SIZES: dict[DurationUnit, timedelta] = {
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_CLOCK = re.compile(r"\d\d:\d\d(?::\d\d)?")
_LARGEST = 9999
Match = re.Match[str]
Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    between: str
    #: Between the ends of a stretch of numbers, of names.
    to: str
    name_to: str
    weekdays: Sequence[str]
    months: Sequence[str]
    units: Mapping[str, DurationUnit]
    clock_units: Mapping[str, ClockUnit]
    nth: Mapping[str, int]
    #: body, years, step, zone
    main: Pattern
    #: days, times; the first that fits
    splits: Sequence[Pattern]
    #: Fits what lists times of the day.
    at: Pattern
    #: which or rate, minutes, hours
    listed: Pattern
    #: step, unit, first, at, since, hours, stretches
    repeated: Pattern
    #: step, span: every few numbers of a stretch
    stepped: Pattern
    #: Stands in what is told of seconds.
    of_seconds: Pattern
    #: first, last, step; end: counted from the end. With it what `first` is where it is not said.
    dates: Sequence[tuple[DateKind, str, int]]
    #: day, nth; without nth: the last
    special: str
    working: Pattern
    #: Stands where a day must satisfy both.
    both: str
    #: day, month, year, clock, zone
    once: Pattern
    #: step, jitter; day, month, year and clock of the anchor
    every: Pattern
    whole_days: Pattern
    #: day, month, year, clock, utc
    since: Pattern
    until: Pattern
    once_only: str
    at_most: Pattern
    rules: Pattern
    #: days, then
    excepting: Pattern
    following: str
    holidays: Pattern
    #: days, start, end
    window: Pattern

    def drafts(self, sentence: str) -> Iterator[Draft]:
        """What it may say; much that it does not say may be among it."""
        main, *clauses = sentence.split(self.between)
        for found in (self._once(main), self._on_days(main), self._interval(main)):
            for clause in clauses:
                found = found and self._limited(found, clause)
            if found is not None:
                yield found

    def bounded(self, sentence: str) -> bool:
        """Whether a clause of it says until when, how often or when not."""
        _, *clauses = sentence.split(self.between)
        return any(self._limited(Draft(), clause) is not None for clause in clauses)

    def _once(self, main: str) -> Draft | None:
        found = self.once.fullmatch(main)
        return Draft(once=self._moment(found), zone=found["zone"]) if found else None

    def _on_days(self, main: str) -> Draft | None:
        found = self.main.fullmatch(main)
        split = found and next(
            filter(None, (each.fullmatch(found["body"]) for each in self.splits)), None
        )
        times = split and self._times(split["times"])
        if not (found and split and times):
            return None
        years = (
            self._numbers(found["years"])[:: int(found["step"] or 1)] if found["years"] else None
        )
        return Draft(days=self._days(split["days"] or "", years), times=times, zone=found["zone"])

    def _times(self, text: str) -> Times | None:
        if self.at.fullmatch(text):
            return At(tuple(_CLOCK.findall(text)))
        if found := self.listed.fullmatch(text):
            rate = self.repeated.fullmatch(found["rate"]) if found["rate"] else None
            which = self._rate(rate) if rate else self._values(found["which"])
            return (
                Listed(
                    which=which,
                    minutes=self._values(found["minutes"]),
                    hours=self._hours(found["hours"]),
                )
                if which
                else None
            )
        if found := self.repeated.fullmatch(text):
            clocks = _CLOCK.findall(found["stretches"] or "")
            return Repeated(
                rate=self._rate(found),
                at=self._values(found["at"]),
                since=found["since"],
                hours=self._hours(found["hours"]),
                stretches=tuple(zip(clocks[::2], clocks[1::2], strict=False)),
            )
        return None

    def _rate(self, found: Match) -> Rate:
        unit = self.clock_units[found["unit"]]
        return Rate(unit, int(found["step"] or 1), int(found["first"] or 0))

    def _values(self, text: str | None) -> Values | None:
        if not text:
            return None
        unit: ClockUnit = "second" if self.of_seconds.search(text) else "minute"
        return Values(unit, self._some(text))

    def _hours(self, text: str | None) -> Values | None:
        return Values("hour", self._some(text)) if text else None

    def _some(self, text: str) -> Numbers:
        if found := self.stepped.fullmatch(text):
            return self._numbers(found["span"])[:: int(found["step"])]
        return self._numbers(text)

    def _numbers(self, text: str) -> Numbers:
        found: set[int] = set()
        for first, last in re.findall(rf"(\d+)(?:{self.to}(\d+))?", text):
            found.update(range(_number(first), _number(last or first) + 1))
        return tuple(sorted(found))

    def _days(self, text: str, years: Numbers | None) -> Days:
        nth, last = [], []
        for found in re.finditer(self.special, text):
            day, which = self.weekdays.index(found["day"]), found["nth"]
            if which:
                nth.append((day, self.nth[which]))
            else:
                last.append(day)
        plain = re.sub(self.special, " ", text)
        every = WORKING if self.working.search(plain) else self._weekdays(plain)
        weekdays = Weekdays(every=every, nth=tuple(nth), last=tuple(last))
        names = "|".join(sorted([*self.weekdays, *self.months], key=len, reverse=True))
        return Days(
            dates=self._dates(re.sub(names, " ", plain)) or None,
            weekdays=weekdays if every or nth or last else None,
            both=self.both in text,
            months=_named(text, self.months, self.name_to, low=1) or None,
            years=years,
        )

    def _weekdays(self, text: str) -> Numbers:
        return _named(text, self.weekdays, self.name_to, low=0)

    def _dates(self, text: str) -> tuple[DateTerm, ...]:
        found: list[DateTerm] = []
        for kind, pattern, unsaid in self.dates:
            for match in re.finditer(pattern, text):
                said = match.groupdict()
                end = said.get("end")
                first = _number(end) - 1 if end else _number(said.get("first"), unsaid)
                last, step = _number(said.get("last")), _number(said.get("step"), 1)
                found.append(DateTerm(kind, first, last, step))
            text = re.sub(pattern, " ", text)
        return tuple(found)

    def _interval(self, main: str) -> Draft | None:
        found = self.every.fullmatch(main)
        if found is None:
            return None
        days = self.whole_days.fullmatch(found["step"])
        step = timedelta(days=int(days[1])) if days else self._duration(found["step"])
        if step is None:
            return None
        anchor = f"{self._moment(found)}Z" if found["year"] else None
        jitter = self._duration(found["jitter"]) if found["jitter"] else None
        return Draft(every=step, anchor=anchor, jitter=jitter)

    def _duration(self, text: str) -> timedelta | None:
        if text in self.units:
            return _SIZES[self.units[text]]
        names = "|".join(sorted(self.units, key=len, reverse=True))
        parts = re.findall(rf"(\d+) ?({names})", text)
        total = sum((int(count) * _SIZES[self.units[unit]] for count, unit in parts), timedelta(0))
        return total or None

    def _limited(self, draft: Draft, clause: str) -> Draft | None:
        if found := self.since.fullmatch(clause):
            return replace(draft, start_at=self._moment(found) + ("Z" if found["utc"] else ""))
        if found := self.until.fullmatch(clause):
            return replace(draft, end_at=self._moment(found) + ("Z" if found["utc"] else ""))
        if clause == self.once_only:
            return replace(draft, max_runs=1)
        if found := self.at_most.fullmatch(clause):
            return replace(draft, max_runs=int(found[1]))
        if found := self.rules.fullmatch(clause):
            return replace(draft, rules=found[1])
        if found := self.excepting.fullmatch(clause):
            return replace(draft, exclude=[*draft.exclude, self._exclusion(found)])
        return None

    def _moment(self, found: Match) -> str:
        """As a trigger takes it, on the clock of its zone."""
        month = self.months.index(found["month"]) + 1
        clock = found["clock"] if len(found["clock"]) > 5 else f"{found['clock']}:00"
        return f"{int(found['year']):04d}-{month:02d}-{int(found['day']):02d}T{clock}"

    def _exclusion(self, found: Match) -> dict[str, object]:
        text, then = found["days"], found["then"]
        calendar: dict[str, object] = {}
        if then:
            calendar["on_excluded"] = "next" if then == self.following else "previous"
        if country := self.holidays.fullmatch(text):
            return {**calendar, "holidays": country[1]}
        if dates := re.findall(r"\d{4}-\d\d-\d\d", text):
            return {**calendar, "dates": dates}
        return {**calendar, "weekly": [self._window(each) for each in self.window.finditer(text)]}

    def _window(self, found: Match) -> dict[str, object]:
        days = [DAY_NAMES[day] for day in self._weekdays(found["days"])]
        if not found["start"]:
            return {"days": days}
        return {"days": days, "from": found["start"], "to": found["end"]}


def _number(text: str | None, unsaid: int = 0) -> int:
    """No number of a field is larger, and a stretch to a huge one would fill the memory."""
    return min(int(text), _LARGEST) if text else unsaid


def _named(text: str, known: Sequence[str], to: str, *, low: int) -> Numbers:
    """Names that stand in the text, stretches filled; a week may go over its seam."""
    names = "|".join(sorted(known, key=len, reverse=True))
    found: set[int] = set()
    for first, last in re.findall(rf"({names})(?:{to}({names}))?", text):
        start, end = known.index(first), known.index(last or first)
        length = (end - start) % len(known)
        found.update((start + offset) % len(known) + low for offset in range(length + 1))
    return tuple(sorted(found))
