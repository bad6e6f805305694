"""Parses sentences of the describer back into triggers.

A sentence is parsed loosely into candidate triggers, and each candidate is described again: only
a candidate whose description is exactly the sentence is accepted, so nothing can be misread.
Sentences that people write are parsed by `language.parser`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from chimes.errors import InvalidTrigger
from chimes.language.cron_sets import Numbers, range_words, steps, stretches
from chimes.language.description import describe
from chimes.language.en import MONTHS, WEEKDAYS
from chimes.language.forms import (
    WORKING,
    At,
    ClockUnit,
    DateKind,
    DateTerm,
    Days,
    DurationUnit,
    Listed,
    Rate,
    Repeated,
    Times,
    Values,
    Weekdays,
)
from chimes.language.th import MONTHS as MONTHS_TH
from chimes.language.th import UNITS
from chimes.language.th import WEEKDAYS as WEEKDAYS_TH
from chimes.language.zh import UNITS as UNITS_ZH
from chimes.language.zh import WEEKDAYS as WEEKDAYS_ZH
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.calendars import DAY_NAMES

# From the content of a sentence to candidate triggers.

_DAY_NUMBERS = tuple("0123456")
_SPECIAL: dict[DateKind, str] = {
    "nearest": "{}W",
    "from_end": "L-{}",
    "nearest_from_end": "L-{}W",
    "last_working": "LW",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Content of a sentence: a time, an interval, or times on days."""

    once: str | None = None
    every: timedelta | None = None
    anchor: str | None = None
    jitter: timedelta | None = None
    days: Days | None = None
    times: Times | None = None
    zone: str | None = None
    rules: str = "chimes"
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    exclude: list[dict[str, object]] = field(default_factory=list)


def triggers(draft: Draft) -> Iterator[Trigger]:
    """Candidate triggers, most likely first. Raises InvalidTrigger if there is none."""
    if draft.once is not None:
        yield Once(
            draft.once,
            timezone=draft.zone,
            start_at=draft.start_at,
            end_at=draft.end_at,
            max_runs=draft.max_runs,
            exclude=draft.exclude,
        )
    elif draft.every is not None:
        yield Every(
            draft.every,
            anchor=draft.anchor,
            jitter=draft.jitter,
            start_at=draft.start_at,
            end_at=draft.end_at,
            max_runs=draft.max_runs,
            exclude=draft.exclude,
        )
    else:
        assert draft.days is not None
        assert draft.times is not None
        for expression in _expressions(draft.days, draft.times):
            yield Cron(
                expression,
                timezone=draft.zone,
                dst=_rules(draft.rules),
                start_at=draft.start_at,
                end_at=draft.end_at,
                max_runs=draft.max_runs,
                exclude=draft.exclude,
            )


def _rules(name: str) -> Literal["chimes", "vixie", "robfig"]:
    match name:
        case "vixie" | "robfig":
            return name
        case _:
            return "chimes"


def _expressions(days: Days, times: Times) -> Iterator[str]:
    second, minute, hour = _clock_fields(times)
    month = "*" if days.months is None else _field(days.months, 1, 12)
    for date, weekday in _day_fields(days):
        if days.years is not None:
            year = _listed(days.years)
            yield " ".join((second, minute, hour, date, month, weekday, year))
        elif second != "0":
            yield " ".join((second, minute, hour, date, month, weekday))
        else:
            yield " ".join((minute, hour, date, month, weekday))


def _clock_fields(times: Times) -> tuple[str, str, str]:
    if isinstance(times, At):
        return _at(times)
    if isinstance(times, Repeated):
        return _repeated(times)
    hour = "*" if times.hours is None else _field(times.hours.numbers, 0, 23)
    which = _rated(times.which)
    if times.which.unit == "minute":
        return "0", which, hour
    return which, "*" if times.minutes is None else _field(times.minutes.numbers, 0, 59), hour


def _at(times: At) -> tuple[str, str, str]:
    parts = [[int(number) for number in clock.split(":")] for clock in times.clocks]
    hours, minutes, seconds = (
        _plain(_ordered(clock[place] for clock in parts if len(clock) > place))
        for place in range(3)
    )
    return seconds or "0", minutes, hours


