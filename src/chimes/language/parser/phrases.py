"""Finds time phrases in a text and combines their parts into one meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from chimes.language.parser.grammars import GRAMMARS, any_of
from chimes.language.parser.parts import (
    AtMinutes,
    Clock,
    Daily,
    Date,
    Delay,
    InMonths,
    Interval,
    InZone,
    MonthDays,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Portion,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
    Span,
    Unclear,
    Weekdays,
)
from chimes.language.parser.rules import DIGIT_RULES, Found, Grammar, RuleSet, moved_hour
from chimes.language.parser.text import is_latin
from chimes.triggers import zone_names

# Zones named in a text: `Asia/Bangkok`, `Bangkok time`, `เวลากรุงเทพ`, `北京时间`.

_PLACES = {
    "Asia/Bangkok": "bangkok thailand thai กรุงเทพมหานคร กรุงเทพฯ กรุงเทพ ไทย ประเทศไทย 曼谷 泰国",
    "Asia/Shanghai": "beijing china shanghai ปักกิ่ง จีน เซี่ยงไฮ้ 北京 中国 上海",
    "Asia/Hong_Kong": "ฮ่องกง 香港",
    "Asia/Taipei": "ไทเป ไต้หวัน taiwan 台北 台湾",
    "Asia/Tokyo": "japan โตเกียว ญี่ปุ่น 东京 日本",
    "Asia/Seoul": "korea โซล เกาหลี 首尔 韩国",
    "Asia/Singapore": "สิงคโปร์ 新加坡",
    "Asia/Kolkata": "india อินเดีย 印度",
    "Asia/Dubai": "ดูไบ 迪拜",
    "Asia/Ho_Chi_Minh": "vietnam เวียดนาม 越南",
    "America/New_York": "นิวยอร์ก 纽约",
    "America/Los_Angeles": "ลอสแอนเจลิส 洛杉矶",
    "Europe/London": "uk ลอนดอน อังกฤษ 伦敦 英国",
    "Europe/Paris": "ปารีส 巴黎",
    "Europe/Berlin": "germany เบอร์ลิน เยอรมนี 柏林 德国",
    "Europe/Moscow": "มอสโก 莫斯科",
    "Australia/Sydney": "ซิดนีย์ 悉尼",
    "UTC": "utc",
}
_WHICH = Problem(("ambiguous",), choice="zone")
_NAME = re.compile(r"[a-z]{2,16}(?:/[a-z_+\-0-9]{1,20}){1,2}")
_OFFSET = re.compile(r"(?:utc|gmt) ?[+-] ?[0-9]{1,2}(?::?[0-9]{2})?(?![0-9a-z])")
# Ambiguous abbreviations: shared by several places, or silent about summer time.
_VAGUE = re.compile(
    r"(?:est|edt|pst|pdt|cst|cdt|mst|mdt|ist|bst|cet|cest|eet|jst|ict"
    r"|hkt|sgt|kst|aest|aedt|acst|awst|msk|wib|nzst|nzdt|akst|akdt|pht|myt|pkt|brt"
    r"|(?:eastern|central|pacific|mountain)(?: (?:standard|daylight))? time"
    r")(?![a-z0-9])"
)
#: The zone given by the caller.
_GIVEN = re.compile(any_of(lambda words: words.local_time))
_UTC = re.compile(r"(?:utc|gmt)(?: time)?(?![a-z0-9+/-]| ?时间)")


@lru_cache(maxsize=1)
def _by_folded() -> dict[str, str]:
    return {name.lower(): name for name in zone_names()}


@lru_cache(maxsize=1)
def _places() -> dict[str, str]:
    known: dict[str, str] = {}
    for name in sorted(zone_names()):
        if "/" in name and not name.startswith("Etc/"):
            known.setdefault(name.rpartition("/")[2].replace("_", " ").lower(), name)
    return known | {word: zone for zone, words in _PLACES.items() for word in words.split()}


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_place_time(grammar)) for grammar in GRAMMARS)


def _place_time(grammar: Grammar) -> str:
    if grammar.script is None:
        return grammar.place_time
    words = sorted((word for words in _PLACES.values() for word in words.split()), key=len)
    places = (re.escape(word) for word in reversed(words) if grammar.script(word[0]))
    return grammar.place_time.replace("PLACES", "|".join(places))


def zone_at(text: str, at: int) -> Found | None:
    """The zone named at this position."""
    for vague in (_OFFSET, _VAGUE):
        if found := vague.match(text, at):
            return Found((_WHICH,), found.end())
    if found := _GIVEN.match(text, at):
        return Found((InZone(""),), found.end())
    if found := _UTC.match(text, at):
        return Found((InZone("UTC"),), found.end())
    if found := _NAME.match(text, at):
        name = _by_folded().get(found[0])
        if name is not None:
            end = found.end() + (5 if text.startswith(" time", found.end()) else 0)
            return Found((InZone(name),), end)
    for pattern in _patterns():
        if (found := pattern.match(text, at)) and (name := _places().get(found["place"])):
            return Found((InZone(name),), found.end())
    return None


# Time phrases: sequences of parts with only joining words between them.

_DIGITS = RuleSet(DIGIT_RULES)
_LATIN = RuleSet(rule for grammar in GRAMMARS if not grammar.script for rule in grammar.rules)
_SCRIPTS = [(each.script, RuleSet(each.rules)) for each in GRAMMARS if each.script]
#: Maximum number of joining words and signs between parts.
_MOST_JOINERS = 8
_LISTING = re.compile(f"[,、&/+]|{any_of(lambda words: words.listing)}")
_JOINING = re.compile(f"{_LISTING.pattern}|[ ()]|{any_of(lambda words: words.joining)}")
_RANGING = re.compile(f" ?(?:-|{any_of(lambda words: words.ranging)}) ?")
_BETWEEN = tuple(grammar.between for grammar in GRAMMARS if grammar.between)
_BETWEEN_AND = re.compile(f" ?(?:{any_of(lambda words: words.between_and)}) ?")


#: Start and end of a piece of text.
Place = tuple[int, int]


class Item(NamedTuple):
    part: Part
    place: Place
    #: After "and" or an equivalent.
    listed: bool


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sequence of parts and the places of text that it covers."""

    stretches: tuple[Place, ...]
    items: tuple[Item, ...]
    #: Time words after it were left to the task.
    trimmed: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(item.part for item in self.items)

    @property
    def start(self) -> int:
        return self.stretches[0][0]

    @property
    def end(self) -> int:
        return self.stretches[-1][1]

    def has(self, *kinds: type[Part]) -> bool:
        return any(isinstance(part, kinds) for part in self.parts)

    def has_only(self, *kinds: type[Part]) -> bool:
        return all(isinstance(part, kinds) for part in self.parts)

    def joined(self, other: Phrase) -> Phrase:
        """Both phrases as one."""
        stretches = (*self.stretches, *other.stretches)
        return Phrase(stretches, (*self.items, *other.items), other.trimmed)

    def first(self, count: int) -> Phrase:
        """Its first parts, which cover one range."""
        items = self.items[:count]
        return Phrase(((self.start, items[-1].place[1]),), items, trimmed=True)


