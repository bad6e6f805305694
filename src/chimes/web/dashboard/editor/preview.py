"""Preview in the editor: next fires, frequency, retries, neighbours, parts of a cron expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice, pairwise

from chimes.errors import InvalidTrigger
from chimes.i18n import Message, _, in_language
from chimes.language import describe, note_in_words, short_weekday, warnings_in_words
from chimes.language.description import trigger_warnings
from chimes.model.forecast import minute_of, planned_fires, quieter_times
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule
from chimes.triggers import Cron, Every, Fire, Once, Trigger, trigger_from_dict
from chimes.triggers.clock_changes import affected_fire, clock_changes
from chimes.triggers.cron_fields import DESCRIPTORS, CronFields, DayFields, parse_fields
from chimes.web.dashboard.charts.sparkline import DayStripTexts, Hour, day_strip
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.waterfall import AttemptTexts, attempts_line
from chimes.web.dashboard.core.cldr import locale_of
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.core.times import (
    absolute,
    day,
    describe_clock_change,
    span,
    zone_info,
)

HOURS = 24
#: Schedules whose next 24 hours are shown.
NEIGHBOURS_SHOWN = 60
NEIGHBOURS = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=NEIGHBOURS_SHOWN)
#: One bounded query, whatever the size of the store: schedules that are compared with the first
#: run, to propose a quieter minute.
CROWD = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=500)
#: Above this, fires are counted per hour instead of listed.
_MAX_LISTED_FIRES = 48
_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)
#: Fires that are compared with and without the excluding calendars.
_EXCLUSION_SCAN = 400
_MAX_EXCLUDED = 5
#: Other schedules that fire in the same minute, from which the preview warns.
_CROWDED_FROM = 3


def build_neighbours(
    trigger: Trigger,
    others: Iterable[Schedule],
    display: DisplayPreferences,
    now: datetime,
    exclude_id: ScheduleId | None = None,
) -> Chart | None:
    """Charts the next 24 hours with other schedules; None if the trigger does not fire in them."""
    first = trigger.next_after(now)
    if first is None or first > now + HOURS * _HOUR:
        return None
    known = [
        each
        for each in others
        if each.id != exclude_id and each.enabled and each.next_run_at is not None
    ]
    counts = [0] * HOURS
    for each in known:
        for place, count in enumerate(fires_per_hour(each.trigger, now)):
            counts[place] += count
    mine = fires_per_hour(trigger, now)
    zone = zone_info(trigger.zone)
    hours = [
        Hour(
            name=f"{(now + place * _HOUR).astimezone(zone):%H:%M}",
            others=counts[place],
            mine=mine[place],
        )
        for place in range(HOURS)
    ]
    translate = partial(in_language, language=display.language)
    words = DayStripTexts(
        title=translate(_("Next 24 hours with your other schedules")),
        description=translate(
            _(
                "Bars show the runs of other schedules per hour; dots mark the hours in which this"
                " schedule runs. Times are {zone}.",
                zone=trigger.zone,
            )
        ),
        hour=translate(_("From ({zone})", zone=trigger.zone)),
        others=translate(_("Other schedules")),
        mine=translate(_("This schedule")),
    )
    return day_strip(hours, words)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuieterChoice:
    words: str
    #: Of a cron trigger, which a button fills in; else empty.
    expression: str
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Crowd:
    """The minute of the first run, in which many others start, and quieter ones."""

    at: datetime
    runs: int
    quieter: tuple[QuieterChoice, ...]


def build_crowd(
    trigger: Trigger,
    others: Iterable[Schedule],
    display: DisplayPreferences,
    now: datetime,
    exclude_id: ScheduleId | None = None,
) -> Crowd | None:
    """Compares the hour of the first fire with other schedules; None if its minute is quiet."""
    first = trigger.next_after(now)
    if first is None:
        return None
    start = first.replace(minute=0, second=0, microsecond=0) - _TICK
    counts = Counter(
        minute_of(at)
        for each in others
        if each.id != exclude_id
        for at in planned_fires(each, max(start, now), start + _HOUR)
    )
    runs = counts[minute_of(first)]
    if runs < _CROWDED_FROM:
        return None
    quieter = tuple(
        QuieterChoice(
            words=describe(each.trigger, display.language),
            expression=each.trigger.expression if isinstance(each.trigger, Cron) else "",
            runs=each.runs,
        )
        for each in quieter_times(trigger, counts, max(start, now))
    )
    return Crowd(at=minute_of(first), runs=runs, quieter=quieter)


def without_calendars(trigger: Trigger) -> Trigger:
    if not trigger.exclude:
        return trigger
    plain = trigger.to_dict()
    del plain["exclude"]
    return trigger_from_dict(plain)


def fires_per_hour(trigger: Trigger, now: datetime) -> list[int]:
    """Counts the fires in each of the next 24 hours. For frequent triggers, an hour that calendars
    exclude in part is counted in full."""
    edges = [now + place * _HOUR for place in range(HOURS + 1)]
    bare = without_calendars(trigger)
    if bare.count_between(now + _TICK, edges[-1]) > _MAX_LISTED_FIRES:
        return [
            bare.count_between(max(start, now + _TICK), end - _TICK)
            if bare is trigger or _fires_between(trigger, max(start, now + _TICK), end)
            else 0
            for start, end in pairwise(edges)
        ]
    found, at = [0] * HOURS, trigger.next_after(now)
    while at is not None and at < edges[-1]:
        found[(at - now) // _HOUR] += 1
        at = trigger.next_after(at)
    return found


def _fires_between(trigger: Trigger, start: datetime, end: datetime) -> bool:
    at = trigger.next_after(start - _TICK)
    return at is not None and at < end


def excluded_times(trigger: Trigger, display: DisplayPreferences, now: datetime) -> tuple[str, ...]:
    """Returns the next fire times that calendars skip or move, in the zone of the trigger."""
    if not trigger.exclude:
        return ()
    possible = [fire.at for fire in without_calendars(trigger).fires(now, _EXCLUSION_SCAN)]
    remaining = {fire.at for fire in trigger.fires(now, _EXCLUSION_SCAN)}
    skipped = [
        at for at in possible if at not in remaining and (not remaining or at < max(remaining))
    ]
    return tuple(absolute(at, trigger.zone, display, now=now) for at in skipped[:_MAX_EXCLUDED])


def retry_chart(
    first: datetime, retries: Sequence[datetime], zone: str, display: DisplayPreferences
) -> Chart:
    translate = partial(in_language, language=display.language)
    return attempts_line(
        [first, *retries],
        AttemptTexts(
            title=translate(_("Attempts")),
            description=translate(
                _("Start of each attempt if the attempts before it fail immediately")
            ),
            attempt=translate(_("Attempt")),
            when=translate(_("When")),
            after=translate(_("After the first attempt")),
            moment=lambda at: absolute(at, zone, display, now=first, seconds=True),
            span=lambda length: span(length, display.language),
        ),
    )


FIRES = 5
#: Covers both clock changes of a year.
HORIZON = timedelta(days=400)
_MAX_NOTES = 4
#: Limit for counting fires one by one.
_MAX_COUNTED = 2000
_MAX_RETRIES = 5
#: Fires inspected after a clock change.
_FIRES_AFTER_CHANGE = 3
#: Runs per day from which the preview warns: once a minute.
_OFTEN = 1440
_FREQUENCY_WARNINGS = ("often", "every_minute")


@dataclass(frozen=True, kw_only=True, slots=True)
class FireRow:
    at: datetime
    #: In the schedule's zone, and in the viewer's.
    in_schedule_zone: str
    in_viewer_zone: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    words: str
    zone: str
    fires: tuple[FireRow, ...]
    warnings: tuple[str, ...]
    #: Effects of clock changes within a year.
    notes: tuple[str, ...]
    per_day: int
    per_month: int
    #: `per_month` is a lower bound.
    more: bool
    #: Retry times if the first run and every retry fail.
    retries: tuple[datetime, ...]
    #: Chart of `retries`.
    attempts: Chart | None
    #: Fire times that calendars exclude.
    excluded: tuple[str, ...]

    @property
    def first(self) -> datetime | None:
        return self.fires[0].at if self.fires else None


def build_preview(
    trigger: Trigger,
    display: DisplayPreferences,
    now: datetime,
    policy: Policy | None = None,
    described: Trigger | None = None,
) -> Preview:
    """Builds the preview of a resolved trigger. `described` is the trigger as entered, for the
    description: the default anchor of an interval is not worth showing."""
    fires = trigger.fires(now, min(FIRES, trigger.max_runs or FIRES))
    per_day, _limited = _count(trigger, now, timedelta(days=1))
    per_month, more = _count(trigger, now, timedelta(days=30))
    if trigger.max_runs is not None:
        per_day, per_month = min(per_day, trigger.max_runs), min(per_month, trigger.max_runs)
    retries = retry_times(policy, fires[0].at) if policy and fires else ()
    return Preview(
        words=describe(described or trigger, display.language),
        zone=trigger.zone,
        fires=tuple(_fire_row(fire, trigger, display, now) for fire in fires),
        warnings=_warnings(trigger, display, per_day),
        notes=tuple(clock_notes(trigger, display, now)),
        per_day=per_day,
        per_month=per_month,
        more=more,
        retries=retries,
        attempts=retry_chart(fires[0].at, retries, trigger.zone, display) if retries else None,
        excluded=excluded_times(trigger, display, now),
    )


def _warnings(trigger: Trigger, display: DisplayPreferences, per_day: int) -> tuple[str, ...]:
    """Returns warnings about the trigger, with the runs per day unless a warning states them."""
    found = tuple(warnings_in_words(trigger, display.language))
    if per_day < _OFTEN or any(
        warning.code in _FREQUENCY_WARNINGS for warning in trigger_warnings(trigger)
    ):
        return found
    often = _("Runs {count} times a day", count=per_day)
    return (*found, in_language(often, display.language))


def retry_times(policy: Policy, first: datetime) -> tuple[datetime, ...]:
    """Returns the start times of the retries if every attempt fails immediately."""
    found, at = [], first
    for attempt in range(1, min(policy.max_retries, _MAX_RETRIES) + 1):
        at += policy.retry_delay(attempt, run_id="", retry_after=None)
        found.append(at)
    return tuple(found)


def _fire_row(fire: Fire, trigger: Trigger, display: DisplayPreferences, now: datetime) -> FireRow:
    return FireRow(
        at=fire.at,
        in_schedule_zone=_text(fire.at, trigger.zone, display, now),
        in_viewer_zone=_text(fire.at, display.zone, display, now),
        note="" if fire.note is None else note_in_words(fire.note, display.language),
    )


def _text(at: datetime, zone: str, display: DisplayPreferences, now: datetime) -> str:
    return absolute(at, zone, display, now=now, seconds=bool(at.second or at.microsecond))


def _count(trigger: Trigger, now: datetime, span: timedelta) -> tuple[int, bool]:
    """Counts the fires in the span, and whether the limit was reached. Triggers with calendars
    can only be counted fire by fire."""
    if not trigger.exclude:
        return trigger.count_between(now + _TICK, now + span), False
    found, at = 0, trigger.next_after(now)
    while at is not None and at <= now + span:
        found += 1
        if found >= _MAX_COUNTED:
            return found, True
        at = trigger.next_after(at)
    return found, False


# --- clock changes -----------------------------------------------------------------------------
def clock_notes(trigger: Trigger, display: DisplayPreferences, now: datetime) -> Iterator[str]:
    """Yields the effects of clock changes in the schedule's and in the viewer's zone."""
    notes = chain(
        _changes_of_schedule_zone(trigger, display, now),
        _shifts_in_viewer_zone(trigger, display, now),
    )
    for note in islice(notes, _MAX_NOTES):
        yield in_language(note, display.language)


def _changes_of_schedule_zone(
    trigger: Trigger, display: DisplayPreferences, now: datetime
) -> Iterator[str]:
    for change in clock_changes(trigger.zone, now, now + HORIZON):
        touched = affected_fire(trigger, change)
        if touched is not None:
            yield describe_clock_change(touched, display, now)


def _shifts_in_viewer_zone(
    trigger: Trigger, display: DisplayPreferences, now: datetime
) -> Iterator[str]:
    """Yields the fires whose time in the viewer's zone shifts after a clock change."""
    if isinstance(trigger, Once | Every) or trigger.zone == display.zone:
        return
    if trigger.count_between(now + _TICK, now + timedelta(days=7)) > 7 * 24:
        return
    viewer_zone, schedule_zone = zone_info(display.zone), zone_info(trigger.zone)
    changes = {
        each.at: zone
        for zone in (display.zone, trigger.zone)
        for each in clock_changes(zone, now, now + HORIZON)
    }
    for change, zone in sorted(changes.items()):
        before, after = trigger.previous_before(change), _first_after(trigger, change)
        if before is None or after is None or before <= now:
            continue
        if before.astimezone(schedule_zone).time() != after.astimezone(schedule_zone).time():
            continue
        was, becomes = before.astimezone(viewer_zone), after.astimezone(viewer_zone)
        if was.time() != becomes.time():
            yield _(
                "{day}: a clock change moves this from {was} to {becomes} in your time zone"
                " ({zone}).",
                # The day of the clock change; the first fire may be days later.
                day=day(change, zone, display, now=now),
                was=f"{was:%H:%M}",
                becomes=f"{becomes:%H:%M}",
                zone=display.zone,
            )