def _repeated(times: Repeated) -> tuple[str, str, str]:
    start = times.stretches[0][0].split(":") if times.stretches else ["0", "0", "0"]
    hour = "*"
    if times.hours is not None:
        hour = _field(times.hours.numbers, 0, 23)
    elif times.stretches:
        hour = _plain(
            _ordered(
                number
                for first, last in times.stretches
                for number in range(int(first[:2]), int(last[:2]) + 1)
            )
        )
    rate, at = times.rate, times.at
    if rate.unit == "hour":
        minute = str(int(start[1])) if at is None else _plain(at.numbers)
        if times.since is None:
            return "0", minute, hour
        first = times.since.split(":")
        return "0", str(int(first[1])), _from(int(first[0]), rate.step)
    if rate.unit == "minute":
        minute = _from(rate.first or int(start[1]), rate.step)
        return "0" if at is None else _field(at.numbers, 0, 59), minute, hour
    second = int(start[2]) if len(start) > 2 else 0
    return _from(rate.first or second, rate.step), "*", hour


def _rated(which: Values | Rate) -> str:
    if isinstance(which, Rate):
        return _from(which.first, which.step)
    return _field(which.numbers, 0, 59)


def _from(first: int, step: int) -> str:
    if step == 1:
        return "*"
    return f"{first}/{step}" if first else f"*/{step}"


def _ordered(numbers: Iterable[int]) -> Numbers:
    return tuple(sorted(set(numbers)))


def _plain(numbers: Numbers) -> str:
    """Without steps, so that fixed times stay fixed."""
    return ",".join(range_words(stretches(numbers), str, "-"))


def _listed(numbers: Numbers) -> str:
    """With a step if the values are a progression."""
    found = steps(numbers)
    return f"{found.first}-{found.last}/{found.step}" if found else _plain(numbers)


def _field(numbers: Numbers, low: int, high: int) -> str:
    found = steps(numbers)
    if found is not None and found.first == low and found.last + found.step > high:
        return f"*/{found.step}"
    return _listed(numbers)


def _day_fields(days: Days) -> Iterator[tuple[str, str]]:
    quartz = days.years is not None
    if days.weekdays is None:
        dates = "*" if days.dates is None else _dates(days.dates)
        yield dates, "?" if quartz and days.dates is not None else "*"
    elif days.dates is None:
        yield "?" if quartz else "*", _weekdays(days.weekdays, quartz=quartz)
    elif not days.both:
        yield _dates(days.dates), _weekdays(days.weekdays)
    else:
        # Both day fields must match if one of them begins with a star.
        for date in _starred(_single_dates(days.dates), range(1, 32), 31):
            yield ",".join([date, *_special_dates(days.dates)]), _weekdays(days.weekdays)
        for weekday in _starred(days.weekdays.every, range(7), 7):
            special = _special_weekdays(days.weekdays)
            yield _dates(days.dates), ",".join([weekday, *special])


def _starred(numbers: Numbers, field: range, most: int) -> Iterator[str]:
    """Spellings that begin with a star and a step of up to `most`."""
    for step in range(2, most + 1):
        if set(field[::step]) <= set(numbers):
            rest = tuple(number for number in numbers if number not in field[::step])
            yield ",".join([f"*/{step}", *range_words(stretches(rest), str, "-")])


def _single_dates(terms: tuple[DateTerm, ...]) -> Numbers:
    return _ordered(
        day
        for term in terms
        if term.kind in ("day", "days", "step")
        for day in range(term.first, (term.last or term.first) + 1, term.step)
    )


def _dates(terms: tuple[DateTerm, ...]) -> str:
    single = _single_dates(terms)
    return ",".join([*([_listed(single)] if single else []), *_special_dates(terms)])


def _special_dates(terms: tuple[DateTerm, ...]) -> list[str]:
    found = [_SPECIAL[term.kind].format(term.first) for term in terms if term.kind in _SPECIAL]
    return ["L" if each == "L-0" else each for each in found]