def phrases(text: str) -> list[Phrase]:
    """All time phrases in order."""
    return _Scanner(text).phrases()


class _Scanner:
    """Tries the rules of the script found at each position."""

    def __init__(self, text: str) -> None:
        self.text = text
        scripts = [rules for script, rules in _SCRIPTS if any(map(script, text))]
        self.everything = [_DIGITS, _LATIN, *scripts]
        self.known: dict[int, Found | None] = {}

    def phrases(self) -> list[Phrase]:
        found: list[Phrase] = []
        at = 0
        while at < len(self.text):
            phrase = None if self.text[at] == " " else self._phrase(at)
            if phrase is None:
                at += 1
            else:
                found.append(phrase)
                at = phrase.end
        return found

    def _phrase(self, start: int) -> Phrase | None:
        items: list[Item] = []
        end = at = start
        kept = joiners = 0
        while at < len(self.text) and joiners <= _MOST_JOINERS:
            found = self._part(at)
            if found is not None:
                listed = _is_list(self.text[end:at])
                for part in found.parts:
                    items.append(Item(part, (at, found.end), listed))
                    listed = False
                end = at = found.end
                if _is_loose(items[-1].part):
                    joiners += _MOST_JOINERS // 2
                else:
                    kept, joiners = len(items), 0
                continue
            after = self._joined(at)
            if after is None:
                break
            joiners += 1
            at = after
        # Words such as "until" belong to the time only if a time follows.
        if kept == 0:
            return None
        return Phrase(((start, items[kept - 1].place[1]),), tuple(items[:kept]))

    def _joined(self, at: int) -> int | None:
        """After a space or a joining word."""
        found = None if self._is_inside(at) else _JOINING.match(self.text, at)
        return None if found is None else found.end()

    def _part(self, at: int) -> Found | None:
        if at not in self.known:
            self.known[at] = self._read(at)
        return self.known[at]

    def _read(self, at: int) -> Found | None:
        if self.text[at] == " " or self._is_inside(at):
            return None
        found = zone_at(self.text, at) or self._longest(self._rules(at), at)
        return None if found is None else self._range(at, found)

    def _is_inside(self, at: int) -> bool:
        """Latin words match only from their beginning."""
        text = self.text
        return bool(at) and is_latin(text[at]) and is_latin(text[at - 1])

    def _rules(self, at: int) -> list[RuleSet]:
        character = self.text[at]
        for script, rules in _SCRIPTS:
            if script(character):
                return [rules]
        return [_LATIN] if character.isalpha() else self.everything

    def _longest(self, rule_sets: list[RuleSet], at: int) -> Found | None:
        found = [each for rules in rule_sets if (each := rules.longest(self.text, at))]
        return max(found, key=lambda each: each.end, default=None)

    def _range(self, at: int, first: Found) -> Found:
        """`9:00 to 17:00`; parts that form no range are returned unchanged."""
        start = first.parts[-1]
        if not isinstance(start, Clock):
            return first
        link = _RANGING.match(self.text, first.end)
        if link is None and self.text[:at].rstrip().endswith(_BETWEEN):
            link = _BETWEEN_AND.match(self.text, first.end)
        if link is None:
            return first
        last = self._longest(self.everything, link.end())
        if last is None or len(last.parts) > 1 or not isinstance(last.parts[0], Clock):
            return first
        return Found((*first.parts[:-1], Span(start, last.parts[0])), last.end)


