"""English patterns for times, days, intervals and limits."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parser.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_DATE,
    NO_INTERVAL,
    NO_PRICE,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    YESTERDAY,
    AtMinutes,
    Clock,
    Daily,
    Delay,
    InMonths,
    Interval,
    Meaning,
    MonthDays,
    Named,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Portion,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
    Rule,
    Sure,
    christian_year,
    clock,
    date_of,
    in_portion,
    rule,
    whole_hours,
)

# Numerals.

_ONES = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_ZERO = "zero"
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second"),
    *("twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh"),
    *("twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)
_BY_LENGTH = sorted(_ONES, key=len, reverse=True)
_ONE = "|".join(_BY_LENGTH)
WORD = rf"(?:{_ZERO}|(?:{'|'.join(_TENS)})(?:[- ](?:{_ONE}))?|{_ONE})(?![a-z])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"
HOUR = rf"(?:[0-9]{{1,2}}|{WORD})"
ORDINAL_WORD = rf"(?:{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})"
#: 1st, 2nd, fifteenth.
ORDINAL = rf"(?:[0-9]{{1,2}}(?:st|nd|rd|th)|{ORDINAL_WORD})(?![a-z0-9])"


def number(text: str) -> int:
    if text.isdigit():
        return int(text)
    total = 0
    for word in text.replace("-", " ").split():
        if word != _ZERO:
            total += _TENS[word] if word in _TENS else _ONES.index(word) + 1
    return total


def ordinal(text: str) -> int:
    """The number of `1st`, `first` or a plain number."""
    digits = text.rstrip("dhnrst")
    if digits.isdigit():
        return int(digits)
    return _ORDINALS.index(text) + 1


# Times of day.

END = r"(?![a-z0-9])"
_AT = r"(?P<at>(?:at|@)(?: exactly)? ?)?"
_HOUR = rf"(?P<h>{HOUR})"
_HALF = r"(?P<half>a\.?m\.?|p\.?m\.?)(?![a-z0-9])"
_SHARP = r"(?: ?(?:sharp|exactly|on the dot))?"


def _halved(hour: int, minute: int, half: str, second: int = 0) -> Clock | Problem:
    """On the 12-hour clock: 12am is midnight, 12pm noon."""
    if not 1 <= hour <= 12:
        return Problem(("contradiction",))
    read = clock(hour % 12 + (12 if half.startswith("p") else 0), minute, second)
    if isinstance(read, Clock) and read.hour == read.minute == 0:
        return Clock(0, 0, second, midnight=True)
    return read


def _with_half(found: re.Match[str]) -> tuple[Part, ...]:
    minute, second = number(found["m"] or "0"), int(found["s"] or 0)
    return (_marked(_halved(number(found["h"]), minute, found["half"], second), found),)


def _marked(read: Clock | Problem, found: re.Match[str]) -> Clock | Problem:
    if isinstance(read, Problem):
        return read
    return Clock(
        read.hour,
        read.minute,
        read.second,
        sure=read.sure,
        midnight=read.midnight,
        marked=bool(found["at"]),
        whole=read.whole,
    )


def _official(found: re.Match[str]) -> tuple[Part, ...]:
    """`09:00`, `at 9:30`, `15:00 hrs`."""
    hour, minute = int(found["h"]), int(found["m"])
    read = clock(hour, minute, int(found["s"] or 0))
    if isinstance(read, Problem):
        return (read,)
    sure: Sure = "usual" if 1 <= hour <= 12 else "certain"
    return (
        Clock(
            hour,
            minute,
            read.second,
            int((found["f"] or "").ljust(6, "0")),
            sure,
            marked=bool(found["at"]),
        ),
    )


def _bare(found: re.Match[str]) -> tuple[Part, ...]:
    """`at 9`, `9 o'clock`: ambiguous up to twelve, 24-hour clock from thirteen on."""
    hour = number(found["h"])
    if hour > 23:
        return (IMPOSSIBLE,)
    sure: Sure = "certain" if hour > 12 else "open"
    return (Clock(hour, sure=sure, marked=bool(found["at"]), whole=True),)


def _military(found: re.Match[str]) -> tuple[Part, ...]:
    return (_marked(clock(int(found["h"]), int(found["m"])), found),)


_PORTIONS: dict[str, Portion] = {
    "in the morning": "morning",
    "in the afternoon": "afternoon",
    "in the evening": "evening",
    "at night": "night",
}


def _with_portion(found: re.Match[str]) -> tuple[Part, ...]:
    """`9 in the morning`, also as an element of a list."""
    minute = int(found["m"] or 0)
    read = in_portion(number(found["h"]), minute, _PORTIONS[found["portion"]])
    return (_marked(read, found),)


_MINUTES = {"half": 30, "quarter": 15, "a quarter": 15}


def _spoken(found: re.Match[str]) -> tuple[Part, ...]:
    """`half past 9`, `quarter to 9am`, `ten past noon`."""
    said = found["n"]
    minute = _MINUTES[said] if said in _MINUTES else number(said)
    if minute > 59:
        return (IMPOSSIBLE,)
    if found["way"] != "past" and said.isdigit() and int(said) <= 12 and not found["unit"]:
        # "10 to 11am" may be ten minutes or an hour.
        return (AMBIGUOUS,)
    hour = 12 if found["noon"] else number(found["h"])
    if not 1 <= hour <= 12:
        return (Problem(("contradiction",)),)
    half = "pm" if found["noon"] else found["half"]
    sure: Sure = "certain" if half else "open"
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    total = hour * 60 + (minute if found["way"] == "past" else -minute)
    return (Clock(total // 60 % 24, total % 60, sure=sure, marked=bool(found["at"])),)


_PAST = (
    rf"{_AT}(?P<n>half|a quarter|quarter|{NUMBER})(?P<unit> minutes?| mins?)? "
    r"(?P<way>past|to|before|till) "
)
_THE = r"(?:(?:in|during) the )"
CLOCK_RULES: list[Rule] = [
    rule(rf"{_AT}(?P<h>{WORD})[ -](?P<m>{WORD})(?P<s>) ?{_HALF}{_SHARP}", _with_half),
    rule(rf"{_AT}(?P<h>[0-9]{{1,2}})h(?P<m>[0-9]{{2}}){END}", _military),
    rule(
        rf"{_AT}{_HOUR}(?:[:.](?P<m>[0-9]{{2}})(?::(?P<s>[0-9]{{2}}))?)? ?{_HALF}{_SHARP}",
        _with_half,
    ),
    rule(
        rf"{_AT}(?P<h>[0-9]{{1,2}})[:.](?P<m>[0-9]{{2}})"
        r"(?::(?P<s>[0-9]{2})(?:\.(?P<f>[0-9]{1,6}))?)?"
        rf"(?: ?(?:hours|hrs?|h|o'?clock))?(?![a-z0-9]|[:.,][0-9]){NO_PRICE}{_SHARP}",
        _official,
    ),
    rule(rf"(?P<at>(?:at|@) ?){_HOUR}(?: ?o'? ?clock)?(?![a-z0-9]|[:.,/][0-9]| ?%){_SHARP}", _bare),
    rule(rf"(?P<at>){_HOUR} ?o'? ?clock{END}{_SHARP}", _bare),
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
        rf"{_PAST}(?:{_HOUR}(?: ?{_HALF}|(?: ?o'? ?clock)?{END})|(?P<noon>noon|midday){END})",
        _spoken,
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?(?:noon|midday|noontime){END}",
        lambda m: (Clock(12, marked=bool(m["at"])),),
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?midnight{END}",
        lambda m: (Clock(0, midnight=True, marked=bool(m["at"])),),
    ),
    rule(rf"{_THE}?(?:early |late )?mornings?{END}", PartOfDay("morning")),
    rule(rf"{_THE}?(?:early |late )?afternoons?{END}", PartOfDay("afternoon")),
    rule(rf"{_THE}?(?:early |late )?evenings?{END}", PartOfDay("evening")),
    rule(rf"(?:at |{_THE})?(?:late )?nights?{END}", PartOfDay("night")),
]


# Days.

_END = r"(?![a-z0-9]|'s)"
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
_W = rf"{_DAY}(?:s|\.)?{_END}"
_TO = r" ?(?:-|to|through|thru|until|till) ?"
_ITEM = rf"{_W}(?:{_TO}{_W})?"
_LINK = r"(?: ?(?:,? ?and(?: on)?|,|&|/|\+) ?(?:every |on )?| )"
_LIST = rf"{_ITEM}(?:{_LINK}{_ITEM}){{0,7}}"
_EVERY = r"(?:once )?(?:every|each)(?: single)? "
_WORKING = r"(?:weekday|week day|workday|work day|working day|business day)"


def weekdays(text: str) -> frozenset[int]:
    """The days of `Monday to Friday and Sunday`."""
    found: set[int] = set()
    for item in re.finditer(rf"(?<![a-z])({_DAY})s?\.?(?:{_TO}({_DAY})s?(?![a-z]))?", text):
        first = _WEEKDAYS[item[1]]
        last = _WEEKDAYS[item[2]] if item[2] else first
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


_PLURAL = re.compile(rf"(?:{'|'.join(names[0] for names in _DAY_NAMES)})s")


def _named(found: re.Match[str]) -> tuple[Part, ...]:
    every = found[0].startswith(("every", "each", "once")) or _PLURAL.search(found[0]) is not None
    return (Named(weekdays(found[0]), every),)


def _weekday_of(text: str) -> int:
    return min(weekdays(text))


def _named_portion(portion: Portion) -> Meaning:
    """`weekday mornings`, `Friday evenings`: the plural means every one."""

    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        days = weekdays(found["list"]) or _MONDAY_TO_FRIDAY.weekdays
        return Named(days, every=True), PartOfDay(portion)

    return meaning


_DAYS_PORTIONS: tuple[Portion, ...] = ("morning", "afternoon", "evening", "night")
_MONDAY_TO_FRIDAY = Named(frozenset(range(1, 6)), every=True)
_WEEKEND = Named(frozenset({0, 6}), every=True)

# Days of a month: `the 1st and the 15th`, `the last day`, `the second Monday`.
_NTH = r"(?:first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))"
_MONTH_DAY = (
    rf"(?:(?:the )?(?:{_NTH} (?:{_W}|{_WORKING}{_END}|day{_END})|(?:very )?last day{_END}"
    rf"|{ORDINAL}(?: day{_END})?)|day [0-9]{{1,2}}(?![0-9a-z:.]))"
)
_MONTH_DAYS = rf"(?P<days>{_MONTH_DAY}(?: ?(?:,? ?and(?: on)?|,|&) ?{_MONTH_DAY}){{0,9}})"
_EACH_MONTH = r"(?: (?:of|in) (?:every|each|all) months?| (?:every|each) month| monthly)(?![a-z])"
_THE_MONTH = r"(?: of (?:the|a) month(?![a-z]))"
_ON = r"(?:on )?"
#: "Second coffee" is not a date.
_LONE_ORDINAL = rf"{ORDINAL_WORD}(?![a-z])(?! (?:{_DAY}|{_WORKING}|day|of|and)|,)"


def _month_days(every: bool, text: str) -> tuple[Part, ...]:
    dates: list[str] = []
    days: list[str] = []
    for item in re.split(r",? and(?: on)? |, ?| ?& ?", text):
        term, by_weekday = _month_term(item.removeprefix("on ").removeprefix("the "))
        if term is None:
            return (NO_DATE,)
        (days if by_weekday else dates).append(term)
    if dates and days:
        return (AMBIGUOUS,)
    return (MonthDays(tuple(dict.fromkeys(dates or days)), every, bool(days)),)


def _month_term(text: str) -> tuple[str | None, bool]:
    nth, _, what = text.removeprefix("very ").partition(" ")
    if not what:
        day = ordinal(nth)
        return (str(day) if 1 <= day <= 31 else None), False
    if nth == "day":
        return (what if 1 <= int(what) <= 31 else None), False
    if re.fullmatch(_WORKING, what):
        return {"last": "LW", "first": "1W", "1st": "1W"}.get(nth), False
    if what == "day":
        return ("L" if nth == "last" else str(ordinal(nth))), False
    weekday = _weekday_of(what)
    return (f"{weekday}L" if nth == "last" else f"{weekday}#{ordinal(nth)}"), True


def _monthly(every: bool) -> Meaning:
    return lambda found: _month_days(every, found["days"])


def _every_nth(found: re.Match[str]) -> tuple[Part, ...]:
    """`every second Monday` is every other one, or one in each month?"""
    if re.match(rf"(?:second|third|fourth|2nd|3rd|4th) {_W}", found["days"]):
        return (AMBIGUOUS,)
    return _month_days(True, found["days"])


_DATE_DAY = rf"(?P<day>{ORDINAL}|[0-9]{{1,2}}(?![0-9:.]))"
_YEAR = r"(?P<year>(?:,? ?|,? of |-)(?:19|2[0-9])[0-9]{2}(?![0-9:.]|[a-z]))?"
_EVERY_DATE = rf"(?P<every>{_EVERY}(?:year(?: on)? )?)?"
_WEEKDAY_FIRST = rf"(?:(?P<w>{_W}),? (?:the )?)?"


def _date(found: re.Match[str]) -> tuple[Part, ...]:
    said = found["year"]
    year = christian_year(int(re.sub(r"\D", "", said))) if said else None
    month = _MONTHS[found["month"].rstrip(".")]
    made = date_of(year, month, ordinal(found["day"]), every=bool(found["every"]))
    if found["w"] and not isinstance(made[0], Problem):
        return (*made, Named(frozenset({_weekday_of(found["w"])}), every=False))
    return made


def _counted(found: re.Match[str]) -> tuple[Part, ...]:
    """`every 2 days`: ambiguous without a first day."""
    if number(found["n"]) != 1:
        return (NO_INTERVAL,)
    unit = found["u"]
    if unit == "day":
        return (Daily(),)
    return (Period("week" if unit == "week" else "month" if unit == "month" else "year"),)


def _ahead(found: re.Match[str]) -> tuple[Part, ...]:
    count = 1 if found["n"] in ("a", "one") else number(found["n"])
    return (RelativeDay(count * (7 if found["u"] == "week" else 1)) if count else AMBIGUOUS,)


def months(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in re.finditer(
        rf"({'|'.join(_MONTHS)})\.?(?: ?(?:-|to|through) ?({'|'.join(_MONTHS)}))?", text
    ):
        first = _MONTHS[item[1]]
        last = _MONTHS[item[2]] if item[2] else first
        found |= {(first - 1 + step) % 12 + 1 for step in range((last - first) % 12 + 1)}
    return frozenset(found)


_MONTH_ITEM = rf"{_MONTH}(?: ?(?:-|to|through) ?{_MONTH})?"
_MONTH_LIST = rf"{_MONTH_ITEM}(?:(?:,? and |, ?){_MONTH_ITEM}){{0,11}}"
_MANY = r"(?:other|second|2nd|third|3rd|fourth|4th|few|couple of|several|alternate|odd|even)"
_PERIOD = r"(?:day|week|month|year)"


def _week(weeks: int | None, *, either: bool = False) -> Meaning:
    return lambda found: (RelativeWeekday(_weekday_of(found["w"]), weeks, either),)


def _this_month(found: re.Match[str]) -> tuple[Part, ...]:
    return (RelativeMonthDay(ordinal(found["day"]), int(found["which"] == "next")),)


DAYS_RULES: list[Rule] = [
    rule(
        rf"(?:(?:once )?(?:every ?day(?: of the week)?|each day|every single day|daily)"
        rf"|once (?:a|per) day){_END}",
        Daily(),
    ),
    *(
        each
        for portion in _DAYS_PORTIONS
        for each in (
            rule(rf"{_EVERY}{portion}{_END}", (Daily(), PartOfDay(portion))),
            rule(rf"this {portion}{_END}", (RelativeDay(0), PartOfDay(portion))),
            rule(
                rf"(?:{_EVERY}|on )?(?P<list>{_LIST}|{_WORKING}) {portion}s{_END}",
                _named_portion(portion),
            ),
        )
    ),
    rule(rf"nightly{_END}", (Daily(), PartOfDay("night"))),
    rule(rf"(?:{_EVERY}{_WORKING}s?|(?:on )?(?:all )?{_WORKING}s){_END}", _MONDAY_TO_FRIDAY),
    rule(rf"(?:{_EVERY}weekend(?: day)?s?|(?:on |at )?(?:the )?weekends){_END}", _WEEKEND),
    rule(rf"(?:{_EVERY}|on (?:every |each )?)?{_LIST}", _named),
    rule(
        rf"(?:every ?day,?(?: from)?|from) (?P<range>{_W}{_TO}{_W})",
        lambda found: (Named(weekdays(found["range"]), every=True),),
    ),
    rule(rf"(?:{_EVERY}week|weekly|once (?:a|per) week){_END}", Period("week")),
    rule(rf"(?:{_EVERY}month|monthly|once (?:a|per) month){_END}", Period("month")),
    rule(rf"(?:{_EVERY}year|yearly|annually|once (?:a|per) year){_END}", Period("year")),
    rule(rf"every (?P<n>{NUMBER}) ?(?P<u>{_PERIOD})s?(?! of){_END}", _counted),
    rule(
        rf"every {_MANY} {_PERIOD}s?{_END}|every (?:quarter|fortnight|decade){_END}"
        rf"|(?:bi-?weekly|bi-?monthly|fortnightly|quarterly|bi-?annually){_END}"
        rf"|(?:every )?(?:other|alternate) {_W}"
        rf"|(?:twice|{NUMBER} times|several times) (?:an?|per|every) (?:hour|{_PERIOD}){_END}"
        rf"|twice daily{_END}",
        NO_INTERVAL,
    ),
    rule(rf"(?:on )?last {_W}", YESTERDAY),
    rule(rf"{_ON}{_MONTH_DAYS}{_EACH_MONTH}", _monthly(every=True)),
    rule(
        rf"(?:on |(?!{_LONE_ORDINAL})){_MONTH_DAYS}{_THE_MONTH}?",
        _monthly(every=False),
    ),
    rule(rf"{_EVERY}{_MONTH_DAYS}{_THE_MONTH}", _monthly(every=True)),
    rule(rf"{_EVERY}(?!day |second(?! (?:{_DAY}|{_WORKING}|day))){_MONTH_DAYS}", _every_nth),
    rule(
        rf"(?:(?:at )?(?:the )?end of (?:every|each) month|every month[- ]end){_END}",
        MonthDays(("L",), every=True),
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
    rule(rf"(?:in|from|only in) {_MONTH_LIST}", lambda found: (InMonths(months(found[0])),)),
    rule(rf"(?:until|till|through|thru)(?: the)?(?: end of)? {_MONTH}(?! [0-9])", LIMITED),
    rule(rf"today{_END}", RelativeDay(0)),
    rule(rf"tonight{_END}", (RelativeDay(0), PartOfDay("night"))),
    rule(rf"(?:tomorrow|tmrw|tmr){_END}", RelativeDay(1)),
    rule(rf"(?:on )?(?:the )?day after tomorrow{_END}", RelativeDay(2)),
    rule(rf"yesterday{_END}", YESTERDAY),
    rule(rf"in (?P<n>a|{NUMBER}) (?P<u>day|week)s?(?: time| from now)?{_END}", _ahead),
    rule(rf"(?P<n>a|{NUMBER}) (?P<u>day|week)s? from (?:now|today){_END}", _ahead),
    rule(rf"(?:on )?this (?P<w>{_W})", _week(0)),
    rule(rf"(?:on )?(?:this |the )?(?:coming|upcoming) (?P<w>{_W})", _week(None)),
    rule(rf"(?:on )?next (?P<w>{_W})", _week(1, either=True)),
    rule(rf"(?:on )?(?P<w>{_W}),? (?:of )?next week{_END}", _week(1)),
    rule(rf"next week,?(?: on)? (?P<w>{_W})", _week(1)),
    rule(rf"(?:on )?(?P<w>{_W}),? (?:of )?this week{_END}", _week(0)),
    rule(rf"this week,?(?: on)? (?P<w>{_W})", _week(0)),
    rule(rf"(?:on )?the (?P<day>{ORDINAL}) of (?P<which>next|this) month{_END}", _this_month),
    rule(rf"(?P<which>next|this) month,? on the (?P<day>{ORDINAL})", _this_month),
    rule(rf"(?:next|this) (?:week|month|year){_END}", Problem(("date",), loose=True)),
    rule(rf"(?:(?:just )?once(?: only)?|one time|only once){_END}", OnlyOnce()),
]


# Intervals, delays, ranges of hours and limits.

_SPANS_END = r"(?![a-z0-9])"
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "milli": timedelta(milliseconds=1),
}
_UNIT = r"(?:hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|milliseconds?)(?![a-z0-9])"
_COUNT = rf"(?:[0-9]{{1,6}}(?:\.[0-9]{{1,2}})?|{WORD}|an?)"
_PIECE = rf"{_COUNT}[ -]?{_UNIT}"
_SPANS_LINK = r"(?:,? and |, ?| )"
_HALVES = (
    r"half(?:[ -]an?)?[ -]hour|half[ -]a[ -]minute|(?:a )?quarter(?: of)? an hour"
    r"|(?:a )?quarter[ -]hour"
)
# `2 hours and a half`, `two and a half hours`; "every hour and a half".
_AND_HALF = (
    rf"(?:(?:{_COUNT}[ -])?(?:hours?|hrs?|minutes?|mins?) and a half"
    rf"|{_COUNT} and a half (?:hours?|hrs?|minutes?|mins?))"
)
_SHORT = r"[0-9]{1,4}h[0-9]{1,4}m"
DURATION = (
    rf"(?:(?:{_HALVES}|{_AND_HALF}|{_SHORT}){_SPANS_END}|{_PIECE}(?:{_SPANS_LINK}{_PIECE}){{0,3}})"
)


def duration(text: str) -> timedelta:
    if re.fullmatch(_HALVES, text):
        if "quarter" in text:
            return timedelta(minutes=15)
        return _UNITS["m" if "minute" in text else "h"] / 2
    if re.fullmatch(_AND_HALF, text):
        unit = _UNITS["m" if "min" in text else "h"]
        said = re.match(_COUNT, text)
        return duration(f"{said[0] if said else 'a'} {'m' if 'min' in text else 'h'}") + unit / 2
    if re.fullmatch(_SHORT, text):
        hours, _, minutes = text[:-1].partition("h")
        return timedelta(hours=int(hours), minutes=int(minutes))
    total = timedelta(0)
    for item in re.finditer(rf"({_COUNT})[ -]?({_UNIT})", text):
        unit = _UNITS["milli"] if item[2].startswith("milli") else _UNITS[item[2][0]]
        count = item[1]
        if count in ("a", "an"):
            total += unit
        elif "." in count:
            whole, _, part = count.partition(".")
            total += unit * int(whole) + unit * int(part) / 10 ** len(part)
        else:
            total += unit * number(count)
    return total


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = duration(found["d"])
    return (Interval(step),) if step else (NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = duration(found["d"])
    return (Delay(after),) if after else (NO_INTERVAL,)


def _minutes(found: re.Match[str]) -> tuple[Part, ...]:
    minutes = frozenset(int(each) for each in re.findall("[0-9]+", found[0]))
    return (AtMinutes(minutes),) if max(minutes) <= 59 else (IMPOSSIBLE,)


_SPANS_EVERY = r"(?:once )?(?:every|each) "
_UNIT_WORD = r"(?:h|hr|hour|m|min|minute|s|sec|second|millisecond|day|week|month|year)"
_TIME_BEHIND = (
    r"(?= (?:at |on )?(?:[0-9]|noon|midnight|mon|tue|wed|thu|fri|sat|sun|tomorrow|today|every))"
)
SPANS_RULES: list[Rule] = [
    rule(rf"{_SPANS_EVERY}(?P<d>{DURATION})", _interval),
    rule(
        rf"{_SPANS_EVERY}(?P<d>hour|minute|second(?! (?:day|week|month|year|\w+day))){_SPANS_END}",
        lambda found: (Interval(_UNITS[found["d"][0]]),),
    ),
    rule(rf"(?:hourly|once an hour){_SPANS_END}", Interval(timedelta(hours=1))),
    rule(
        rf"every (?P<n>{NUMBER}) days of 24 hours{_SPANS_END}",
        lambda found: (Interval(timedelta(days=number(found["n"]))),),
    ),
    rule(rf"every (?:other|few|couple of|several|some) {_UNIT_WORD}s?{_SPANS_END}", NO_INTERVAL),
    rule(rf"every - ?[0-9]+ ?{_UNIT}", NO_INTERVAL),
    rule(
        r"every -? ?[0-9]+(?:\.[0-9]+)?(?![0-9.:/]|st|nd|rd|th)"
        rf"(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        NO_UNIT,
    ),
    rule(rf"(?:in|after) (?P<d>{DURATION})(?: time| from now)?{_SPANS_END}", _delay),
    rule(rf"(?P<d>{DURATION}) (?:from now|later){_SPANS_END}", _delay),
    rule(r"in [0-9]+(?= ?$)", NO_UNIT),
    rule(
        rf"(?:(?<=me )|^)in [0-9]{{1,6}}(?= [a-z])(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        NO_UNIT,
    ),
    rule(
        rf"(?:in|{_SPANS_EVERY.rstrip()}) (?:[0-9]{{7,}}|[0-9]+[/⁄][0-9]+)(?: of)?"
        rf"(?: an?)? ?{_UNIT}",
        NO_INTERVAL,
    ),
    rule(rf"(?:in|{_SPANS_EVERY.rstrip()}) {NUMBER} ?(?:-|to|or) ?{NUMBER} ?{_UNIT}", AMBIGUOUS),
    rule(rf"in (?:a few|a couple of|several|some) {_UNIT_WORD}s?{_SPANS_END}", NO_INTERVAL),
    rule(rf"in (?:about|around|roughly|approximately|maybe|almost) {DURATION}", AMBIGUOUS),
    rule(r"at :[0-9]{2}(?:(?:,| and) ?:[0-9]{2}){0,11}(?![0-9])", _minutes),
    rule(
        r"(?:at )?minutes? [0-9]{1,2}(?:(?:, ?| and )[0-9]{1,2}){0,11}(?![0-9:.])"
        r"(?: past(?: the hour)?)?",
        _minutes,
    ),
    rule(
        rf"(?:at )?[0-9]{{1,2}} (?:minutes )?past(?: the)? (?:every |each )?hour{_SPANS_END}",
        _minutes,
    ),
    rule(
        rf"(?:at )?(?:a )?quarter past(?: the| every)? hour{_SPANS_END}",
        AtMinutes(frozenset({15})),
    ),
    rule(
        rf"on the half[ -]hour{_SPANS_END}|(?:at )?half past (?:the|every) hour{_SPANS_END}",
        AtMinutes(frozenset({30})),
    ),
    rule(rf"on the hour{_SPANS_END}", AtMinutes(frozenset({0}))),
    rule(
        r"(?:from |between )?(?P<first>[0-9]{1,2}) ?(?:-|to|and) ?(?P<last>[0-9]{1,2})"
        r"(?![0-9:.a-z%/]| ?[ap]\.?m)(?: ?(?:hours|hrs|h)(?![a-z]))?",
        whole_hours,
    ),
    rule(
        r"(?:around|about|approximately|approx\.?|roughly|circa|sometime|some time|near|before"
        r"|after|by|past)(?= (?:[0-9]|noon|midnight|at|in the|tomorrow|today|next|this))",
        VAGUE,
    ),
    rule(rf"or{_TIME_BEHIND}", ONE_OF),
    rule(
        r"(?:until|till|except(?: for)?(?: on)?|excluding|but(?: not)?(?: on)?|other than"
        r"|through|thru|starting(?: from| on)?|beginning(?: on)?|since|ending|unless"
        r"|skip(?:ping)?)(?![a-z])",
        RESIDUE,
    ),
    rule(
        r"(?:except(?: for)?|excluding|but not|other than|skip(?:ping)?)(?: on)?(?: the| any| all)?"
        rf"(?: public| bank| national)? (?:holidays?|weekends?){_SPANS_END}",
        LIMITED,
    ),
    rule(r"from(?![a-z])", SPAN_OR_RESIDUE),
    rule(
        rf"for (?:the )?(?:next |first )?(?:an?|{NUMBER}) (?:day|week|month|year|time)s?(?! of)"
        rf"{_SPANS_END}"
        rf"|onwards?{_SPANS_END}|at the latest{_SPANS_END}|or so{_SPANS_END}|-?ish{_SPANS_END}",
        LIMITED,
    ),
]


RULES = [*CLOCK_RULES, *DAYS_RULES, *SPANS_RULES]
#: Joining words without a meaning of their own.
JOINING = r"(?:at|on|in|of|the|for|@|between)(?![a-z0-9])"
#: Conjunctions between two parts of one kind.
LISTING = r"and(?![a-z0-9])"
#: Requests; may precede the time words or stand between them.
REQUEST = re.compile(
    r"(?:please|pls|kindly|hey|hi|can you|could you|would you|will you|i want you to"
    r"|i'd like you to|remind me|reminder|remind us|notify me|alert me|tell me|ping me|wake me up"
    r"|set|schedule|run|an?|me|to)(?![a-z0-9])"
)