def _first_after(trigger: Trigger, change: datetime) -> datetime | None:
    """Returns the first fire after the change that a gap in the clock did not move."""
    fires = trigger.fires(change - _TICK, _FIRES_AFTER_CHANGE)
    return next((fire.at for fire in fires if fire.note != "moved_by_gap"), None)


# --- fields of a cron expression ------------------------------------------------------------------
_UNITS = ("second", "minute", "hour", "day", "month", "weekday", "year")
_NAMES: dict[str, Message] = {
    "second": _("second"),
    "minute": _("minute"),
    "hour": _("hour"),
    "day": _("day of the month"),
    "month": _("month"),
    "weekday": _("weekday"),
    "year": _("year"),
}
_EVERY: dict[str, Message] = {
    "second": _("every second"),
    "minute": _("every minute"),
    "hour": _("every hour"),
    "day": _("every day of the month"),
    "month": _("every month"),
    "weekday": _("every weekday, Monday to Sunday"),
    "year": _("every year"),
}
_ALLOWED = {
    "second": "0–59",
    "minute": "0–59",
    "hour": "0–23",
    "day": "1–31 L W",
    "month": "1–12",
    "weekday": "0–7 L #",
    "year": "1970–2199",
}
_SIZES = {"second": 60, "minute": 60, "hour": 24, "day": 31, "month": 12, "weekday": 7}
#: Suggested values.
CHOICES: dict[str, tuple[str, ...]] = {
    "second": ("0", "*/10", "*/30"),
    "minute": ("0", "*/5", "*/15", "30", "*"),
    "hour": ("9", "9-17", "*/2", "0", "*"),
    "day": ("1", "15", "L", "LW", "*"),
    "month": ("*/3", "1", "1,7", "*"),
    "weekday": ("1-5", "1", "0,6", "5L", "*"),
    "year": ("*",),
}
_SUNDAY = datetime(2023, 1, 1, tzinfo=UTC)
_MAX_LISTED = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class CronPart:
    #: second, minute, hour, day, month, weekday or year.
    unit: str
    name: str
    text: str
    #: Description, or the error message.
    meaning: str
    invalid: bool
    allowed: str
    choices: tuple[str, ...]