def _is_list(between: str) -> bool:
    return _LISTING.search(between) is not None


def _is_loose(part: Part) -> bool:
    return isinstance(part, Problem) and part.loose


#: One-time days.
SingleDay = Date | RelativeDay | RelativeWeekday | RelativeMonthDay
#: Recurring days.
Days = Daily | Weekdays | MonthDays | Date
P = TypeVar("P")
_NIGHT_ENDS = 6
#: Hours after midnight that are at night on either clock.
_LATE = range(1, 5)
#: Thai hours that combine with a portion of the day: 9 โมงเช้า, บ่าย 3 โมง, 5 โมงเย็น.
_THAI_COUNTS: dict[Portion, range] = {
    "morning": range(6, 12),
    "afternoon": range(1, 6),
    "evening": range(4, 7),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The checked meaning of a phrase. Exactly one of three shapes: a delay; an interval,
    optionally on some days and within some hours; clock times of a day."""

    zone: str | None = None
    delay: Delay | None = None
    interval: Interval | None = None
    span: Span | None = None
    minutes: AtMinutes | None = None
    clocks: tuple[Clock, ...] = ()
    #: A one-time day.
    once: SingleDay | None = None
    #: The weekday named with a date.
    weekday: int | None = None
    #: Recurring days.
    recurring: Days | None = None
    months: frozenset[int] = frozenset()


def meaning_of(phrase: Phrase) -> Meaning:
    """Combines the parts of a phrase. Raises Unclear."""
    phrase = _with_spans(phrase)
    parts = phrase.parts
    problem = next((part for part in parts if isinstance(part, Problem)), None)
    if problem is not None:
        raise Unclear(*problem.missing, choice=problem.choice)
    zone = _only([part.name for part in parts if isinstance(part, InZone)])
    delay = _only(_of(parts, Delay))
    if delay is not None:
        if not phrase.has_only(Delay, InZone, OnlyOnce):
            raise Unclear("contradiction")
        return Meaning(zone, delay=delay)
    days = _days(phrase)
    interval = _only(_of(parts, Interval))
    found = replace(
        days,
        zone=zone,
        interval=interval,
        span=_only(_of(parts, Span)),
        minutes=_only(_of(parts, AtMinutes)),
        clocks=_clocks(phrase),
    )
    if interval is not None:
        return _checked_interval(found, parts)
    return _checked_clocks(found, parts)


def _with_spans(phrase: Phrase) -> Phrase:
    """Combines `from` with the following span or, for an interval, time."""
    repeats = phrase.has(Interval)
    items: list[Item] = []
    for item in phrase.items:
        before, part = items[-1].part if items else None, item.part
        if isinstance(part, Clock) and repeats:
            part = Span(part, None)
        if isinstance(before, Problem) and before.opens_span and isinstance(part, Span):
            items[-1] = items[-1]._replace(part=part)
        else:
            items.append(item)
    return replace(phrase, items=tuple(items))


def _of(parts: Iterable[Part], kind: type[P]) -> list[P]:
    return [part for part in parts if isinstance(part, kind)]


def _only(found: list[P]) -> P | None:
    """The only value, possibly repeated."""
    if not found:
        return None
    if any(each != found[0] for each in found):
        raise Unclear("contradiction")
    return found[0]


def _checked_interval(found: Meaning, parts: tuple[Part, ...]) -> Meaning:
    if found.once is not None or found.clocks or _of(parts, OnlyOnce):
        raise Unclear("contradiction")
    if _of(parts, PartOfDay):
        raise Unclear("ambiguous")
    return found


def _checked_clocks(found: Meaning, parts: tuple[Part, ...]) -> Meaning:
    if found.span is not None:
        raise Unclear("ambiguous" if found.once else "interval")
    if found.minutes is not None:
        raise Unclear("contradiction" if found.clocks else "time")
    if _of(parts, OnlyOnce) and found.recurring is not None:
        raise Unclear("contradiction")
    days = found.once is not None or found.recurring is not None
    if not found.clocks:
        raise Unclear("time") if days else Unclear("date", "time")
    if not days:
        raise Unclear("date")
    if found.once is not None:
        if len(found.clocks) > 1:
            raise Unclear("ambiguous")
        if found.clocks[0].midnight:
            # Which of the two nights around that day?
            raise Unclear("ambiguous", choice="night")
    return found


def _clocks(phrase: Phrase) -> tuple[Clock, ...]:
    portions = {part.portion for part in phrase.parts if isinstance(part, PartOfDay)}
    if len(portions) > 1:
        raise Unclear("contradiction")
    found: list[Clock] = []
    for part, _, listed in phrase.items:
        if not isinstance(part, Clock):
            continue
        if found and not listed and part not in found:
            raise Unclear("contradiction")
        found.append(part)
    read = [_placed(each, portions) for each in found]
    ordered = sorted(set(read), key=lambda each: (each.hour, each.minute, each.second))
    return tuple(ordered)


def _placed(clock: Clock, portions: Iterable[Portion]) -> Clock:
    """The clock time in the named half of the day."""
    plain = replace(clock, certainty="certain", marked=False, whole=False, thai_count=False)
    for portion in portions:
        if clock.thai_count and clock.hour not in _THAI_COUNTS.get(portion, ()):
            raise Unclear("ambiguous", readings=_halves(clock) if clock.certainty == "open" else ())
        if clock.midnight:
            raise Unclear("ambiguous")
        if clock.certainty == "certain" and portion == "night" and clock.hour < _NIGHT_ENDS:
            # Close to midnight: the night before or after that day?
            return replace(plain, midnight=True)
        if portion == "night" and clock.whole and not clock.thai_count and clock.hour in _LATE:
            # "Every night at 2": no other 2 o'clock is at night.
            return replace(plain, midnight=True)
        hour = moved_hour(clock.hour, portion)
        if clock.certainty == "certain":
            # 9 am "in the evening" is a contradiction.
            allowed = clock.hour == hour or (clock.hour >= 12 and isinstance(hour, int))
            if not allowed or isinstance(hour, Problem):
                raise Unclear("contradiction")
            return plain
        if isinstance(hour, Problem):
            raise Unclear(*hour.missing)
        return replace(plain, hour=hour)
    if clock.certainty == "open":
        raise Unclear("ambiguous", readings=_halves(clock))
    return plain


def _halves(clock: Clock) -> tuple[str, str]:
    """The two possible times of an ambiguous hour."""
    late = clock.hour % 12 + 12
    early = clock.hour + 6 if clock.thai_count and clock.hour < _NIGHT_ENDS else late - 12
    return f"{early:02}:{clock.minute:02}", f"{late:02}:{clock.minute:02}"


def _days(phrase: Phrase) -> Meaning:
    """The one reading of all day parts together."""
    parts = phrase.parts
    period = _only(_of(parts, Period))
    months = frozenset[int]().union(*(each.months for each in _of(parts, InMonths)))
    once: list[SingleDay] = [
        part
        for part in parts
        if isinstance(part, RelativeDay | RelativeWeekday | RelativeMonthDay)
        or (isinstance(part, Date) and not part.every and (period is None or period.unit != "year"))
    ]
    named = _named(phrase)
    month_days = _month_days(phrase)
    yearly = [
        replace(part, every=True)
        for part in _of(parts, Date)
        if part.every or (period is not None and period.unit == "year")
    ]
    daily = _of(parts, Daily)[:1]
    if daily and named and _is_each_of(parts, named):
        daily = []
    if once:
        return _once(once, named, bool(daily or month_days or yearly or period or months))
    kinds: list[Days] = [
        *daily,
        *([named] if named else []),
        *([month_days] if month_days else []),
        *yearly[:1],
    ]
    _only(list(yearly))
    if len(kinds) > 1:
        raise Unclear("contradiction")
    if not kinds:
        if period is not None:
            raise Unclear("date") if _of(parts, Clock) else Unclear("date", "time")
        return Meaning(months=months)
    return Meaning(recurring=_recurring(kinds[0], period), months=months)


def _is_each_of(parts: tuple[Part, ...], named: Weekdays) -> bool:
    """`周一到周五每天`: "every day" of the days named before."""
    kinds = [type(part) for part in parts if isinstance(part, Daily | Weekdays)]
    return len(named.weekdays) > 1 and kinds[-1] is Daily and kinds.count(Daily) == 1


def _once(once: list[SingleDay], named: Weekdays | None, others: bool) -> Meaning:
    day = _only(once)
    if others or (named is not None and (named.every or len(named.weekdays) > 1)):
        raise Unclear("contradiction")
    weekday = None if named is None else next(iter(named.weekdays))
    return Meaning(once=day, weekday=weekday)


def _recurring(days: Days, period: Period | None) -> Days:
    unit = None if period is None else period.unit
    if isinstance(days, Daily):
        if unit is not None:
            raise Unclear("contradiction")
    elif isinstance(days, Weekdays):
        if unit not in (None, "week"):
            raise Unclear("contradiction")
        if not days.every and unit is None and len(days.weekdays) == 1:
            # The coming one or every one?
            raise Unclear("ambiguous", choice="weekly")
    elif isinstance(days, MonthDays):
        if unit not in (None, "month"):
            raise Unclear("contradiction")
        if not days.every and unit is None:
            raise Unclear("date")
    return days


def _named(phrase: Phrase) -> Weekdays | None:
    found: Weekdays | None = None
    for part, _, listed in phrase.items:
        if not isinstance(part, Weekdays):
            continue
        if found is None or part.weekdays == found.weekdays:
            found = Weekdays(part.weekdays, part.every or (found is not None and found.every))
        elif listed:
            found = Weekdays(found.weekdays | part.weekdays, found.every or part.every)
        else:
            raise Unclear("contradiction")
    return found


def _month_days(phrase: Phrase) -> MonthDays | None:
    found: MonthDays | None = None
    for part, _, listed in phrase.items:
        if not isinstance(part, MonthDays):
            continue
        if found is None:
            found = part
        elif listed and found.weekday == part.weekday:
            terms = (*found.terms, *(term for term in part.terms if term not in found.terms))
            found = replace(found, terms=terms, every=found.every or part.every)
        else:
            raise Unclear("contradiction")
    return found
