"""English: days."""

from __future__ import annotations

import re

from chimes.language.parsing.digits import christian_year, date_of
from chimes.language.parsing.en_numbers import NUMBER, ORDINAL, ORDINAL_WORD, number, ordinal
from chimes.language.parsing.parts import (
    Daily,
    InMonths,
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
)
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    LIMITED,
    NO_DATE,
    NO_INTERVAL,
    YESTERDAY,
    Meaning,
    Rule,
    rule,
)

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
    """`weekday mornings`, `Friday evenings`: the plural says every one."""

    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        days = weekdays(found["list"]) or _MONDAY_TO_FRIDAY.weekdays
        return Named(days, every=True), PartOfDay(portion)

    return meaning


_PORTIONS: tuple[Portion, ...] = ("morning", "afternoon", "evening", "night")
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
#: "Second coffee" is no date.
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
    """`every 2 days`, which no clock keeps without a first day."""
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


RULES: list[Rule] = [
    rule(
        rf"(?:(?:once )?(?:every ?day(?: of the week)?|each day|every single day|daily)"
        rf"|once (?:a|per) day){_END}",
        Daily(),
    ),
    *(
        each
        for portion in _PORTIONS
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
