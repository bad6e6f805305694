"""English descriptions of triggers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language import en
from chimes.language.cron_sets import Numbers, numbers, range_words, steps, stretches
from chimes.language.forms import (
    At,
    DateKind,
    DateTerm,
    Days,
    Listed,
    Rate,
    Repeated,
    Times,
    Values,
    Weekdays,
    all_day,
    clock_words,
    days_phrase,
    duration_parts,
    is_stretch,
    minute_words,
    past_midnight,
    weekday_stretches,
    whole_days,
)
from chimes.triggers import Dst, Window
from chimes.triggers.calendars import OnExcluded

# Times of day.


def time_phrase(times: Times) -> str:
    if isinstance(times, At):
        return f"at {joined(times.clocks)}"
    return _repeated(times) if isinstance(times, Repeated) else _listed(times)


def _repeated(times: Repeated) -> str:
    words = _rate(times.rate)
    if times.at is not None:
        words += f" at {_values(times.at)}"
    if times.since is not None:
        words += f" from {times.since}"
    if times.hours is not None:
        words += f" in {_values(times.hours)}"
    if times.stretches:
        words += f" {joined([f'from {first} to {last}' for first, last in times.stretches])}"
    return words


def _listed(times: Listed) -> str:
    hours = "every hour" if times.hours is None else _values(times.hours)
    if isinstance(times.which, Rate):
        words = f"{_rate(times.which)} in"
    else:
        words = f"at {_values(times.which)} of"
    if times.minutes is not None:
        words += f" {_values(times.minutes)} of"
    return f"{words} {hours}"


def _rate(rate: Rate) -> str:
    if rate.step == 1:
        return f"every {rate.unit}"
    start = f" from {rate.unit} {rate.first}" if rate.first else ""
    return f"every {rate.step} {rate.unit}s{start}"


def _values(values: Values) -> str:
    unit, values_ = values.unit, values.numbers
    if len(values_) == 1:
        return f"{unit} {values_[0]}"
    if found := steps(values_):
        return f"every {ordinal(found.step)} {unit} from {found.first} to {found.last}"
    return f"{unit}s {joined(ranges(values_))}"


def ranges(values: Numbers) -> list[str]:
    """Each value, ranges of three or more as `a to b`."""
    return range_words(stretches(values), str, " to ")


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def joined(words: Sequence[str], link: str = "and") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"


# Days.

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
    """Names from Monday on; ranges as `Monday to Friday`."""
    return range_words(weekday_stretches(weekdays, least=least), WEEKDAYS.__getitem__, " to ")


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
    return joined(range_words(stretches(months), lambda month: MONTHS[month - 1], " to "))


# Durations, times, bounds and exclusions.


def since(moment: datetime, zone: str | None) -> str:
    return f"from {_in_zone(moment, zone)} on"


def until(moment: datetime, zone: str | None) -> str:
    return f"until {_in_zone(moment, zone)}"


def at_most(count: int) -> str:
    return "only once" if count == 1 else f"at most {count} times"


def holidays(country: str) -> str:
    return f"on public holidays of {country}"


def windows(windows: Sequence[Window]) -> str:
    return joined([_window(window) for window in windows])


def dates(shown: Sequence[str], more: int) -> str:
    rest = [f"{more} more {'date' if more == 1 else 'dates'}"] if more else []
    return f"on {joined([*shown, *rest])}"


def excepting(days: str, then: OnExcluded) -> str:
    words = f"except {days}"
    return words if then == "skip" else f"{words}, then on the {then} business day"


def zone_words(zone: str) -> str:
    return zone if zone == "UTC" else f"{zone} time"


def every_words(value: timedelta) -> str:
    """The words after "every": `minute`, `24 hours`, `7 days of 24 hours`."""
    days = whole_days(value)
    if days is not None:
        return f"{days} days of 24 hours"
    parts = duration_parts(value)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return duration_words(value)


def duration_words(value: timedelta) -> str:
    """`1 minute and 30 seconds`."""
    return joined(
        [
            f"{count} {unit}" if count == 1 else f"{count} {unit}s"
            for count, unit in duration_parts(value)
        ]
    )


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`Sunday 10 February 2030 at 09:00`, in the zone of the datetime."""
    name = f"{WEEKDAYS[moment.isoweekday() % 7]} " if weekday else ""
    day = f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
    return f"{name}{day} at {clock_words(moment)}"


def _in_zone(moment: datetime, zone: str | None) -> str:
    words = moment_words(moment)
    return words if zone is None else f"{words} {zone_words(zone)}"


def _window(window: Window) -> str:
    days = f"on {joined(weekday_list(numbers(window.weekdays)))}"
    if all_day(window):
        return days
    over = " of the next day" if past_midnight(window) else ""
    return f"{days} from {minute_words(window.start)} to {minute_words(window.end)}{over}"


BETWEEN = "; "
SHORT_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def on_days(days: Days, times: Times, zone: str) -> str:
    which, when = days_phrase(days, en), time_phrase(times)
    if when.startswith("at "):
        words = f"{which} {when}"
    else:
        words = when if days.all else f"{when}, {which.removesuffix(',')}"
    words += years_phrase(days.years)
    return f"{words[0].upper()}{words[1:]}, {zone_words(zone)}"


def once(moment: datetime, zone: str) -> str:
    return f"Once, on {moment_words(moment, weekday=True)}, {zone_words(zone)}"


def every(step: timedelta, anchor: datetime | None) -> str:
    words = f"Every {every_words(step)}"
    return words if anchor is None else f"{words}, counted from {moment_words(anchor)} UTC"


def delayed(jitter: timedelta) -> str:
    return f", each run up to {duration_words(jitter)} later"


def clock_changes(rules: Dst) -> str:
    return f"clock changes as in {rules}"