def _weekdays(days: Weekdays, *, quartz: bool = False) -> str:
    # Quartz numbers weekdays differently, so names are used.
    names = DAY_NAMES if quartz else _DAY_NUMBERS
    plain = range_words(stretches(days.every), names.__getitem__, "-")
    return ",".join([*plain, *_special_weekdays(days, names)])


def _special_weekdays(days: Weekdays, names: Sequence[str] = _DAY_NUMBERS) -> list[str]:
    found = [f"{names[day]}#{nth}" for day, nth in days.nth]
    return found + [f"{names[day]}L" for day in days.last]


# Sentence patterns of a language. Groups have the same names in every language; their order
# differs.

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
    #: Between the ends of a range of numbers, of names.
    to: str
    name_to: str
    weekdays: Sequence[str]
    months: Sequence[str]
    units: Mapping[str, DurationUnit]
    clock_units: Mapping[str, ClockUnit]
    nth: Mapping[str, int]
    #: body, years, step, zone
    main: Pattern
    #: days, times; the first match wins
    splits: Sequence[Pattern]
    #: Matches a list of times of day.
    at: Pattern
    #: which or rate, minutes, hours
    listed: Pattern
    #: step, unit, first, at, since, hours, stretches
    repeated: Pattern
    #: step, span: a step within a range
    stepped: Pattern
    #: Occurs in descriptions with seconds.
    of_seconds: Pattern
    #: first, last, step; end: counted from the end. Also the default of `first`.
    dates: Sequence[tuple[DateKind, str, int]]
    #: day, nth; without nth the last
    special: str
    working: Pattern
    #: Occurs where a day must match both fields.
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
        """Possible contents of the sentence; wrong ones are rejected by describing them."""
        main, *clauses = sentence.split(self.between)
        for found in (self._once(main), self._on_days(main), self._interval(main)):
            for clause in clauses:
                found = found and self._limited(found, clause)
            if found is not None:
                yield found

    def bounded(self, sentence: str) -> bool:
        """Whether a clause states an end, a maximum or an exclusion."""
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
        """In the notation of a trigger, in its zone."""
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
    """Bounded by the largest value of any field, so that a huge range cannot fill the memory."""
    return min(int(text), _LARGEST) if text else unsaid


def _named(text: str, known: Sequence[str], to: str, *, low: int) -> Numbers:
    """Names in the text with ranges expanded; a week may wrap around."""
    names = "|".join(sorted(known, key=len, reverse=True))
    found: set[int] = set()
    for first, last in re.findall(rf"({names})(?:{to}({names}))?", text):
        start, end = known.index(first), known.index(last or first)
        length = (end - start) % len(known)
        found.update((start + offset) % len(known) + low for offset in range(length + 1))
    return tuple(sorted(found))


# English patterns.

_NUMBERS = r"\d(?:[\d, ]|to|and)*?"
_STEPPED = r"every \d+\w\w (?:second|minute|hour) from \d+ to \d+"
_VALUES = rf"(?:second|minute)s? {_NUMBERS}|{_STEPPED}"
_HOURS = rf"hours? {_NUMBERS}|{_STEPPED}"
_DAY = "|".join(WEEKDAYS)
_TH = "(?:st|nd|rd|th)"
_NTH = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_MOMENT = rf"(?P<day>\d+) (?P<month>{'|'.join(MONTHS)}) (?P<year>\d+) at (?P<clock>[\d:.]+)"
_UNITS: tuple[DurationUnit, ...] = ("hour", "minute", "second", "millisecond", "microsecond")