def cron_parts(expression: str, dialect: str, language: str) -> tuple[CronPart, ...]:
    """Returns the fields in order; empty for expressions without fields, such as `@every 5m`."""
    words = expression.split()
    if words and words[0].startswith(("CRON_TZ=", "TZ=")):
        words = words[1:]
    if len(words) == 1 and words[0].lower() in DESCRIPTORS:
        words = DESCRIPTORS[words[0].lower()].split()
    if not words or words[0].startswith("@") or len(words) > len(_UNITS):
        return ()
    quartz = dialect == "quartz" or (dialect in ("", "auto") and len(words) == 7)
    seconds = len(words) > 5 or dialect in ("seconds", "quartz")
    units = _UNITS if seconds else _UNITS[1:]
    return tuple(
        _part(unit, text.upper(), quartz, language)
        for unit, text in zip(units, words, strict=False)
    )


def _part(unit: str, text: str, quartz: bool, language: str) -> CronPart:
    invalid = False
    try:
        meaning = _meaning(unit, text, quartz, language)
    except InvalidTrigger as error:
        meaning, invalid = in_language(error.message, language), True
    return CronPart(
        unit=unit,
        name=in_language(_NAMES[unit], language),
        text=text,
        meaning=meaning,
        invalid=invalid,
        allowed="1–7 L #" if quartz and unit == "weekday" else _ALLOWED[unit],
        choices=CHOICES[unit],
    )


