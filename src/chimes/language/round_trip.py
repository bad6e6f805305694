"""Parses sentences of the describer back into triggers.

A sentence is parsed loosely into candidate triggers, and each candidate is described again: only
a candidate whose description is exactly the sentence is accepted, so nothing can be misread.
Sentences that people write are parsed by `language.parser`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from chimes.errors import InvalidTrigger
from chimes.language import semantics
from chimes.language.description import describe, words_of
from chimes.language.languages import LANGUAGES
from chimes.language.semantics import Numbers, range_words, ranges, steps
from chimes.language.words import Words
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.calendars import DAY_NAMES

# From days and times to cron expressions.

_DAY_NUMBERS = tuple("0123456")
_SPECIAL: dict[semantics.DateKind, str] = {
    "nearest": "{}W",
    "from_end": "L-{}",
    "nearest_from_end": "L-{}W",
    "last_working": "LW",
}


def _expressions(days: semantics.Days, times: semantics.Times) -> Iterator[str]:
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


def _clock_fields(times: semantics.Times) -> tuple[str, str, str]:
    if isinstance(times, semantics.At):
        return _at(times)
    if isinstance(times, semantics.Repeated):
        return _repeated(times)
    hour = "*" if times.hours is None else _field(times.hours.numbers, 0, 23)
    which = _rated(times.which)
    if times.which.unit == "minute":
        return "0", which, hour
    return which, "*" if times.minutes is None else _field(times.minutes.numbers, 0, 59), hour


def _at(times: semantics.At) -> tuple[str, str, str]:
    parts = [[int(number) for number in clock.split(":")] for clock in times.clocks]
    hours, minutes, seconds = (
        _plain(_ordered(clock[place] for clock in parts if len(clock) > place))
        for place in range(3)
    )
    return seconds or "0", minutes, hours


def _repeated(times: semantics.Repeated) -> tuple[str, str, str]:
    start = times.ranges[0][0].split(":") if times.ranges else ["0", "0", "0"]
    hour = "*"
    if times.hours is not None:
        hour = _field(times.hours.numbers, 0, 23)
    elif times.ranges:
        hour = _plain(
            _ordered(
                number
                for first, last in times.ranges
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


def _rated(which: semantics.Values | semantics.Rate) -> str:
    if isinstance(which, semantics.Rate):
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
    return ",".join(range_words(ranges(numbers), str, "-"))


def _listed(numbers: Numbers) -> str:
    """With a step if the values are a progression."""
    found = steps(numbers)
    return f"{found.first}-{found.last}/{found.step}" if found else _plain(numbers)


def _field(numbers: Numbers, low: int, high: int) -> str:
    found = steps(numbers)
    if found is not None and found.first == low and found.last + found.step > high:
        return f"*/{found.step}"
    return _listed(numbers)


def _day_fields(days: semantics.Days) -> Iterator[tuple[str, str]]:
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
            yield ",".join([f"*/{step}", *range_words(ranges(rest), str, "-")])


def _single_dates(terms: tuple[semantics.DateTerm, ...]) -> Numbers:
    return _ordered(
        day
        for term in terms
        if term.kind in ("day", "days", "step")
        for day in range(term.first, (term.last or term.first) + 1, term.step)
    )


def _dates(terms: tuple[semantics.DateTerm, ...]) -> str:
    single = _single_dates(terms)
    return ",".join([*([_listed(single)] if single else []), *_special_dates(terms)])


def _special_dates(terms: tuple[semantics.DateTerm, ...]) -> list[str]:
    found = [_SPECIAL[term.kind].format(term.first) for term in terms if term.kind in _SPECIAL]
    return ["L" if each == "L-0" else each for each in found]


def _weekdays(days: semantics.Weekdays, *, quartz: bool = False) -> str:
    # Quartz numbers weekdays differently, so names are used.
    names = DAY_NAMES if quartz else _DAY_NUMBERS
    plain = range_words(ranges(days.every), names.__getitem__, "-")
    return ",".join([*plain, *_special_weekdays(days, names)])


def _special_weekdays(days: semantics.Weekdays, names: Sequence[str] = _DAY_NUMBERS) -> list[str]:
    found = [f"{names[day]}#{nth}" for day, nth in days.nth]
    return found + [f"{names[day]}L" for day in days.last]


# Patterns of sentences, made from the templates of the describer.

_CLOCK = re.compile(r"\d\d:\d\d(?::\d\d)?")
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")
_LARGEST = 9999
#: The most specific first: the later ones also match parts of the others.
_DATE_KINDS: tuple[semantics.DateKind, ...] = (
    *("step", "nearest", "nearest_from_end", "from_end", "last_working", "days", "day"),
)


def _pattern(template: str, **fields: str) -> str:
    """A template as a pattern; patterns take the place of its fields."""
    texts = re.split(r"\{(\w+)\}", template)
    return "".join(
        fields[text] if index % 2 else re.escape(text) for index, text in enumerate(texts)
    )


def _compiled(template: str, **fields: str) -> re.Pattern[str]:
    return re.compile(_pattern(template, **fields))


def _group(name: str, pattern: str = r"\d+") -> str:
    return f"(?P<{name}>{pattern})"


def _ordinal(name: str) -> str:
    """`5th` in English, a plain number elsewhere."""
    return rf"{_group(name)}[a-z]*"


def _unnamed(pattern: str) -> str:
    return _NAMED_GROUP.sub("(?:", pattern)


def _either(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


def _names(names: Iterable[str]) -> str:
    return _either(*map(re.escape, sorted(names, key=len, reverse=True)))


Candidate = Callable[..., Trigger]


class Sentences:
    """The sentences of one language."""

    def __init__(self, words: Words) -> None:
        self.words = words
        #: Between the elements of a list; several may follow each other.
        self.links = {" ", *(link.strip() for link in (words.comma, words.and_, words.to))}
        self.zone = _either(
            _pattern(words.zone, zone=_group("zone", "[A-Za-z0-9_/+-]+")),
            re.escape(words.zone_words("UTC")),
        )
        self._make_time_patterns()
        self._make_day_patterns()
        self._make_moment_patterns()
        self._make_exclusion_patterns()

    def candidates(self, sentence: str) -> list[Candidate]:
        """Functions that build the triggers that the sentence may describe."""
        main, *clauses = sentence.split(self.words.between)
        main = f"{main[:1].lower()}{main[1:]}"
        limits: dict[str, Any] = {"exclude": []}
        for clause in clauses:
            limit = self._limit(clause)
            if limit is None:
                return []
            exclude = [*limits["exclude"], *limit.get("exclude", ())]
            limits = {**limits, **limit, "exclude": exclude}
        found = list(self._on_days(main))
        if "dst" not in limits:
            found = [*self._once(main), *found, *self._interval(main)]
        return [partial(candidate, **limits) for candidate in found]

    def has_limit(self, sentence: str) -> bool:
        """Whether a clause states a start, an end, a maximum or an exclusion."""
        _, *clauses = sentence.split(self.words.between)
        return any(self._limit(clause) is not None for clause in clauses)

    # Times of day.

    def _make_time_patterns(self) -> None:
        words = self.words
        unit = _names(words.units[unit] for unit in words.points)
        count = _pattern(words.duration_part[1], count=_group("step"), unit=_group("unit", unit))
        start = _pattern(words.rate_start, point=".+?", first=_group("first"))
        named_rate = _either(
            _pattern(words.every_unit, unit=_group("one", unit)),
            rf"{_pattern(words.every, duration=count)}(?:{start})?",
        )
        self.rate = re.compile(named_rate)
        self.stepped = re.compile(self._stepped(*words.points))
        rate = _group("rate", _unnamed(named_rate))
        values = self._values_pattern("minute", "second")
        at = _either(_pattern(words.at_values, values=values), values)
        # Chinese marks each number.
        marked = self._several(words.points["hour"])
        hours = _group("hours", _either(self._values_pattern("hour"), marked))
        clock = r"\d\d:[\d:]+"
        clock_range = _pattern(words.clock_range, first=clock, last=clock)
        within = _either(
            _pattern(words.since_clock, clock=_group("since", clock)),
            _pattern(words.in_hours, hours=hours),
            _pattern(words.in_ranges, ranges=_group("ranges", self._list(clock_range))),
        )
        minutes = _pattern(words.of_minutes, minutes=_group("minutes", values))
        larger = {
            "minutes": f"(?:{minutes})?",
            "hours": _either(_pattern(words.every_unit, unit=words.units["hour"]), hours),
        }
        repeated_at = _pattern(words.repeated_at, at=_group("at", at))
        patterns = (
            _pattern(words.clocks, clocks=self._several(":")),
            _pattern(words.listed, which=_group("which", at), **larger),
            _pattern(words.listed_rate, rate=rate, **larger),
            _pattern(words.repeated, rate=rate, at=f"(?:{repeated_at})?", within=f"{within}?"),
        )
        self.clocks, self.listed, self.listed_rate, self.repeated = map(re.compile, patterns)
        times = _group("times", _unnamed(_either(*patterns)))
        days = _group("days", ".+?")
        orders = (_pattern(order, days=days, times=times) for order in words.orders)
        self.orders = [re.compile(order) for order in (f"(?P<days>){times}", *orders)]

    def _stepped(self, *units: semantics.ClockUnit) -> str:
        return _pattern(
            self.words.stepped,
            step=_ordinal("step"),
            unit=_names(self.words.units[unit] for unit in units),
            point=_names(self.words.points[unit] for unit in units),
            first=_group("first"),
            last=_group("last"),
        )

    def _values_pattern(self, *units: semantics.ClockUnit) -> str:
        point = _names(self.words.points[unit] for unit in units)
        templates = self.words.numbered
        numbered = (_pattern(form, point=point, numbers=self._several()) for form in templates)
        return _either(*numbered, _unnamed(self._stepped(*units)))

    def _several(self, mark: str = " ") -> str:
        """A list of numbers, each of which may have a mark."""
        return rf"\d(?:\d|{_names({mark, *self.links})})*"

    def _list(self, element: str) -> str:
        return f"{element}(?:{_names(self.links)}+{element})*"

    def _times(self, text: str) -> semantics.Times | None:
        if self.clocks.fullmatch(text):
            return semantics.At(tuple(_CLOCK.findall(text)))
        if found := self.listed.fullmatch(text) or self.listed_rate.fullmatch(text):
            groups = found.groupdict()
            which = (
                self._values(groups["which"]) if "which" in groups else self._rate(groups["rate"])
            )
            assert which is not None
            minutes, hours = self._values(groups["minutes"]), self._hours(groups["hours"])
            return semantics.Listed(which=which, minutes=minutes, hours=hours)
        if found := self.repeated.fullmatch(text):
            clocks = _CLOCK.findall(found["ranges"] or "")
            return semantics.Repeated(
                rate=self._rate(found["rate"]),
                at=self._values(found["at"]),
                since=found["since"],
                hours=self._hours(found["hours"]),
                ranges=tuple(zip(clocks[::2], clocks[1::2], strict=False)),
            )
        return None

    def _rate(self, text: str) -> semantics.Rate:
        found = self.rate.fullmatch(text)
        assert found is not None
        names = {self.words.units[unit]: unit for unit in self.words.points}
        unit = names[found["one"] or found["unit"]]
        return semantics.Rate(unit, int(found["step"] or 1), int(found["first"] or 0))

    def _values(self, text: str | None) -> semantics.Values | None:
        if not text:
            return None
        unit: semantics.ClockUnit = "second" if self.words.points["second"] in text else "minute"
        return semantics.Values(unit, self._numbers(text))

    def _hours(self, text: str | None) -> semantics.Values | None:
        return semantics.Values("hour", self._numbers(text)) if text else None

    def _numbers(self, text: str) -> Numbers:
        if stepped := self.stepped.search(text):
            return _progression(stepped)
        found: set[int] = set()
        for first, last in re.findall(rf"(\d+)(?:\D?{self.words.to}(\d+))?", text):
            found.update(range(_number(first), _number(last or first) + 1))
        return tuple(sorted(found))

    # Days.

    def _make_day_patterns(self) -> None:
        words = self.words
        step, first, last = _ordinal("step"), _ordinal("first"), _ordinal("last")
        years = _either(
            _pattern(words.years, years=_group("years", self._several(words.year_mark or " "))),
            _pattern(words.stepped_years, step=step, first=first, last=last),
        )
        body = _group("body", ".+?")
        self.sentence = _compiled(words.sentence, words=body, years=f"{years}?", zone=self.zone)
        nth, day = _group("nth", _names(words.nth)), _group("day", _names(words.weekdays))
        self.special = _compiled(words.nth_weekday, nth=nth, day=day)
        # The later ones may contain the first.
        back, nth = _group("back"), _group("nth")
        ends = (_pattern(form, back=back, nth=nth) for form in reversed(words.from_end))
        end = _group("end", "|".join(ends))
        self.dates: list[tuple[semantics.DateKind, re.Pattern[str]]] = []
        for kind in _DATE_KINDS:
            template = words.dates[kind]
            if kind in ("day", "days"):
                # Thai has the words before the number only once in a list.
                template = template[template.index("{") :]
            pattern = _pattern(template, step=step, first=first, last=last, end=end)
            self.dates.append((kind, re.compile(pattern)))
        _, self.only_if, _ = re.split(r"\{\w+\}", words.only_if)

    def _on_days(self, main: str) -> Iterator[Candidate]:
        found = self.sentence.fullmatch(main)
        order = found and next(
            filter(None, (order.fullmatch(found["body"]) for order in self.orders)), None
        )
        times = order and self._times(order["times"])
        if not (found and order and times):
            return
        years = None
        if found["years"] or found["step"]:
            years = self._numbers(found["years"]) if found["years"] else _progression(found)
        for expression in _expressions(self._days(order["days"], years), times):
            yield partial(Cron, expression, timezone=found["zone"] or "UTC")

    def _days(self, text: str, years: Numbers | None) -> semantics.Days:
        nth, last = [], []
        for found in self.special.finditer(text):
            day, which = self.words.weekdays.index(found["day"]), self.words.nth.index(found["nth"])
            if which == len(self.words.nth) - 1:
                last.append(day)
            else:
                nth.append((day, which + 1))
        dates, rest = self._dates(self.special.sub(" ", text))
        every = semantics.WORKING if self.words.working_day in rest else self._weekdays(rest)
        weekdays = semantics.Weekdays(every=every, nth=tuple(nth), last=tuple(last))
        return semantics.Days(
            dates=dates or None,
            weekdays=weekdays if every or nth or last else None,
            both=self.only_if in text,
            months=self._named(text, self.words.months, low=1) or None,
            years=years,
        )

    def _weekdays(self, text: str) -> Numbers:
        return self._named(text, self.words.weekdays, low=0)

    def _named(self, text: str, known: Sequence[str], *, low: int) -> Numbers:
        """Names in the text with ranges expanded; a week may wrap around."""
        names = _names(known)
        found: set[int] = set()
        for first, last in re.findall(rf"({names})(?:{self.words.name_to}({names}))?", text):
            start, end = known.index(first), known.index(last or first)
            length = (end - start) % len(known)
            found.update((start + offset) % len(known) + low for offset in range(length + 1))
        return tuple(sorted(found))

    def _dates(self, text: str) -> tuple[tuple[semantics.DateTerm, ...], str]:
        """The dates, and the text without them."""
        found: list[semantics.DateTerm] = []
        for kind, pattern in self.dates:
            for match in pattern.finditer(text):
                groups = match.groupdict()
                last, step = _number(groups.get("last")), _number(groups.get("step"), 1)
                found.append(semantics.DateTerm(kind, self._first(groups), last, step))
            text = pattern.sub(" ", text)
        return tuple(found), text

    def _first(self, groups: Mapping[str, str | None]) -> int:
        if nth := groups.get("nth"):
            return _number(nth) - 1
        if (end := groups.get("end")) and not groups.get("back"):
            return self.words.from_end.index(end)
        return _number(groups.get("first") or groups.get("back"))

    # Moments, intervals and bounds.

    def _make_moment_patterns(self) -> None:
        words = self.words
        weekday = _pattern(words.dated_weekday, weekday=_names(words.weekdays))
        # A month in digits may be out of range: that is a bound, but no date.
        months = {re.sub(r"\d+", r"\\d+", name) for name in words.months}
        moment = _pattern(
            words.moment,
            weekday=_either(weekday, re.escape(words.no_weekday)),
            day=_group("day"),
            month=_group("month", "|".join(months)),
            year=_group("year"),
            clock=_group("clock", "[0-9:.]+"),
        )
        utc = _pattern(words.in_zone, zone=re.escape(words.zone_words("UTC")))
        bound = f"{moment}{_group('utc', utc)}?"
        self.once = _compiled(words.once, moment=moment, zone=self.zone)
        self.since = _compiled(words.since, moment=bound)
        self.until = _compiled(words.until, moment=bound)
        self.at_most = _compiled(words.at_most, count=r"(\d+)")
        self.clock_changes = _compiled(words.clock_changes, rules=r"(\w+)")
        every = _either(
            _pattern(words.every_days, days=_group("days")),
            _pattern(words.every_unit, unit=_group("unit", _names(words.units.values()))),
            _pattern(words.every, duration=_group("step", ".+?")),
        )
        anchored = _pattern(words.anchored, moment=f"{moment}{utc}")
        delayed = _pattern(words.delayed, duration=_group("jitter", ".+"))
        self.interval = re.compile(f"{every}(?:{anchored})?(?:{delayed})?")

    def _once(self, main: str) -> Iterator[Candidate]:
        if found := self.once.fullmatch(main):
            yield partial(Once, self._moment(found), timezone=found["zone"] or "UTC")

    def _interval(self, main: str) -> Iterator[Candidate]:
        found = self.interval.fullmatch(main)
        if found is None:
            return
        days = found["days"]
        text = found["step"] or f"1 {found['unit']}"
        step = timedelta(days=int(days)) if days else self._duration(text)
        anchor = f"{self._moment(found)}Z" if found["year"] else None
        jitter = self._duration(found["jitter"]) if found["jitter"] else None
        if step:
            yield partial(Every, step, anchor=anchor, jitter=jitter)

    def _duration(self, text: str) -> timedelta | None:
        sizes = {self.words.units[unit]: size for unit, size in semantics.DURATION_SIZES.items()}
        parts = re.findall(rf"(\d+) ?({_names(sizes)})", text)
        return sum((int(count) * sizes[unit] for count, unit in parts), timedelta(0)) or None

    def _moment(self, found: re.Match[str]) -> str:
        """In the notation of a trigger, in its zone."""
        month = self.words.months.index(found["month"]) + 1
        clock = found["clock"] if len(found["clock"]) > 5 else f"{found['clock']}:00"
        return f"{int(found['year']):04d}-{month:02d}-{int(found['day']):02d}T{clock}"

    def _limit(self, clause: str) -> dict[str, Any] | None:
        """The arguments of a trigger that a clause states; None if it states none."""
        if found := self.since.fullmatch(clause):
            return {"start_at": self._moment(found) + ("Z" if found["utc"] else "")}
        if found := self.until.fullmatch(clause):
            return {"end_at": self._moment(found) + ("Z" if found["utc"] else "")}
        if clause == self.words.only_once:
            return {"max_runs": 1}
        if found := self.at_most.fullmatch(clause):
            return {"max_runs": int(found[1])}
        if found := self.clock_changes.fullmatch(clause):
            return {"dst": found[1]}
        if found := self.excepting.fullmatch(clause):
            return {"exclude": [self._exclusion(found)]}
        return None

    # Exclusions.

    def _make_exclusion_patterns(self) -> None:
        words = self.words
        days = _pattern(words.excepting, days=_group("days", ".+?"))
        self.excepting = re.compile(f"{days}{_group('moved', _names(words.moved.values()))}")
        self.holidays = _compiled(words.holidays, country=r"(\S+)")
        weekday = _names(words.weekdays)
        weekdays = self._list(weekday)
        self.window = re.compile(
            _either(
                _pattern(
                    words.window,
                    days=_group("days", weekdays),
                    start=_group("start", "[0-9:]+"),
                    end=_group("end", "[0-9:]+"),
                    next_day=f"(?:{words.next_day})?",
                ),
                _pattern(words.window_all_day, days=_group("all_day", weekdays)),
            )
        )

    def _exclusion(self, found: re.Match[str]) -> dict[str, object]:
        text = found["days"]
        moved = {words: then for then, words in self.words.moved.items()}
        calendar: dict[str, object] = {"on_excluded": moved[found["moved"]]}
        if country := self.holidays.fullmatch(text):
            return {**calendar, "holidays": country[1]}
        if dates := re.findall(r"\d{4}-\d\d-\d\d", text):
            return {**calendar, "dates": dates}
        return {**calendar, "weekly": [self._window(each) for each in self.window.finditer(text)]}

    def _window(self, found: re.Match[str]) -> dict[str, object]:
        days = [DAY_NAMES[day] for day in self._weekdays(found["days"] or found["all_day"])]
        if not found["start"]:
            return {"days": days}
        return {"days": days, "from": found["start"], "to": found["end"]}


def _number(text: str | None, default: int = 0) -> int:
    """Bounded by the largest value of any field, so that a huge range cannot fill the memory."""
    return min(int(text), _LARGEST) if text else default


def _progression(found: re.Match[str]) -> Numbers:
    numbers = tuple(range(_number(found["first"]), _number(found["last"]) + 1))
    return numbers[:: _number(found["step"])]


# No description is longer; the limit keeps parsing cheap.
_LONGEST = 1000


@lru_cache(maxsize=len(LANGUAGES))
def _sentences(lang: str) -> Sentences:
    return Sentences(words_of(lang))


def parse_description(text: str, lang: str) -> Trigger | None:
    """The trigger whose description is exactly this sentence, else None."""
    sentence = text.strip()
    if lang not in LANGUAGES or len(sentence) > _LONGEST:
        return None
    try:
        candidates = _sentences(lang).candidates(sentence)
    except (ValueError, OverflowError):
        # Numbers out of range.
        return None
    for candidate in candidates:
        try:
            trigger = candidate()
        except (InvalidTrigger, ValueError):
            continue
        if describe(trigger, lang) == sentence:
            return trigger
    return None


def has_limit(text: str, lang: str) -> bool:
    """Whether a clause states an end, a maximum or an exclusion in the words of the describer."""
    try:
        return lang in LANGUAGES and _sentences(lang).has_limit(text.strip())
    except ValueError:
        return True