GRAMMAR = Grammar(
    between="; ",
    to=" to ",
    name_to=" to ",
    weekdays=WEEKDAYS,
    months=MONTHS,
    units={f"{unit}{end}": unit for unit in _UNITS for end in ("", "s")},
    clock_units={"second": "second", "minute": "minute", "hour": "hour"},
    nth=_NTH,
    main=re.compile(
        rf"(?P<body>.+?)(?:, in (?:every (?P<step>\d+){_TH} year from )?"
        r"(?P<years>\d{4}(?:[\d, ]|to|and)*?))?, (?P<zone>\S+?)(?: time)?"
    ),
    splits=[
        re.compile(
            r"(?P<times>[Ee]very (?:\d+ )?(?:second|minute|hour)s?\b.*?)"
            r"(?:, (?P<days>(?:every|on) .+))?"
        ),
        re.compile(
            r"(?P<days>.+?),? "
            r"(?P<times>at (?:\d\d:|second|minute|every \d+\w\w (?:second|minute)).+)"
        ),
    ],
    at=re.compile(r"at \d\d:.+"),
    listed=re.compile(
        rf"(?:at (?P<which>{_VALUES}) of|"
        r"(?P<rate>[Ee]very (?:\d+ )?seconds?(?: from second \d+)?) in)"
        rf"(?: (?P<minutes>{_VALUES}) of)? (?:every hour|(?P<hours>{_HOURS}))"
    ),
    repeated=re.compile(
        r"[Ee]very (?:(?P<step>\d+) )?(?P<unit>second|minute|hour)s?"
        rf"(?: from (?P=unit) (?P<first>\d+))?(?: at (?P<at>{_VALUES}))?"
        rf"(?: from (?P<since>\d\d:\d\d))?(?: in (?P<hours>{_HOURS}))?"
        r"(?: (?P<stretches>from [\d:]+ to .+))?"
    ),
    stepped=re.compile(r"every (?P<step>\d+)\D+(?P<span>\d+ to \d+)"),
    of_seconds=re.compile("second"),
    dates=[
        (
            "step",
            rf"every (?P<step>\d+){_TH} day from the (?P<first>\d+){_TH} to the (?P<last>\d+){_TH}",
            0,
        ),
        ("nearest", rf"the weekday nearest the (?P<first>\d+){_TH}", 0),
        ("nearest_from_end", "the weekday nearest the last day", 0),
        ("nearest_from_end", "the weekday nearest the day before the last", 1),
        ("nearest_from_end", r"the weekday nearest the day (?P<first>\d+) days before the last", 0),
        ("from_end", "the last day", 0),
        ("from_end", "the day before the last", 1),
        ("from_end", r"the day (?P<first>\d+) days before the last", 0),
        ("last_working", "the last weekday", 0),
        ("days", rf"the (?P<first>\d+){_TH} to the (?P<last>\d+){_TH}", 0),
        ("day", rf"the (?P<first>\d+){_TH}", 0),
    ],
    special=rf"the (?:(?P<nth>{'|'.join(_NTH)})|last) (?P<day>{_DAY})",
    working=re.compile(r"(?:[Ee]very|\ba) weekday"),
    both="if that is",
    once=re.compile(rf"Once, on [A-Z][a-z]+ {_MOMENT}, (?P<zone>\S+?)(?: time)?"),
    every=re.compile(
        rf"Every (?P<step>.+?)(?:, counted from {_MOMENT} UTC)?"
        r"(?:, each run up to (?P<jitter>.+) later)?"
    ),
    whole_days=re.compile(r"(\d+) days of 24 hours"),
    since=re.compile(rf"from {_MOMENT}(?P<utc> UTC)? on"),
    until=re.compile(rf"until {_MOMENT}(?P<utc> UTC)?"),
    once_only="only once",
    at_most=re.compile(r"at most (\d+) times"),
    rules=re.compile(r"clock changes as in (\w+)"),
    excepting=re.compile(
        r"except (?P<days>.+?)(?:, then on the (?P<then>next|previous) business day)?"
    ),
    following="next",
    holidays=re.compile(r"on public holidays of (\S+)"),
    window=re.compile(
        r"on (?P<days>[A-Za-z, ]+?)"
        r"(?: from (?P<start>[\d:]+) to (?P<end>[\d:]+)(?: of the next day)?)?(?=, on | and on |$)"
    ),
)


# Thai patterns.