def _parse_single(unit: str, text: str, quartz: bool) -> CronFields:
    """Parses this field with the parser of the scheduler; all other fields are wildcards."""
    parts = dict.fromkeys(_UNITS, "*") | {"second": "0", unit: text}
    if not quartz and unit != "year":
        return parse_fields(" ".join(parts[each] for each in _UNITS[:6]), "seconds")
    parts["day" if unit == "weekday" else "weekday"] = "?"
    return parse_fields(" ".join(parts[each] for each in _UNITS), "quartz")


def _meaning(unit: str, text: str, quartz: bool, language: str) -> str:
    if text in ("*", "?"):
        return in_language(_EVERY[unit], language)
    fields = _parse_single(unit, text, quartz)
    if unit == "year":
        return text
    days, values = fields.days, _values(unit, fields)
    parts = []
    if len(values) == _SIZES[unit] and not _special_days(unit, days):
        parts.append(in_language(_EVERY[unit], language))
    elif values:
        parts.append(_listed(values, unit, language))
    parts += [in_language(each, language) for each in _special_days(unit, days, language)]
    return " · ".join(parts)


def _values(unit: str, fields: CronFields) -> list[int]:
    match unit:
        case "second":
            return _bits(fields.seconds)
        case "minute":
            return _bits(fields.minutes & (1 << 60) - 1)
        case "hour":
            return [hour for hour in range(24) if fields.minutes >> 60 * hour & 1]
        case "day":
            return [bit + 1 for bit in _bits(fields.days.days & (1 << 31) - 1)]
        case "month":
            return _bits(fields.days.months)
        case _:
            return _bits(fields.days.weekdays & (1 << 7) - 1)


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _listed(values: Sequence[int], unit: str, language: str) -> str:
    """Formats values as `0, 15, 30, 45` or `Mon–Fri`: three or more in sequence become a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    listed: list[str] = []
    for run in runs:
        names = [_named(value, unit, language) for value in run]
        listed += names if len(run) < 3 else [f"{names[0]}–{names[-1]}"]
    more = ["…"] if len(listed) > _MAX_LISTED else []
    return ", ".join([*listed[:_MAX_LISTED], *more])


def _named(value: int, unit: str, language: str) -> str:
    if unit == "weekday":
        return short_weekday(_SUNDAY.replace(day=1 + value % 7), language)
    if unit == "month":
        return locale_of(language).months["stand-alone abbreviated"][value - 1]
    return str(value)


def _special_days(unit: str, days: DayFields, language: str = "en") -> list[Message]:
    found: list[Message] = []
    if unit == "day":
        found += [
            _("the last day of the month")
            if back == 0
            else _("{days} days before the last day of the month", days=back)
            for back in days.last
        ]
        if days.last_working:
            found.append(_("the last working day of the month"))
        found += [_("the working day nearest to day {day}", day=each) for each in days.nearest]
        found += [
            _("the working day nearest to {days} days before the last", days=back)
            for back in days.last_nearest
        ]
    if unit == "weekday":
        found += [
            _("{weekday}, number {count} of the month", weekday=_day(each, language), count=count)
            for each, count in days.nth
        ]
        found += [
            _("the last {weekday} of the month", weekday=_day(each, language))
            for each in days.last_weekday
        ]
    return found


def _day(weekday: int, language: str) -> str:
    return _named(weekday, "weekday", language)
