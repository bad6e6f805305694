"""English: the days."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.days import DateKind, DateTerm, Weekdays, is_stretch, weekday_stretches
from chimes.language.en_times import joined, ordinal, ranges
from chimes.language.masks import Numbers, steps, stretches, told

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_DATES: dict[DateKind, str] = {
    "day": "the {first}",
    "days": "the {first} to the {last}",
    "step": "every {step} day from the {first} to the {last}",
    "nearest": "the weekday nearest the {first}",
    "from_end": "{end}",
    "nearest_from_end": "the weekday nearest {end}",
    "last_working": "the last weekday",
}
_NTH = ("first", "second", "third", "fourth", "fifth")


def every_day(months: Numbers | None) -> str:
    return f"every day{_in_months(months)}"


def on_dates(dates: Sequence[DateTerm], months: Numbers | None) -> str:
    return f"on {joined([_date(term) for term in dates])} {_of_months(months)}"


def on_weekdays(weekdays: Weekdays, months: Numbers | None) -> str:
    return f"every {_every_weekday(weekdays)}{_in_months(months)}"


def on_special(weekdays: Weekdays, months: Numbers | None) -> str:
    return f"on {joined(_special(weekdays))} {_of_months(months)}"


def only_if(dates: str, weekdays: Weekdays) -> str:
    found = ["a weekday"] if weekdays.working else [f"a {WEEKDAYS[day]}" for day in weekdays.every]
    special = [f"{words} of the month" for words in _special(weekdays)]
    return f"{dates}, if that is {joined([*found, *special], 'or')},"


def as_well_as(days: str, others: str) -> str:
    return f"{days} and {others}"


def years_phrase(years: Numbers | None) -> str:
    if years is None:
        return ""
    if found := steps(years):
        return f", in every {ordinal(found.step)} year from {found.first} to {found.last}"
    return f", in {joined(ranges(years))}"


def weekday_list(weekdays: Numbers, *, least: int = 3) -> list[str]:
    """Names from Monday on; unbroken stretches as `Monday to Friday`."""
    return told(weekday_stretches(weekdays, least=least), WEEKDAYS.__getitem__, " to ")


def _date(term: DateTerm) -> str:
    return _DATES[term.kind].format(
        first=ordinal(term.first),
        last=ordinal(term.last),
        step=ordinal(term.step),
        end=_from_end(term.first),
    )


def _from_end(back: int) -> str:
    if back == 0:
        return "the last day"
    return "the day before the last" if back == 1 else f"the day {back} days before the last"


def _special(days: Weekdays) -> list[str]:
    found = [f"the {_NTH[nth - 1]} {WEEKDAYS[day]}" for day, nth in days.nth]
    return found + [f"the last {WEEKDAYS[day]}" for day in days.last]


def _every_weekday(days: Weekdays) -> str:
    if days.working:
        return "weekday"
    names = weekday_list(days.every)
    if len(names) == 1 and len(days.every) > 1:
        return f"day from {names[0]}"
    return joined(weekday_list(days.every, least=8))


def _in_months(months: Numbers | None) -> str:
    if months is None:
        return ""
    return f" {'from' if is_stretch(months) else 'in'} {_month_names(months)}"


def _of_months(months: Numbers | None) -> str:
    return "of every month" if months is None else f"of {_month_names(months)}"


def _month_names(months: Numbers) -> str:
    return joined(told(stretches(months), lambda month: MONTHS[month - 1], " to "))