_NUMBERS_TH = r"\d[\d, ถึงและ]*?"
_STEPPED_TH = r"ทุก \d+ (?:วินาที|นาที) ตั้งแต่(?:วินาที|นาที)ที่ \d+ ถึง \d+"
_VALUES_TH = rf"(?:ที่)?(?:วินาที|นาที)ที่ {_NUMBERS_TH}|{_STEPPED_TH}"
_HOURS_TH = rf"ชั่วโมงที่ {_NUMBERS_TH}"
_TIMES = r"(?:เวลา \d|ทุก(?: \d+ )?(?:วินาที|นาที|ชั่วโมง)|ที่(?:วินาที|นาที)ที่)"
_DAY_TH = "|".join(WEEKDAYS_TH)
_NTH_TH = {"แรก": 1, "ที่สอง": 2, "ที่สาม": 3, "ที่สี่": 4, "ที่ห้า": 5}
_MOMENT_TH = (
    rf"วัน[^ ]*ที่ (?P<day>\d+) (?P<month>{'|'.join(MONTHS_TH)}) ค\.ศ\. (?P<year>\d+) "
    r"เวลา (?P<clock>[\d:.]+) น\."
)

GRAMMAR_TH = Grammar(
    between="; ",
    to=" ถึง ",
    name_to="ถึง",
    weekdays=WEEKDAYS_TH,
    months=MONTHS_TH,
    units={word: unit for unit, word in UNITS.items()},
    clock_units={"วินาที": "second", "นาที": "minute", "ชั่วโมง": "hour"},
    nth=_NTH_TH,
    main=re.compile(
        r"(?P<body>.+?)(?: เฉพาะ(?:ทุก (?P<step>\d+) ปี ตั้งแต่)?ปี ค\.ศ\. (?P<years>\d[\d, ถึงและ]*?))?"
        r" ตามเวลา (?P<zone>\S+)"
    ),
    splits=[
        re.compile(rf"(?P<days>)(?P<times>{_TIMES}.*)"),
        re.compile(rf"(?P<days>.+?) (?P<times>{_TIMES}.*)"),
    ],
    at=re.compile(r"เวลา .+ น\."),
    listed=re.compile(
        rf"(?:(?P<which>{_VALUES_TH}) ของ|"
        r"(?P<rate>ทุก(?: \d+ )?วินาที(?: ตั้งแต่วินาทีที่ \d+)?) ใน)"
        rf"(?:(?P<minutes>{_VALUES_TH}) ของ)?(?:ทุกชั่วโมง|(?P<hours>{_HOURS_TH}))"
    ),
    repeated=re.compile(
        r"ทุก(?: (?P<step>\d+) )?(?P<unit>วินาที|นาที|ชั่วโมง)"
        rf"(?: ตั้งแต่(?P=unit)ที่ (?P<first>\d+))?(?: (?P<at>{_VALUES_TH}))?"
        rf"(?: ตั้งแต่ (?P<since>[\d:]+) น\.)?(?: ใน(?P<hours>{_HOURS_TH}))?"
        r"(?: (?P<stretches>ตั้งแต่ [\d:]+ น\. ถึง .+))?"
    ),
    stepped=re.compile(r"ทุก (?P<step>\d+) \D+(?P<span>\d+ ถึง \d+)"),
    of_seconds=re.compile("วินาที"),
    dates=[
        ("step", r"ทุก (?P<step>\d+) วัน ตั้งแต่วันที่ (?P<first>\d+) ถึง (?P<last>\d+)", 0),
        ("nearest", r"วันทำการที่ใกล้วันที่ (?P<first>\d+) ที่สุด", 0),
        ("nearest_from_end", r"วันทำการที่ใกล้ (?:(?P<first>\d+) วันก่อน)?วันสุดท้ายที่สุด", 0),
        ("from_end", r"(?:(?P<first>\d+) วันก่อน)?วันสุดท้าย", 0),
        ("last_working", "วันทำการสุดท้าย", 0),
        ("days", r"(?P<first>\d+) ถึง (?P<last>\d+)", 0),
        ("day", r"(?P<first>\d+)", 0),
    ],
    special=rf"(?P<day>{_DAY_TH})(?:(?P<nth>{'|'.join(_NTH_TH)})|สุดท้าย)",
    working=re.compile("วันทำการ(?!สุดท้าย|ที่ใกล้)"),
    both="เฉพาะที่ตรงกับ",
    once=re.compile(rf"ครั้งเดียว {_MOMENT_TH} ตามเวลา (?P<zone>\S+)"),
    every=re.compile(
        rf"ทุก ?(?P<step>.+?)(?: นับจาก{_MOMENT_TH} ตามเวลา UTC)?"
        r"(?: แต่ละครั้งช้าได้ไม่เกิน (?P<jitter>.+))?"
    ),
    whole_days=re.compile(r"(\d+) วัน \(วันละ 24 ชั่วโมง\)"),
    since=re.compile(rf"ตั้งแต่{_MOMENT_TH}(?P<utc> ตามเวลา UTC)? เป็นต้นไป"),
    until=re.compile(rf"จนถึง{_MOMENT_TH}(?P<utc> ตามเวลา UTC)?"),
    once_only="ครั้งเดียวเท่านั้น",
    at_most=re.compile(r"ไม่เกิน (\d+) ครั้ง"),
    rules=re.compile(r"เมื่อปรับนาฬิกาให้ใช้กฎของ (\w+)"),
    excepting=re.compile(r"ยกเว้น(?P<days>.+?)(?: โดยเลื่อนไปวันทำการ(?P<then>ถัดไป|ก่อนหน้า))?"),
    following="ถัดไป",
    holidays=re.compile(r"วันหยุดราชการของ (\S+)"),
    window=re.compile(
        r"(?P<days>.+?)(?:ทั้งวัน| เวลา (?P<start>[\d:]+) ถึง (?P<end>[\d:]+) น\.(?: ของวันถัดไป)?)"
    ),
)


