"""English: the days."""

from __future__ import annotations

from chimes.language.en_times import joined, ordinal, ranges
from chimes.language.masks import (
    ALL_DATES,
    ALL_MONTHS,
    Numbers,
    day_rule,
    numbers,
    spans,
    steps,
)
from chimes.triggers.cron_days import DayFields

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_WORKING = (1, 2, 3, 4, 5)
_NTH = ("first", "second", "third", "fourth", "fifth")


def days_phrase(days: DayFields) -> str:
    """`every day`, `every Monday`, `on the 1st of every month`, …"""
    rule = day_rule(days)
    months = numbers(days.months)
    if rule.by_date is None and rule.by_weekday is None:
        return f"every day{_in_months(months)}"
    if rule.by_date is None:
        return _on_weekdays(days, months)
    dates = f"on {joined(_dates(days))} {_of_months(months)}"
    if rule.by_weekday is None:
        return dates
    if rule.both:
        return f"{dates}, if that is {_as_condition(days)},"
    return f"{dates} and {_on_weekdays(days, months)}"


def years_phrase(days: DayFields) -> str:
    if days.years is None:
        return ""
    years = numbers(days.years, 1970)
    if found := steps(years):
        return f", in every {ordinal(found.step)} year from {found.first} to {found.last}"
    return f", in {joined(ranges(years))}"


def weekday_list(weekdays: Numbers, *, least: int = 2) -> list[str]:
    """Names from Monday on; unbroken stretches as `Monday to Friday`."""
    ordered = tuple(sorted((day - 1) % 7 for day in weekdays))
    found: list[str] = []
    for first, last in spans(ordered):
        if last - first >= least:
            found.append(f"{_from_monday(first)} to {_from_monday(last)}")
        else:
            found += [_from_monday(day) for day in range(first, last + 1)]
    return found


def _from_monday(day: int) -> str:
    return WEEKDAYS[(day + 1) % 7]


def _dates(days: DayFields) -> list[str]:
    dates = numbers(days.days & ALL_DATES, 1)
    found: list[str] = []
    if stepped := steps(dates):
        found.append(
            f"every {ordinal(stepped.step)} day from the {ordinal(stepped.first)} "
            f"to the {ordinal(stepped.last)}"
        )
    else:
        for first, last in spans(dates):
            if last - first >= 2:
                found.append(f"the {ordinal(first)} to the {ordinal(last)}")
            else:
                found += [f"the {ordinal(day)}" for day in range(first, last + 1)]
    found += [f"the weekday nearest the {ordinal(day)}" for day in sorted(set(days.nearest))]
    found += [_from_end(back) for back in sorted(set(days.last), reverse=True)]
    found += [
        f"the weekday nearest {_from_end(back)}"
        for back in sorted(set(days.last_nearest), reverse=True)
    ]
    if days.last_working:
        found.append("the last weekday")
    return found


def _from_end(back: int) -> str:
    if back == 0:
        return "the last day"
    return "the day before the last" if back == 1 else f"the day {back} days before the last"


def _on_weekdays(days: DayFields, months: Numbers) -> str:
    weekdays = numbers(days.weekdays)
    special = [f"the {_NTH[nth - 1]} {WEEKDAYS[day]}" for day, nth in sorted(set(days.nth))]
    special += [f"the last {WEEKDAYS[day]}" for day in sorted(set(days.last_weekday))]
    of_months = f"on {joined(special)} {_of_months(months)}"
    if not weekdays:
        return of_months
    plain = f"every {_every_weekday(weekdays)}{_in_months(months)}"
    return f"{plain} and {of_months}" if special else plain


def _every_weekday(weekdays: Numbers) -> str:
    if weekdays == _WORKING:
        return "weekday"
    names = weekday_list(weekdays)
    if len(names) == 1 and len(weekdays) > 1:
        return f"day from {names[0]}"
    return joined(weekday_list(weekdays, least=7))


def _as_condition(days: DayFields) -> str:
    found = [f"a {WEEKDAYS[day]}" for day in numbers(days.weekdays)]
    if numbers(days.weekdays) == _WORKING:
        found = ["a weekday"]
    found += [
        f"the {_NTH[nth - 1]} {WEEKDAYS[day]} of the month" for day, nth in sorted(set(days.nth))
    ]
    found += [f"the last {WEEKDAYS[day]} of the month" for day in sorted(set(days.last_weekday))]
    return joined(found, "or")


def _in_months(months: Numbers) -> str:
    if months == ALL_MONTHS:
        return ""
    stretch = len(months) > 2 and len(spans(months)) == 1
    return f" {'from' if stretch else 'in'} {_month_names(months)}"


def _of_months(months: Numbers) -> str:
    return "of every month" if months == ALL_MONTHS else f"of {_month_names(months)}"


def _month_names(months: Numbers) -> str:
    found: list[str] = []
    for first, last in spans(months):
        if last - first >= 2:
            found.append(f"{MONTHS[first - 1]} to {MONTHS[last - 1]}")
        else:
            found += [MONTHS[month - 1] for month in range(first, last + 1)]
    return joined(found)
