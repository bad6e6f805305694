"""English descriptions of triggers."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from chimes.language.semantics import (
    ClockUnit,
    Days,
    DurationUnit,
    Numbers,
    Times,
    Weekdays,
    is_range,
)
from chimes.language.words import Words

_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


class _English(Words):
    def ordinal(self, number: int) -> str:
        ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
        return f"{number}{ending}"

    def duration_words(self, value: timedelta) -> str:
        """`1 minute and 30 seconds`."""
        return self.joined(self.duration_list(value))

    def days_and_times(self, days: Days, times: Times) -> str:
        which, when = self.days_words(days), self.times_words(times)
        if when.startswith("at "):
            return f"{which} {when}"
        return when if days.all else f"{when}, {which.removesuffix(',')}"

    def each_weekday(self, weekdays: Weekdays) -> str:
        names = self.weekday_names(weekdays.every)
        if weekdays.working:
            words = self.working_day
        elif len(names) == 1 and len(weekdays.every) > 1:
            words = f"day from {names[0]}"
        else:
            words = self.joined(self.weekday_names(weekdays.every, shortest=8))
        return f"every {words}"

    def weekday_choices(self, weekdays: Weekdays) -> list[str]:
        names = [self.weekdays[day] for day in weekdays.every]
        return [f"a {name}" for name in ([self.working_day] if weekdays.working else names)]

    def in_months_words(self, months: Numbers) -> str:
        return f" {'from' if is_range(months) else 'in'} {self.month_names(months)}"

    def zone_words(self, zone: str) -> str:
        return zone if zone == "UTC" else super().zone_words(zone)


_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

WORDS = _English(
    comma=", ",
    and_=" and ",
    or_=" or ",
    to=" to ",
    name_to=" to ",
    weekdays=_WEEKDAYS,
    short_weekdays=[name[:3] for name in _WEEKDAYS],
    months=(
        *("January", "February", "March", "April", "May", "June", "July", "August"),
        *("September", "October", "November", "December"),
    ),
    nth=("first", "second", "third", "fourth", "fifth", "last"),
    units={unit: unit for unit in get_args(DurationUnit)},
    points={unit: unit for unit in get_args(ClockUnit)},
    clocks="at {clocks}",
    numbered=("{point} {numbers}", "{point}s {numbers}"),
    stepped="every {step} {unit} from {first} to {last}",
    at_values="at {values}",
    every_unit="every {unit}",
    every="every {duration}",
    duration_part=("{count} {unit}", "{count} {unit}s"),
    duration_gap=" ",
    rate_start=" from {point} {first}",
    repeated="{rate}{at}{within}",
    repeated_at=" {at}",
    since_clock=" from {clock}",
    in_hours=" in {hours}",
    in_ranges=" {ranges}",
    clock_range="from {first} to {last}",
    listed="{which} of{minutes} {hours}",
    listed_rate="{rate} in{minutes} {hours}",
    of_minutes=" {minutes} of",
    every_day="every day",
    every_weekday="every {names}",
    working_day="weekday",
    days_in_months="{days}{in_months}",
    in_months=" in {months}",
    days_of_months="on {days} {of_months}",
    of_every_month="of every month",
    of_months="of {months}",
    dates={
        "day": "the {first}",
        "days": "the {first} to the {last}",
        "step": "every {step} day from the {first} to the {last}",
        "nearest": "the weekday nearest the {first}",
        "from_end": "{end}",
        "nearest_from_end": "the weekday nearest {end}",
        "last_working": "the last weekday",
    },
    from_end=(
        "the last day",
        "the day before the last",
        "the day {back} days before the last",
    ),
    nth_weekday="the {nth} {day}",
    nth_of_month="{day} of the month",
    only_if="{dates}, if that is {days},",
    as_well_as="{days} and {others}",
    orders=("{times}, {days}", "{days} {times}"),
    years=", in {years}",
    stepped_years=", in every {step} year from {first} to {last}",
    sentence="{words}{years}, {zone}",
    zone="{zone} time",
    moment="{weekday}{day} {month} {year} at {clock}",
    dated_weekday="{weekday} ",
    in_zone=" {zone}",
    once="once, on {moment}, {zone}",
    every_days="every {days} days of 24 hours",
    anchored=", counted from {moment}",
    delayed=", each run up to {duration} later",
    between="; ",
    clock_changes="clock changes as in {rules}",
    since="from {moment} on",
    until="until {moment}",
    only_once="only once",
    at_most="at most {count} times",
    excepting="except {days}",
    moved={
        "skip": "",
        "next": ", then on the next business day",
        "previous": ", then on the previous business day",
    },
    holidays="on public holidays of {country}",
    named_calendar="in the calendar {name}",
    excluded_range="from {first} to {last}",
    excluded_dates="on {dates}",
    more_dates=("{count} more date", "{count} more dates"),
    window="on {days} from {start} to {end}{next_day}",
    window_all_day="on {days}",
    next_day=" of the next day",
)
