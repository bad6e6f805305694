"""The grammar of English."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parser import parts, rules
from chimes.language.parser.rules import Common, Grammar, Parts, Rule, ToParts, rule

# Numerals.

_ONES = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second"),
    *("twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh"),
    *("twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)
_NUMBERS = {"zero": 0, "a": 1, "an": 1, **_TENS}
_NUMBERS |= {word: index + 1 for words in (_ONES, _ORDINALS) for index, word in enumerate(words)}
_ONE = rules.alternatives(_ONES)
WORD = rf"(?:zero|(?:{'|'.join(_TENS)})(?:[- ]{_ONE})?|{_ONE})(?![a-z])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"
HOUR = rf"(?:[0-9]{{1,2}}|{WORD})"
ORDINAL_WORD = rules.alternatives(_ORDINALS)
#: 1st, 2nd, fifteenth.
ORDINAL = rf"(?:[0-9]{{1,2}}(?:st|nd|rd|th)|{ORDINAL_WORD})(?![a-z0-9])"


def number(text: str) -> int:
    """The value of `15`, `fifteen`, `15th` or `fifteenth`."""
    digits = text.rstrip("dhnrst")
    if digits.isdigit():
        return int(digits)
    if text in _NUMBERS:
        return _NUMBERS[text]
    return sum(_NUMBERS[word] for word in text.replace("-", " ").split())


# Durations.

END = r"(?![a-z0-9])"
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "milli": timedelta(milliseconds=1),
}
_UNIT = r"(?:hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|milliseconds?)(?![a-z0-9])"
_COUNT = rf"(?:[0-9]{{1,6}}(?:\.[0-9]{{1,2}})?|{WORD}|an?)"
_PIECE = rf"{_COUNT}[ -]?{_UNIT}"
_DURATION_LINK = r"(?:,? and |, ?| )"
_HALVES = (
    r"half(?:[ -]an?)?[ -]hour|half[ -]a[ -]minute|(?:a )?quarter(?: of)? an hour"
    r"|(?:a )?quarter[ -]hour"
)
# `2 hours and a half`, `two and a half hours`, `an hour and a half`.
_AND_HALF = (
    rf"(?:(?:{_COUNT}[ -])?(?:hours?|hrs?|minutes?|mins?) and a half"
    rf"|{_COUNT} and a half (?:hours?|hrs?|minutes?|mins?))"
)
_SHORT = r"[0-9]{1,4}h[0-9]{1,4}m"
DURATION = (
    rf"(?:(?:{_HALVES}|{_AND_HALF}|{_SHORT}){END}|{_PIECE}(?:{_DURATION_LINK}{_PIECE}){{0,3}})"
)


def duration(text: str) -> timedelta:
    if re.fullmatch(_HALVES, text):
        if "quarter" in text:
            return timedelta(minutes=15)
        return _UNITS["m" if "minute" in text else "h"] / 2
    if re.fullmatch(_AND_HALF, text):
        unit = _UNITS["m" if "min" in text else "h"]
        count = re.match(_COUNT, text)
        return duration(f"{count[0] if count else 'a'} {'m' if 'min' in text else 'h'}") + unit / 2
    if re.fullmatch(_SHORT, text):
        hours, _, minutes = text[:-1].partition("h")
        return timedelta(hours=int(hours), minutes=int(minutes))
    total = timedelta(0)
    for item in re.finditer(rf"({_COUNT})[ -]?({_UNIT})", text):
        unit = _UNITS["milli"] if item[2].startswith("milli") else _UNITS[item[2][0]]
        amount = item[1]
        if "." in amount:
            whole, _, part = amount.partition(".")
            total += unit * int(whole) + unit * int(part) / 10 ** len(part)
        else:
            total += unit * number(amount)
    return total


# Times of day.

_AT = r"(?P<at>(?:at|@)(?: exactly)? ?)?"
_HOUR = rf"(?P<h>{HOUR})"
_AM_PM = r"(?P<half>a\.?m\.?|p\.?m\.?)(?![a-z0-9])"
_SHARP = r"(?: ?(?:sharp|exactly|on the dot))?"


def _twelve_hour_clock(
    hour: int, minute: int, half: str, second: int = 0
) -> parts.Clock | parts.Problem:
    """On the 12-hour clock: 12am is midnight, 12pm noon."""
    if not 1 <= hour <= 12:
        return parts.Problem(("contradiction",))
    read = rules.clock(hour % 12 + (12 if half.startswith("p") else 0), minute, second)
    if isinstance(read, parts.Clock) and read.hour == read.minute == 0:
        return parts.Clock(0, 0, second, midnight=True)
    return read


def _with_am_pm(found: re.Match[str]) -> Parts:
    minute, second = number(found["m"] or "0"), int(found["s"] or 0)
    return rules.marked(
        _twelve_hour_clock(number(found["h"]), minute, found["half"], second), found
    )


def _digital(found: re.Match[str]) -> Parts:
    """`09:00`, `at 9:30`, `15:00 hrs`."""
    return rules.digital(*found.group("h", "m", "s", "f"), at=bool(found["at"]))


def _hour_only(found: re.Match[str]) -> Parts:
    """`at 9`, `9 o'clock`: ambiguous up to twelve, 24-hour clock from thirteen on."""
    hour = number(found["h"])
    if hour > 23:
        return (parts.IMPOSSIBLE,)
    certainty: parts.Certainty = "certain" if hour > 12 else "open"
    return rules.marked(parts.Clock(hour, certainty=certainty, whole=True), found)


def _military(found: re.Match[str]) -> Parts:
    return rules.marked(rules.clock(int(found["h"]), int(found["m"])), found)


_PORTIONS: dict[str, parts.Portion] = {
    "in the morning": "morning",
    "in the afternoon": "afternoon",
    "in the evening": "evening",
    "at night": "night",
}


def _with_portion(found: re.Match[str]) -> Parts:
    """`9 in the morning`, also as an element of a list."""
    minute = int(found["m"] or 0)
    return rules.marked(
        rules.in_portion(number(found["h"]), minute, _PORTIONS[found["portion"]]), found
    )


_DAY_PORTIONS: tuple[parts.Portion, ...] = ("morning", "afternoon", "evening", "night")
_MINUTES = {"half": 30, "quarter": 15, "a quarter": 15}


def _past_or_to(found: re.Match[str]) -> Parts:
    """`half past 9`, `quarter to 9am`, `ten past noon`."""
    count = found["n"]
    minute = _MINUTES.get(count) or number(count)
    if minute > 59:
        return (parts.IMPOSSIBLE,)
    if found["way"] != "past" and count.isdigit() and int(count) <= 12 and not found["unit"]:
        # "10 to 11am" may be ten minutes or an hour.
        return (parts.AMBIGUOUS,)
    hour = 12 if found["noon"] else number(found["h"])
    if not 1 <= hour <= 12:
        return (parts.Problem(("contradiction",)),)
    half = "pm" if found["noon"] else found["half"]
    certainty: parts.Certainty = "certain" if half else "open"
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    total = hour * 60 + (minute if found["way"] == "past" else -minute)
    return rules.marked(parts.Clock(total // 60 % 24, total % 60, certainty=certainty), found)


_PAST_OR_TO = (
    rf"{_AT}(?P<n>half|a quarter|quarter|{NUMBER})(?P<unit> minutes?| mins?)? "
    r"(?P<way>past|to|before|till) "
)
_DURING = r"(?:(?:in|during) the )"
_CLOCK_RULES: list[Rule] = [
    rule(rf"{_AT}(?P<h>{WORD})[ -](?P<m>{WORD})(?P<s>) ?{_AM_PM}{_SHARP}", _with_am_pm),
    rule(rf"{_AT}(?P<h>[0-9]{{1,2}})h(?P<m>[0-9]{{2}}){END}", _military),
    rule(
        rf"{_AT}{_HOUR}(?:[:.](?P<m>[0-9]{{2}})(?::(?P<s>[0-9]{{2}}))?)? ?{_AM_PM}{_SHARP}",
        _with_am_pm,
    ),
    rule(
        rf"{_AT}(?P<h>[0-9]{{1,2}})[:.](?P<m>[0-9]{{2}})"
        r"(?::(?P<s>[0-9]{2})(?:\.(?P<f>[0-9]{1,6}))?)?"
        rf"(?: ?(?:hours|hrs?|h|o'?clock))?(?![a-z0-9]|[:.,][0-9]){rules.NO_PRICE}{_SHARP}",
        _digital,
    ),
    rule(
        rf"(?P<at>(?:at|@) ?){_HOUR}(?: ?o'? ?clock)?(?![a-z0-9]|[:.,/][0-9]| ?%){_SHARP}",
        _hour_only,
    ),
    rule(rf"(?P<at>){_HOUR} ?o'? ?clock{END}{_SHARP}", _hour_only),
    rule(
        rf"{_AT}{_HOUR}(?:[:.](?P<m>[0-9]{{2}}))?(?: ?o'? ?clock)? "
        rf"(?P<portion>{'|'.join(_PORTIONS)}){END}",
        _with_portion,
    ),
    rule(
        r"(?P<at>(?:at|@) ?)(?P<h>[0-9]{2})(?P<m>[0-9]{2})(?: ?(?:hours|hrs?|h))?(?![a-z0-9:.-])",
        _military,
    ),
    rule(r"(?P<at>)(?P<h>[0-9]{2})(?P<m>[0-9]{2}) ?(?:hours|hrs|h)(?![a-z0-9])", _military),
    rule(r"(?P<at>)(?P<h>0[0-9])(?P<m>[0-5][0-9])(?![a-z0-9:.,/-])", _military),
    rule(
        rf"{_PAST_OR_TO}(?:{_HOUR}(?: ?{_AM_PM}|(?: ?o'? ?clock)?{END})"
        rf"|(?P<noon>noon|midday){END})",
        _past_or_to,
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?(?:noon|midday|noontime){END}",
        lambda found: rules.marked(parts.Clock(12), found),
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?midnight{END}",
        lambda found: rules.marked(parts.Clock(0, midnight=True), found),
    ),
    *(
        rule(rf"{_DURING}?(?:early |late )?{portion}s?{END}", parts.PartOfDay(portion))
        for portion in _DAY_PORTIONS[:-1]
    ),
    rule(rf"(?:at |{_DURING})?(?:late )?nights?{END}", parts.PartOfDay("night")),
]


# Days.

_DAY_END = r"(?![a-z0-9]|'s)"
_DAY_NAMES = (
    ("sunday", "sun"),
    ("monday", "mon"),
    ("tuesday", "tues", "tue"),
    ("wednesday", "weds", "wed"),
    ("thursday", "thurs", "thur", "thu"),
    ("friday", "fri"),
    ("saturday", "sat"),
)
_MONTH_NAMES = (
    *(("january", "jan"), ("february", "feb"), ("march", "mar"), ("april", "apr"), ("may",)),
    *(("june", "jun"), ("july", "jul"), ("august", "aug"), ("september", "sept", "sep")),
    *(("october", "oct"), ("november", "nov"), ("december", "dec")),
)
_WEEKDAYS = {name: day for day, names in enumerate(_DAY_NAMES) for name in names}
_MONTHS = {name: index + 1 for index, names in enumerate(_MONTH_NAMES) for name in names}
_DAY = rf"(?:{'|'.join(_WEEKDAYS)})"
_MONTH = rf"(?:{'|'.join(_MONTHS)})\.?(?![a-z])"
#: One weekday: `Monday`, `Mondays`, `Mon.`.
_W = rf"{_DAY}(?:s|\.)?{_DAY_END}"
_TO = r" ?(?:-|to|through|thru|until|till) ?"
_ITEM = rf"{_W}(?:{_TO}{_W})?"
_LINK = r"(?: ?(?:,? ?and(?: on)?|,|&|/|\+) ?(?:every |on )?| )"
_LIST = rf"{_ITEM}(?:{_LINK}{_ITEM}){{0,7}}"
_EVERY = r"(?:once )?(?:every|each)(?: single)? "
_WORKING = r"(?:weekday|week day|workday|work day|working day|business day)"


def weekdays(text: str) -> frozenset[int]:
    """The days of `Monday to Friday and Sunday`."""
    pattern = rf"(?<![a-z])({_DAY})s?\.?(?:{_TO}({_DAY})s?(?![a-z]))?"
    return rules.numbers_of(pattern, _WEEKDAYS, text)


_common = Common(number, weekdays, duration)
_PLURAL = re.compile(rf"(?:{'|'.join(names[0] for names in _DAY_NAMES)})s")


def _weekdays(found: re.Match[str]) -> Parts:
    every = found[0].startswith(("every", "each", "once")) or _PLURAL.search(found[0]) is not None
    return (parts.Weekdays(weekdays(found[0]), every),)


def _weekday_portion(portion: parts.Portion) -> ToParts:
    """`weekday mornings`, `Friday evenings`: the plural means every one."""

    def to_parts(found: re.Match[str]) -> Parts:
        days = weekdays(found["list"]) or parts.WORKING_DAYS.weekdays
        return parts.Weekdays(days, every=True), parts.PartOfDay(portion)

    return to_parts


# Days of a month: `the 1st and the 15th`, `the last day`, `the second Monday`.
_NTH = r"(?:first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))"
_MONTH_DAY = (
    rf"(?:(?:the )?(?:{_NTH} (?:{_W}|{_WORKING}{_DAY_END}|day{_DAY_END})"
    rf"|(?:very )?last day{_DAY_END}|{ORDINAL}(?: day{_DAY_END})?)"
    r"|day [0-9]{1,2}(?![0-9a-z:.]))"
)
_MONTH_DAYS = rf"(?P<days>{_MONTH_DAY}(?: ?(?:,? ?and(?: on)?|,|&) ?{_MONTH_DAY}){{0,9}})"
_EACH_MONTH = r"(?: (?:of|in) (?:every|each|all) months?| (?:every|each) month| monthly)(?![a-z])"
_THE_MONTH = r"(?: of (?:the|a) month(?![a-z]))"
_ON = r"(?:on )?"
#: An ordinal that is not a date: `second coffee`.
_LONE_ORDINAL = rf"{ORDINAL_WORD}(?![a-z])(?! (?:{_DAY}|{_WORKING}|day|of|and)|,)"


def _month_days(every: bool, text: str) -> Parts:
    dates: list[str] = []
    days: list[str] = []
    for item in re.split(r",? and(?: on)? |, ?| ?& ?", text):
        term, by_weekday = _month_term(item.removeprefix("on ").removeprefix("the "))
        if term is None:
            return (parts.NO_DATE,)
        (days if by_weekday else dates).append(term)
    if dates and days:
        return (parts.AMBIGUOUS,)
    return (parts.MonthDays(tuple(dict.fromkeys(dates or days)), every, bool(days)),)


def _month_term(text: str) -> tuple[str | None, bool]:
    nth, _, what = text.removeprefix("very ").partition(" ")
    if not what:
        day = number(nth)
        return (str(day) if 1 <= day <= 31 else None), False
    if nth == "day":
        return (what if 1 <= int(what) <= 31 else None), False
    if re.fullmatch(_WORKING, what):
        return {"last": "LW", "first": "1W", "1st": "1W"}.get(nth), False
    if what == "day":
        return ("L" if nth == "last" else str(number(nth))), False
    weekday = _common.weekday(what)
    return (f"{weekday}L" if nth == "last" else f"{weekday}#{number(nth)}"), True


def _monthly(every: bool) -> ToParts:
    return lambda found: _month_days(every, found["days"])


def _every_nth(found: re.Match[str]) -> Parts:
    """`every second Monday` is ambiguous: every other one, or one in each month."""
    if re.match(rf"(?:second|third|fourth|2nd|3rd|4th) {_W}", found["days"]):
        return (parts.AMBIGUOUS,)
    return _month_days(True, found["days"])


_DATE_DAY = rf"(?P<day>{ORDINAL}|[0-9]{{1,2}}(?![0-9:.]))"
_YEAR = r"(?P<year>(?:,? ?|,? of |-)(?:19|2[0-9])[0-9]{2}(?![0-9:.]|[a-z]))?"
_EVERY_DATE = rf"(?P<every>{_EVERY}(?:year(?: on)? )?)?"
_WEEKDAY_FIRST = rf"(?:(?P<w>{_W}),? (?:the )?)?"


def _date(found: re.Match[str]) -> Parts:
    digits = re.sub(r"\D", "", found["year"] or "")
    year = rules.christian_year(int(digits)) if digits else None
    month = _MONTHS[found["month"].rstrip(".")]
    return _common.date(found, year, month, every=bool(found["every"]))


_COUNTED: dict[str, parts.Part] = {
    "day": parts.Daily(),
    "week": parts.Period("week"),
    "month": parts.Period("month"),
    "year": parts.Period("year"),
}


def _months(found: re.Match[str]) -> Parts:
    name = rules.alternatives(_MONTHS)
    pattern = rf"({name})\.?(?: ?(?:-|to|through) ?({name}))?"
    return (parts.InMonths(rules.numbers_of(pattern, _MONTHS, found[0], first=1)),)


_MONTH_ITEM = rf"{_MONTH}(?: ?(?:-|to|through) ?{_MONTH})?"
_MONTH_LIST = rf"{_MONTH_ITEM}(?:(?:,? and |, ?){_MONTH_ITEM}){{0,11}}"
_MANY = r"(?:other|second|2nd|third|3rd|fourth|4th|few|couple of|several|alternate|odd|even)"
_PERIOD = r"(?:day|week|month|year)"


def _relative_month_day(found: re.Match[str]) -> Parts:
    return (parts.RelativeMonthDay(number(found["day"]), int(found["which"] == "next")),)


_DAY_RULES: list[Rule] = [
    rule(
        rf"(?:(?:once )?(?:every ?day(?: of the week)?|each day|every single day|daily)"
        rf"|once (?:a|per) day){_DAY_END}",
        parts.Daily(),
    ),
    *(
        each
        for portion in _DAY_PORTIONS
        for each in (
            rule(rf"{_EVERY}{portion}{_DAY_END}", (parts.Daily(), parts.PartOfDay(portion))),
            rule(rf"this {portion}{_DAY_END}", (parts.RelativeDay(0), parts.PartOfDay(portion))),
            rule(
                rf"(?:{_EVERY}|on )?(?P<list>{_LIST}|{_WORKING}) {portion}s{_DAY_END}",
                _weekday_portion(portion),
            ),
        )
    ),
    rule(rf"nightly{_DAY_END}", (parts.Daily(), parts.PartOfDay("night"))),
    rule(rf"(?:{_EVERY}{_WORKING}s?|(?:on )?(?:all )?{_WORKING}s){_DAY_END}", parts.WORKING_DAYS),
    rule(rf"(?:{_EVERY}weekend(?: day)?s?|(?:on |at )?(?:the )?weekends){_DAY_END}", parts.WEEKEND),
    rule(rf"(?:{_EVERY}|on (?:every |each )?)?{_LIST}", _weekdays),
    rule(
        rf"(?:every ?day,?(?: from)?|from) (?P<range>{_W}{_TO}{_W})",
        lambda found: (parts.Weekdays(weekdays(found["range"]), every=True),),
    ),
    rule(rf"(?:{_EVERY}week|weekly|once (?:a|per) week){_DAY_END}", parts.Period("week")),
    rule(rf"(?:{_EVERY}month|monthly|once (?:a|per) month){_DAY_END}", parts.Period("month")),
    rule(rf"(?:{_EVERY}year|yearly|annually|once (?:a|per) year){_DAY_END}", parts.Period("year")),
    rule(rf"every (?P<n>{NUMBER}) ?(?P<u>{_PERIOD})s?(?! of){_DAY_END}", _common.counted(_COUNTED)),
    rule(
        rf"every {_MANY} {_PERIOD}s?{_DAY_END}|every (?:quarter|fortnight|decade){_DAY_END}"
        rf"|(?:bi-?weekly|bi-?monthly|fortnightly|quarterly|bi-?annually){_DAY_END}"
        rf"|(?:every )?(?:other|alternate) {_W}"
        rf"|(?:twice|{NUMBER} times|several times) (?:an?|per|every) (?:hour|{_PERIOD}){_DAY_END}"
        rf"|twice daily{_DAY_END}",
        parts.NO_INTERVAL,
    ),
    rule(rf"(?:on )?last {_W}", parts.YESTERDAY),
    rule(rf"{_ON}{_MONTH_DAYS}{_EACH_MONTH}", _monthly(every=True)),
    rule(
        rf"(?:on |(?!{_LONE_ORDINAL})){_MONTH_DAYS}{_THE_MONTH}?",
        _monthly(every=False),
    ),
    rule(rf"{_EVERY}{_MONTH_DAYS}{_THE_MONTH}", _monthly(every=True)),
    rule(rf"{_EVERY}(?!day |second(?! (?:{_DAY}|{_WORKING}|day))){_MONTH_DAYS}", _every_nth),
    rule(
        rf"(?:(?:at )?(?:the )?end of (?:every|each) month|every month[- ]end){_DAY_END}",
        parts.MonthDays(("L",), every=True),
    ),
    rule(
        rf"(?:on )?{_EVERY_DATE}{_WEEKDAY_FIRST}(?:the )?{_DATE_DAY}(?: day)?[ -]?(?:of )?"
        rf"(?P<month>{_MONTH}){_YEAR}",
        _date,
    ),
    rule(
        rf"(?:on )?{_EVERY_DATE}{_WEEKDAY_FIRST}(?P<month>{_MONTH}) (?:the )?{_DATE_DAY}{_YEAR}",
        _date,
    ),
    rule(rf"(?:in|from|only in) {_MONTH_LIST}", _months),
    rule(rf"(?:until|till|through|thru)(?: the)?(?: end of)? {_MONTH}(?! [0-9])", parts.LIMITED),
    rule(rf"today{_DAY_END}", parts.RelativeDay(0)),
    rule(rf"tonight{_DAY_END}", (parts.RelativeDay(0), parts.PartOfDay("night"))),
    rule(rf"(?:tomorrow|tmrw|tmr){_DAY_END}", parts.RelativeDay(1)),
    rule(rf"(?:on )?(?:the )?day after tomorrow{_DAY_END}", parts.RelativeDay(2)),
    rule(rf"yesterday{_DAY_END}", parts.YESTERDAY),
    rule(
        rf"in (?P<n>a|{NUMBER}) (?P<u>day|week)s?(?: time| from now)?{_DAY_END}",
        _common.ahead("day"),
    ),
    rule(
        rf"(?P<n>a|{NUMBER}) (?P<u>day|week)s? from (?:now|today){_DAY_END}", _common.ahead("day")
    ),
    rule(rf"(?:on )?this (?P<w>{_W})", _common.week(0)),
    rule(rf"(?:on )?(?:this |the )?(?:coming|upcoming) (?P<w>{_W})", _common.week(None)),
    rule(rf"(?:on )?next (?P<w>{_W})", _common.week(1, either=True)),
    rule(rf"(?:on )?(?P<w>{_W}),? (?:of )?next week{_DAY_END}", _common.week(1)),
    rule(rf"next week,?(?: on)? (?P<w>{_W})", _common.week(1)),
    rule(rf"(?:on )?(?P<w>{_W}),? (?:of )?this week{_DAY_END}", _common.week(0)),
    rule(rf"this week,?(?: on)? (?P<w>{_W})", _common.week(0)),
    rule(
        rf"(?:on )?the (?P<day>{ORDINAL}) of (?P<which>next|this) month{_DAY_END}",
        _relative_month_day,
    ),
    rule(rf"(?P<which>next|this) month,? on the (?P<day>{ORDINAL})", _relative_month_day),
    rule(rf"(?:next|this) (?:week|month|year){_DAY_END}", parts.Problem(("date",), loose=True)),
    rule(rf"(?:(?:just )?once(?: only)?|one time|only once){_DAY_END}", parts.OnlyOnce()),
]


# Intervals, delays, ranges of hours and limits.


def _minutes(found: re.Match[str]) -> Parts:
    minutes = frozenset(int(each) for each in re.findall("[0-9]+", found[0]))
    return (parts.AtMinutes(minutes),) if max(minutes) <= 59 else (parts.IMPOSSIBLE,)


_EACH = r"(?:once )?(?:every|each) "
_UNIT_WORD = r"(?:h|hr|hour|m|min|minute|s|sec|second|millisecond|day|week|month|year)"
_TIME_FOLLOWS = (
    r"(?= (?:at |on )?(?:[0-9]|noon|midnight|mon|tue|wed|thu|fri|sat|sun|tomorrow|today|every))"
)
_INTERVAL_RULES: list[Rule] = [
    rule(rf"{_EACH}(?P<d>{DURATION})", _common.interval),
    rule(
        rf"{_EACH}(?P<d>hour|minute|second(?! (?:day|week|month|year|\w+day))){END}",
        lambda found: (parts.Interval(_UNITS[found["d"][0]]),),
    ),
    rule(rf"(?:hourly|once an hour){END}", parts.Interval(timedelta(hours=1))),
    rule(
        rf"every (?P<n>{NUMBER}) days of 24 hours{END}",
        lambda found: (parts.Interval(timedelta(days=number(found["n"]))),),
    ),
    rule(rf"every (?:other|few|couple of|several|some) {_UNIT_WORD}s?{END}", parts.NO_INTERVAL),
    rule(rf"every - ?[0-9]+ ?{_UNIT}", parts.NO_INTERVAL),
    rule(
        r"every -? ?[0-9]+(?:\.[0-9]+)?(?![0-9.:/]|st|nd|rd|th)"
        rf"(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        parts.NO_UNIT,
    ),
    rule(rf"(?:in|after) (?P<d>{DURATION})(?: time| from now)?{END}", _common.delay),
    rule(rf"(?P<d>{DURATION}) (?:from now|later){END}", _common.delay),
    rule(r"in [0-9]+(?= ?$)", parts.NO_UNIT),
    rule(
        rf"(?:(?<=me )|^)in [0-9]{{1,6}}(?= [a-z])(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        parts.NO_UNIT,
    ),
    rule(
        rf"(?:in|{_EACH.rstrip()}) (?:[0-9]{{7,}}|[0-9]+[/⁄][0-9]+)(?: of)?"
        rf"(?: an?)? ?{_UNIT}",
        parts.NO_INTERVAL,
    ),
    rule(rf"(?:in|{_EACH.rstrip()}) {NUMBER} ?(?:-|to|or) ?{NUMBER} ?{_UNIT}", parts.AMBIGUOUS),
    rule(rf"in (?:a few|a couple of|several|some) {_UNIT_WORD}s?{END}", parts.NO_INTERVAL),
    rule(rf"in (?:about|around|roughly|approximately|maybe|almost) {DURATION}", parts.AMBIGUOUS),
    rule(r"at :[0-9]{2}(?:(?:,| and) ?:[0-9]{2}){0,11}(?![0-9])", _minutes),
    rule(
        r"(?:at )?minutes? [0-9]{1,2}(?:(?:, ?| and )[0-9]{1,2}){0,11}(?![0-9:.])"
        r"(?: past(?: the hour)?)?",
        _minutes,
    ),
    rule(
        rf"(?:at )?[0-9]{{1,2}} (?:minutes )?past(?: the)? (?:every |each )?hour{END}",
        _minutes,
    ),
    rule(
        rf"(?:at )?(?:a )?quarter past(?: the| every)? hour{END}",
        parts.AtMinutes(frozenset({15})),
    ),
    rule(
        rf"on the half[ -]hour{END}|(?:at )?half past (?:the|every) hour{END}",
        parts.AtMinutes(frozenset({30})),
    ),
    rule(rf"on the hour{END}", parts.AtMinutes(frozenset({0}))),
    rule(
        r"(?:from |between )?(?P<first>[0-9]{1,2}) ?(?:-|to|and) ?(?P<last>[0-9]{1,2})"
        r"(?![0-9:.a-z%/]| ?[ap]\.?m)(?: ?(?:hours|hrs|h)(?![a-z]))?",
        rules.whole_hours,
    ),
    rule(
        r"(?:around|about|approximately|approx\.?|roughly|circa|sometime|some time|near|before"
        r"|after|by|past)(?= (?:[0-9]|noon|midnight|at|in the|tomorrow|today|next|this))",
        parts.VAGUE,
    ),
    rule(rf"or{_TIME_FOLLOWS}", parts.VAGUE),
    rule(
        r"(?:until|till|except(?: for)?(?: on)?|excluding|but(?: not)?(?: on)?|other than"
        r"|through|thru|starting(?: from| on)?|beginning(?: on)?|since|ending|unless"
        r"|skip(?:ping)?)(?![a-z])",
        parts.RESIDUE,
    ),
    rule(
        r"(?:except(?: for)?|excluding|but not|other than|skip(?:ping)?)(?: on)?(?: the| any| all)?"
        rf"(?: public| bank| national)? (?:holidays?|weekends?){END}",
        parts.LIMITED,
    ),
    rule(r"from(?![a-z])", parts.SPAN_OR_RESIDUE),
    rule(
        rf"for (?:the )?(?:next |first )?(?:an?|{NUMBER}) (?:day|week|month|year|time)s?(?! of)"
        rf"{END}"
        rf"|onwards?{END}|at the latest{END}|or so{END}|-?ish{END}",
        parts.LIMITED,
    ),
]


# Recipients.

#: The channel is not followed by more words about it: `to telegram`, not `to telegram users`.
_CHANNEL_END = r"(?=$| ?[,.;:!?)]| (?:and|if|when|then|please|only|too|as|with|at|about)(?![a-z]))"
_SENDS = (
    r"(?<![a-z])(?:send|sends|post|notify|tell|message|report|deliver|push|ping|alert|remind"
    r"|forward|share|write|put|drop|let me know|inform|e-?mail)(?![a-z])"
)

GRAMMAR = Grammar(
    code="en",
    name="english",
    examples=(
        "every weekday at 9am summarise the news",
        "tomorrow at 14:30 call the supplier",
        "every 15 minutes check the site",
        "on the last day of every month at 18:00 send the report",
    ),
    rules=[*_CLOCK_RULES, *_DAY_RULES, *_INTERVAL_RULES],
    duration=duration,
    joining=r"(?:at|on|in|of|the|for|@|between)(?![a-z0-9])",
    listing=r"and(?![a-z0-9])",
    ranging="to|until|till|through",
    between="between",
    between_and="and",
    request=(
        r"(?:please|pls|kindly|hey|hi|can you|could you|would you|will you|i want you to"
        r"|i'd like you to|remind me|reminder|remind us|notify me|alert me|tell me|ping me"
        r"|wake me up|set|schedule|run|an?|me|to)(?![a-z0-9])"
    ),
    local_time=r"(?:local|my) time(?![a-z0-9])",
    place_time=(
        r"(?:in )?(?P<place>[a-z][a-z.]{0,15}(?: [a-z.]{1,16}){0,2}?)(?:'s)?"
        r" (?:local |standard )?time(?![a-z0-9])"
    ),
    # "Story time", "log time" are tasks; `Mars time` is an unknown zone.
    unknown_zone=(
        r"[ ,(]*(?:in )?(?:(?:africa|america|asia|europe|australia|pacific|atlantic|indian|etc)/"
        r"|(?:et|pt|ct|mt)(?![a-z0-9'])"
        r"|(?:us|usa|eu|american?|california|texas|florida|brazil|canada|russian?|french|european)"
        r" (?:local |standard )?time(?![a-z]))"
        r"|[ ,(]*(?:in )?(?!(?:story|quality|family|game|play|bed|lunch|dinner|tea|coffee|break|nap"
        r"|free|full|part|real|first|next|last|long|prime|show|reading|screen|meal|movie|prayer"
        r"|bath|meeting|study|quiet|bible|work|team|travel|response|run|load|build|log|track|book"
        r"|find|save|spend|make|take|check|report|enter|submit|block|sync|record|the|my|our|your"
        r"|some|all) )(?:(?:south|north|east|west|sri|costa|new|san|los|el|saudi) )?"
        r"[a-z][a-z/_.]* time(?![a-z])"
    ),
    numeral=rf"(?<![a-z]){WORD}|(?<![a-z])(?:hundred|thousand|dozen)",
    first_number=WORD,
    unit=r"(?:hours?|hrs?|minutes?|mins?|seconds?|days?|weeks?|months?|years?)(?![a-z])",
    number_link=r"(?:or|and|to|plus|point)(?![a-z])",
    range_link="to |or ",
    negation=(
        r"(?<![a-z])(?:not|never|don't|do not|doesn't|no longer"
        r"|(?:second|third|2nd|3rd|next)[ -]to|last but|penultimate|stop|cancel|than|at most"
        r"|at least|within|before|after|until|till|except|unless|almost|nearly|minus|plus|any time)"
        r"|(?<![a-z])[0-9]+ (?:days?|weeks?) (?:before|after)"
    ),
    before=r"(?:and|the|of|in|on|at|for)(?![a-z0-9])",
    which_before=r"(?<![a-z])(?:this|next|last|past|coming) ",
    year_before="years?|years? on",
    left_over=(
        r"-?ish(?![a-z])|(?:and|to) ?(?:at )?[0-9]|(?:or|and a half|ago)(?![a-z])"
        r"|(?:twice|thrice|three times)(?![a-z])"
        r"|(?:except|excluding|but|unless|until|till|through|thru|starting|beginning|during"
        r"|minus|plus|give or take|not (?:on|in|at|before|after|during)"
        r"|only (?:on|in|if|when))(?![a-z])"
        r"|[0-9]* ?(?:[ap]\.?m\.?|o'?clock)(?![a-z])"
        r"|(?:[0-9]+ ?second|[0-9]* ?(?:hours?|hrs?|minutes?|mins?|seconds))(?![a-z]| of )"
        r"|(?:and )?[0-9]+ ?(?:hours?|hrs?|minutes?|mins?)(?= ?(?:$|,))"
        r"|[0-9]+ ?(?:days?|weeks?|months?|times)(?![a-z]| of )"
    ),
    of_event=r"(?:before|after|while|when|as long as)(?![a-z])",
    hours_and=rf"(?:[0-9]|{WORD}|(?<![a-z])an?) ?(?:hours?|hrs?)",
    lasting=rf"(?<![a-z])for (?:about )?(?P<d>{DURATION})",
    about=r"(?<![a-z])(?:about|of|for|regarding|before|after)(?![a-z])",
    every=r"(?<![a-z])(?:every|each)",
    then=r"(?<![a-z])(?:and|then)(?![a-z])",
    unread_every=r"(?:every|each)(?![a-z])",
    of_task=(
        r"(?:(?P<adverb>hourly|daily|weekly|monthly|quarterly|yearly|nightly)"
        r"|(?:(?:early |late )?(?:morning|afternoon|evening|night)|business days?|weekdays?"
        r"|weekends?|(?:mon|tues?|weds?|wednes|thu|thurs?|fri|satur|sat|sun)(?:days?)?))"
        r"(?= (?!at|on|in|for|and|or|of|to|from|until|till|except|but|only|every|each)[a-z])"
    ),
    recipients=(
        (
            "telegram",
            rf"{_SENDS}.*(?<![a-z])(?:to|on|via|by|through|in|over|into) (?:my |our |the )?"
            rf"telegram(?: (?:chat|channel|group))?{_CHANNEL_END}",
        ),
        (
            "telegram",
            r"(?<![a-z])telegram me(?![a-z])|(?<![a-z])(?:tell|notify|message|alert|remind|ping) me"
            r" (?:on|via|by|through|over) telegram(?![a-z])",
        ),
        ("email", r"(?<![a-z])e-?mail me(?![a-z])|(?<![a-z])send me an? e-?mail(?![a-z])"),
        (
            "email",
            rf"(?<![a-z])(?:send|notify|tell|alert|remind|inform|let) me(?![a-z]).*"
            rf"(?<![a-z])(?:by|via|through|over) e-?mail{_CHANNEL_END}",
        ),
        ("email", rf"{_SENDS}.*(?<![a-z])to my e-?mail(?: address)?{_CHANNEL_END}"),
        ("inbox", rf"{_SENDS}.*(?<![a-z])(?:to|in|into) (?:my |the )?inbox{_CHANNEL_END}"),
    ),
    to_address=(
        r"(?<![a-z])(?:send|e-?mail|mail|forward|deliver|report|notify)(?![a-z])(?:.* to|) "
    ),
    no_recipient=r"(?<![a-z])(?:not|don't|never|without|instead of|rather than|stop)(?![a-z])",
    on_failure=(
        r"(?<![a-z])(?:if|when|whenever|in case)(?: it| that| this| one| anything| something)?"
        r"(?: ever)? (?:fails?|failed|breaks?|goes wrong|went wrong|is down|is broken|errors?)"
        r"(?![a-z])|(?<![a-z])on (?:failure|errors?)(?![a-z])"
    ),
)
