"""Sentences that describe triggers, made from the table of a language.

`round_trip.py` reads the same templates in the other direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.language import semantics
from chimes.language.semantics import Numbers, interval_of, range_words, ranges, steps
from chimes.triggers import (
    Calendar,
    Cron,
    Every,
    NamedCalendar,
    Once,
    Trigger,
    Window,
    parse_duration,
)
from chimes.triggers.calendars import OnExcluded
from chimes.triggers.values import EPOCH

#: A template for one, and for several.
Plural = tuple[str, str]


def invariable(template: str) -> Plural:
    """The same words for one and for several."""
    return template, template


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of one language: names and templates, whose fields the methods fill.

    A language overrides a method only where its grammar differs. `en.py` shows each template.
    """

    # Lists and names.

    comma: str
    and_: str
    or_: str
    #: Between the ends of a range of numbers, of names.
    to: str
    name_to: str
    #: Sunday first.
    weekdays: Sequence[str]
    short_weekdays: Sequence[str]
    months: Sequence[str]
    #: The first to the fifth, the last.
    nth: Sequence[str]
    units: Mapping[semantics.DurationUnit, str]
    #: The unit in "minute 5", where it may differ from the one in "5 minutes".
    points: Mapping[semantics.ClockUnit, str]

    # Times of day.

    clocks: str
    #: {point} {numbers}
    numbered: Plural
    #: {step} {unit} {point} {first} {last}
    stepped: str
    at_values: str
    every_unit: str
    every: str
    duration_part: Plural
    duration_gap: str
    #: Continues a rate: {point} {first}.
    rate_start: str
    #: {within} is one of the three templates after `repeated_at`.
    repeated: str
    repeated_at: str
    since_clock: str
    in_hours: str
    in_ranges: str
    clock_range: str
    listed: str
    listed_rate: str
    of_minutes: str

    # Days.

    every_day: str
    every_weekday: str
    working_day: str
    days_in_months: str
    in_months: str
    days_of_months: str
    of_every_month: str
    of_months: str
    #: {first} {last} {step} {end}
    dates: Mapping[semantics.DateKind, str]
    #: The last day of a month, the one before, {back} days before or the {nth} from the end.
    from_end: tuple[str, str, str]
    nth_weekday: str
    nth_of_month: str
    only_if: str
    as_well_as: str
    #: Orders of {days} and {times} in a sentence, for reading it.
    orders: Sequence[str]
    years: str
    stepped_years: str
    #: Follows each year.
    year_mark: str = ""
    sentence: str

    # Moments, intervals, bounds and exclusions.

    zone: str
    #: {weekday} is one of the two templates after it.
    moment: str
    dated_weekday: str
    no_weekday: str = ""
    #: Follows a moment.
    in_zone: str
    once: str
    every_days: str
    anchored: str
    delayed: str
    #: Separates the clauses below from the sentence and from each other.
    between: str
    clock_changes: str
    since: str
    until: str
    only_once: str
    at_most: str
    excepting: str
    moved: Mapping[OnExcluded, str]
    holidays: str
    named_calendar: str
    excluded_range: str
    excluded_dates: str
    more_dates: Plural
    window: str
    window_all_day: str
    next_day: str

    def describe(self, trigger: Trigger) -> str:
        """Describes the trigger exactly; names the zone where one applies."""
        zone_of_bounds = None
        if isinstance(trigger, Once):
            moment = self.moment_words(trigger.local(trigger.instant), weekday=True)
            main = self.once.format(moment=moment, zone=self.zone_words(trigger.zone))
        elif isinstance(trigger, Cron) and interval_of(trigger) is None:
            values = semantics.cron_values(trigger)
            main = self._on_days(
                semantics.days_of(values.days), semantics.times_of(values), trigger.zone
            )
        else:
            assert isinstance(trigger, Cron | Every), "events are described by `description`"
            # An interval names no zone, so its bounds do.
            main, zone_of_bounds = self._interval(trigger), trigger.zone
        main = f"{main[0].upper()}{main[1:]}{self.delay_words(trigger)}"
        return self.between.join([main, *self.clauses(trigger, zone_of_bounds)])

    # Lists and numbers.

    def joined(self, words: Sequence[str], link: str = "") -> str:
        """`1, 2 and 5`."""
        if len(words) < 2:
            return "".join(words)
        return f"{self.comma.join(words[:-1])}{link or self.and_}{words[-1]}"

    def ordinal(self, number: int) -> str:
        return str(number)

    def ranges(self, values: Numbers, mark: str = "") -> list[str]:
        """Each value with its mark; three or more in a row as `1 to 7`."""
        return range_words(ranges(values), lambda value: f"{value}{mark}", self.to)

    def weekday_names(self, weekdays: Numbers, *, shortest: int = 3) -> list[str]:
        """Names from Monday on; `shortest` or more in a row as `Monday to Friday`."""
        found = semantics.weekday_ranges(weekdays, shortest=shortest)
        return range_words(found, self.weekdays.__getitem__, self.name_to)

    def month_names(self, months: Numbers) -> str:
        found = range_words(ranges(months), lambda each: self.months[each - 1], self.name_to)
        return self.joined(found)

    # Times of day.

    def times_words(self, times: semantics.Times) -> str:
        if isinstance(times, semantics.At):
            return self.clocks.format(clocks=self.joined(times.clocks))
        return (
            self._repeated(times) if isinstance(times, semantics.Repeated) else self._listed(times)
        )

    def _repeated(self, times: semantics.Repeated) -> str:
        within = ""
        if times.since is not None:
            within = self.since_clock.format(clock=times.since)
        elif times.hours is not None:
            within = self.in_hours.format(hours=self.hours_words(times.hours))
        elif times.ranges:
            found = [
                self.clock_range.format(first=first, last=last) for first, last in times.ranges
            ]
            within = self.in_ranges.format(ranges=self.joined(found))
        at = "" if times.at is None else self.repeated_at.format(at=self.at_words(times.at))
        return self.repeated.format(rate=self._rate(times.rate), at=at, within=within)

    def _listed(self, times: semantics.Listed) -> str:
        if times.hours is None:
            hours = self.every_unit.format(unit=self.units["hour"])
        else:
            hours = self.hours_words(times.hours)
        minutes = ""
        if times.minutes is not None:
            minutes = self.of_minutes.format(minutes=self.values_words(times.minutes))
        if isinstance(times.which, semantics.Rate):
            rate = self._rate(times.which)
            return self.listed_rate.format(rate=rate, minutes=minutes, hours=hours)
        which = self.at_words(times.which)
        return self.listed.format(which=which, minutes=minutes, hours=hours)

    def _rate(self, rate: semantics.Rate) -> str:
        unit = self.units[rate.unit]
        if rate.step == 1:
            return self.every_unit.format(unit=unit)
        duration = self.duration_part[1].format(count=rate.step, unit=unit)
        words = self.every.format(duration=duration)
        if rate.first:
            words += self.rate_start.format(point=self.points[rate.unit], first=rate.first)
        return words

    def at_words(self, values: semantics.Values) -> str:
        return self.at_values.format(values=self.values_words(values))

    def values_words(self, values: semantics.Values) -> str:
        """`minute 5`, `minutes 5, 10 and 20`, `every 5th minute from 10 to 40`."""
        found = steps(values.numbers)
        if found is None:
            return self.numbered_words(values)
        return self.stepped.format(
            step=self.ordinal(found.step),
            unit=self.units[values.unit],
            point=self.points[values.unit],
            first=found.first,
            last=found.last,
        )

    def hours_words(self, hours: semantics.Values) -> str:
        return self.values_words(hours)

    def numbered_words(self, values: semantics.Values) -> str:
        template = self.numbered[len(values.numbers) > 1]
        shown = self.joined(self.ranges(values.numbers))
        return template.format(point=self.points[values.unit], numbers=shown)

    # Days.

    def _on_days(self, days: semantics.Days, times: semantics.Times, zone: str) -> str:
        return self.sentence.format(
            words=self.days_and_times(days, times),
            years=self._years(days.years),
            zone=self.zone_words(zone),
        )

    def days_and_times(self, days: semantics.Days, times: semantics.Times) -> str:
        """Days and times in one of the `orders`; without "every day" where that is clear."""
        raise NotImplementedError

    def days_words(self, days: semantics.Days) -> str:
        """`every day`, `every Monday`, `on the 1st of every month`, …"""
        months = days.months
        if days.dates is None:
            if days.weekdays is None:
                return self._in_months(self.every_day, months)
            return self._weekdays(days.weekdays, months)
        dates = self.dates_words(days.dates, months)
        if days.weekdays is None:
            return dates
        if days.both:
            special = [self.nth_of_month.format(day=day) for day in self._special(days.weekdays)]
            choices = [*self.weekday_choices(days.weekdays), *special]
            return self.only_if.format(dates=dates, days=self.joined(choices, self.or_))
        return self.as_well_as.format(days=dates, others=self._weekdays(days.weekdays, months))

    def _weekdays(self, weekdays: semantics.Weekdays, months: Numbers | None) -> str:
        special = self._of_months(self.joined(self._special(weekdays)), months)
        if not weekdays.every:
            return special
        plain = self._in_months(self.each_weekday(weekdays), months)
        if not (weekdays.nth or weekdays.last):
            return plain
        return self.as_well_as.format(days=plain, others=special)

    def each_weekday(self, weekdays: semantics.Weekdays) -> str:
        """`every weekday`, `every Monday and Friday`."""
        if weekdays.working:
            return self.every_weekday.format(names=self.working_day)
        return self.every_weekday.format(names=self.joined(self.weekday_names(weekdays.every)))

    def weekday_choices(self, weekdays: semantics.Weekdays) -> list[str]:
        """The weekdays that a date must fall on."""
        return [self.working_day] if weekdays.working else self.weekday_names(weekdays.every)

    def _special(self, weekdays: semantics.Weekdays) -> list[str]:
        """`the first Monday`, `the last Friday`."""
        found = [(day, self.nth[nth - 1]) for day, nth in weekdays.nth]
        found += [(day, self.nth[-1]) for day in weekdays.last]
        return [self.nth_weekday.format(day=self.weekdays[day], nth=nth) for day, nth in found]

    def dates_words(self, dates: Sequence[semantics.DateTerm], months: Numbers | None) -> str:
        return self._of_months(self.joined([self.date_words(term) for term in dates]), months)

    def date_words(self, term: semantics.DateTerm) -> str:
        back = term.first
        return self.dates[term.kind].format(
            first=self.ordinal(term.first),
            last=self.ordinal(term.last),
            step=self.ordinal(term.step),
            end=self.from_end[min(back, 2)].format(back=back, nth=back + 1),
        )

    def _in_months(self, days: str, months: Numbers | None) -> str:
        within = "" if months is None else self.in_months_words(months)
        return self.days_in_months.format(days=days, in_months=within)

    def in_months_words(self, months: Numbers) -> str:
        return self.in_months.format(months=self.month_names(months))

    def _of_months(self, days: str, months: Numbers | None) -> str:
        return self.days_of_months.format(days=days, of_months=self.of_months_words(months))

    def of_months_words(self, months: Numbers | None) -> str:
        if months is None:
            return self.of_every_month
        return self.of_months.format(months=self.month_names(months))

    def _years(self, years: Numbers | None) -> str:
        if years is None:
            return ""
        if found := steps(years):
            step = self.ordinal(found.step)
            return self.stepped_years.format(step=step, first=found.first, last=found.last)
        return self.years.format(years=self.joined(self.ranges(years, self.year_mark)))

    # Moments, intervals, bounds and exclusions.

    def zone_words(self, zone: str) -> str:
        return self.zone.format(zone=zone)

    def moment_words(
        self, moment: datetime, zone: str | None = None, *, weekday: bool = False
    ) -> str:
        """In the zone of the datetime, which is named if `zone` is given."""
        name = self.weekdays[moment.isoweekday() % 7]
        words = self.moment.format(
            weekday=self.dated_weekday.format(weekday=name) if weekday else self.no_weekday,
            day=moment.day,
            month=self.months[moment.month - 1],
            year=moment.year,
            clock=semantics.clock_words(moment),
        )
        return words if zone is None else words + self.in_zone.format(zone=self.zone_words(zone))

    def _interval(self, trigger: Cron | Every) -> str:
        if isinstance(trigger, Cron):
            step = parse_duration(interval_of(trigger) or "")
        else:
            step = trigger.every
        words = self._every(step)
        # An interval without an anchor counts from 1970.
        if trigger.anchor is not None and trigger.anchor != EPOCH:
            words += self.anchored.format(moment=self.moment_words(trigger.anchor, "UTC"))
        return words

    def _every(self, step: timedelta) -> str:
        """`every minute`, `every 24 hours`, `every 7 days of 24 hours`."""
        days = semantics.whole_days(step)
        if days is not None:
            return self.every_days.format(days=days)
        (count, unit), *more = semantics.duration_parts(step)
        if count == 1 and not more:
            return self.every_unit.format(unit=self.units[unit])
        return self.every.format(duration=self.duration_words(step))

    def duration_words(self, value: timedelta) -> str:
        """`1 minute 30 seconds`."""
        return self.duration_gap.join(self.duration_list(value))

    def duration_list(self, value: timedelta) -> list[str]:
        return [
            self.duration_part[count != 1].format(count=count, unit=self.units[unit])
            for count, unit in semantics.duration_parts(value)
        ]

    def delay_words(self, trigger: Trigger) -> str:
        """The jitter; empty if there is none."""
        if not trigger.jitter:
            return ""
        return self.delayed.format(duration=self.duration_words(trigger.jitter))

    def clauses(self, trigger: Trigger, zone: str | None) -> list[str]:
        """Bounds and exclusions."""
        found: list[str] = []
        if isinstance(trigger, Cron) and trigger.dst != "chimes":
            found.append(self.clock_changes.format(rules=trigger.dst))
        if trigger.start_at is not None:
            moment = self.moment_words(trigger.local(trigger.start_at), zone)
            found.append(self.since.format(moment=moment))
        if trigger.end_at is not None:
            moment = self.moment_words(trigger.local(trigger.end_at), zone)
            found.append(self.until.format(moment=moment))
        if trigger.max_runs is not None:
            at_most = self.only_once if trigger.max_runs == 1 else self.at_most
            found.append(at_most.format(count=trigger.max_runs))
        return [*found, *(self._excluded(calendar) for calendar in trigger.exclude)]

    def _excluded(self, calendar: Calendar) -> str:
        if calendar.name is not None:
            days = self.named_calendar.format(name=calendar.name)
        elif calendar.holidays is not None:
            days = self.holidays.format(country=calendar.holidays)
        elif calendar.weekly:
            days = self.joined([self._window(window) for window in calendar.weekly])
        elif calendar.ranges or calendar.spans:
            days = self._ranges(calendar)
        else:
            shown, more = semantics.shown_dates(calendar)
            rest = [self.more_dates[more != 1].format(count=more)] if more else []
            days = self.excluded_dates.format(dates=self.joined([*shown, *rest]))
        return self.excepting.format(days=days) + self.moved[calendar.on_excluded]

    def _ranges(self, calendar: Calendar) -> str:
        written = NamedCalendar(ranges=calendar.ranges, spans=calendar.spans).to_dict()["ranges"]
        assert isinstance(written, list)
        return self.joined([self.excluded_range.format(first=a, last=b) for a, b in written])

    def _window(self, window: Window) -> str:
        days = self.joined(self.weekday_names(semantics.numbers(window.weekdays)))
        template = self.window_all_day if semantics.all_day(window) else self.window
        return template.format(
            days=days,
            start=semantics.minute_words(window.start),
            end=semantics.minute_words(window.end),
            next_day=self.next_day if semantics.past_midnight(window) else "",
        )