# Chinese patterns.

_NUMBERS_ZH = r"\d[\d、至和]*"
_VALUES_ZH = rf"第{_NUMBERS_ZH}[分秒](?:（每隔\d+(?:分钟|秒)）)?"
_HOURS_ZH = r"\d+点[\d点、至和]*(?<=点)"
_STRETCHES = r"[\d:]+至[\d:、至和]+"
_RATE = r"每(?:隔(?P<step>\d+))?(?P<unit>小时|分钟|秒)(?:，从第(?P<first>\d+)[分秒]起)?"
_TIMES_ZH = r"(?:\d\d:\d\d|\d+点|每(?:隔\d+)?(?:小时|分钟|秒))"
_DAY_ZH = "|".join(WEEKDAYS_ZH)
_NTH_ZH = {"第一个": 1, "第二个": 2, "第三个": 3, "第四个": 4, "第五个": 5}
_MOMENT_ZH = r"(?P<year>\d+)年(?P<month>\d+月)(?P<day>\d+)日(?:周.)? (?P<clock>[\d:.]+)"

GRAMMAR_ZH = Grammar(
    between="；",
    to="[点号年]?至",
    name_to="至",
    weekdays=WEEKDAYS_ZH,
    months=tuple(f"{month}月" for month in range(1, 13)),
    units={word: unit for unit, word in UNITS_ZH.items()},
    clock_units={"秒": "second", "分钟": "minute", "小时": "hour"},
    nth=_NTH_ZH,
    main=re.compile(
        r"(?P<body>.+?)(?:，仅限(?P<years>\d+年[\d年、至和]*)(?:（每(?P<step>\d+)年）)?)?"
        r"，(?P<zone>[A-Za-z0-9_/+-]+) 时间"
    ),
    splits=[
        re.compile(rf"(?P<days>)(?P<times>{_TIMES_ZH}.*)"),
        re.compile(rf"(?P<days>.+?)[ ，]?(?P<times>{_TIMES_ZH}.*)"),
    ],
    at=re.compile(r"\d\d:[\d:、和]+"),
    listed=re.compile(
        rf"(?:每小时|(?P<hours>{_HOURS_ZH}))(?:的(?P<minutes>{_VALUES_ZH}))?"
        rf"(?:的(?P<which>{_VALUES_ZH})|，(?P<rate>每(?:隔\d+)?秒(?:，从第\d+秒起)?))"
    ),
    repeated=re.compile(
        rf"(?:(?P<since>\d\d:\d\d)起，|(?P<hours>{_HOURS_ZH})，|(?P<stretches>{_STRETCHES})，)?"
        rf"{_RATE}(?:的(?P<at>{_VALUES_ZH}))?"
    ),
    stepped=re.compile(r"第(?P<span>\d+至\d+).（每隔(?P<step>\d+)\D+）"),
    of_seconds=re.compile("秒"),
    dates=[
        ("step", r"(?P<first>\d+)号至(?P<last>\d+)号（每(?P<step>\d+)天）", 0),
        ("nearest", r"最接近(?P<first>\d+)号的工作日", 0),
        ("nearest_from_end", r"最接近(?:倒数第(?P<end>\d+)天|最后一天)的工作日", 0),
        ("from_end", r"倒数第(?P<end>\d+)天|最后一天", 0),
        ("last_working", "最后一个工作日", 0),
        ("days", r"(?P<first>\d+)号至(?P<last>\d+)号", 0),
        ("day", r"(?P<first>\d+)号", 0),
    ],
    special=rf"(?:(?P<nth>{'|'.join(_NTH_ZH)})|最后一个)(?P<day>{_DAY_ZH})",
    working=re.compile("(?<!最后一个)(?<!的)工作日|(?<=月的)工作日"),
    both="（仅限",
    once=re.compile(rf"仅一次，{_MOMENT_ZH}，(?P<zone>[A-Za-z0-9_/+-]+) 时间"),
    every=re.compile(
        rf"每隔?(?P<step>.+?)(?:，从{_MOMENT_ZH}（UTC 时间）起计)?(?:，每次最多延后(?P<jitter>.+))?"
    ),
    whole_days=re.compile(r"(\d+)天（每天按24小时计）"),
    since=re.compile(rf"自{_MOMENT_ZH}(?P<utc>（UTC 时间）)?起"),
    until=re.compile(rf"至{_MOMENT_ZH}(?P<utc>（UTC 时间）)?止"),
    once_only="只运行一次",
    at_most=re.compile(r"最多(\d+)次"),
    rules=re.compile(r"时钟调整按 (\w+) 的规则处理"),
    excepting=re.compile(r"(?P<days>.+)除外(?:，(?P<then>顺延至下一个工作日|提前至上一个工作日))?"),
    following="顺延至下一个工作日",
    holidays=re.compile(r"(\S+) 的公共假日"),
    window=re.compile(r"(?P<days>[^\d]+?)(?:全天| (?P<start>[\d:]+)至(?:次日)?(?P<end>[\d:]+))"),
)


_GRAMMARS = {"en": GRAMMAR, "th": GRAMMAR_TH, "zh": GRAMMAR_ZH}
# No description is longer; the limit keeps parsing cheap.
_LONGEST = 1000


def reread(text: str, lang: str) -> Trigger | None:
    """The trigger whose description is exactly this sentence, else None."""
    sentence = text.strip()
    if lang not in _GRAMMARS or len(sentence) > _LONGEST:
        return None
    try:
        drafts = list(_GRAMMARS[lang].drafts(sentence))
    except (ValueError, OverflowError):
        # Numbers out of range.
        return None
    return next((found for draft in drafts if (found := _confirmed(draft, sentence, lang))), None)


def bounded(text: str, lang: str) -> bool:
    """Whether a clause states an end, a maximum or an exclusion in the words of the describer."""
    try:
        return lang in _GRAMMARS and _GRAMMARS[lang].bounded(text.strip())
    except ValueError:
        return True


def _confirmed(draft: Draft, sentence: str, lang: str) -> Trigger | None:
    try:
        for trigger in triggers(draft):
            if describe(trigger, lang) == sentence:
                return trigger
    except (InvalidTrigger, ValueError):
        return None
    return None
