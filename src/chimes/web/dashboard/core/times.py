"""Formats times, durations, numbers and statuses in the viewer's language and time zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from markupsafe import Markup

from chimes.i18n import Message, _, in_language
from chimes.model.insights import QUARTER, quarter_start
from chimes.model.run import RunStatus
from chimes.triggers.clock_changes import AffectedFire, Effect
from chimes.triggers.values import format_moment
from chimes.web.dashboard.core.cldr import format_decimal, format_percent, locale_of
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone, secondary_zone

#: Durations below this are shown with two units.
_TWO_UNITS = timedelta(hours=48)
_BUDDHIST_ERA_OFFSET = 543
_DAY = {
    "en": ("EEE d MMM", "EEE d MMM y"),
    "th": ("EEE d MMM", "EEE d MMM y"),
    "zh": ("M月d日 EEE", "y年M月d日 EEE"),
}
#: As CLDR names them.
LOCALES = {"en": "en_GB", "th": "th_TH", "zh": "zh_Hans_CN"}
_BYTES = ("B", "KB", "MB", "GB", "TB")


@lru_cache(maxsize=256)
def zone_info(name: str) -> ZoneInfo:
    """From the pinned tzdata package, as in the scheduler."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def absolute(
    moment: datetime,
    zone: str,
    display: DisplayPreferences,
    *,
    now: datetime,
    seconds: bool = False,
) -> str:
    """`Mon 16 Nov 09:00 +07`; with the year unless it is the current one."""
    local = moment.astimezone(zone_info(zone))
    clock = _format_clock(local, seconds=seconds)
    return f"{_date(local, display, now)} {clock} {zone_abbreviation(local)}"


def format_with_year(moment: datetime, zone: str, display: DisplayPreferences) -> str:
    """`Mon 16 Nov 2026 09:00 +07`, always with the year. Fast: charts contain hundreds of them."""
    local = moment.astimezone(zone_info(zone))
    day = _format_day(local, display, _DAY[display.language][1])
    return f"{day} {local.hour:02}:{local.minute:02} {zone_abbreviation(local)}"


def zone_abbreviation(local: datetime) -> str:
    """`+07`, `EDT`, `UTC`."""
    return local.tzname() or local.strftime("%z")


def day(moment: datetime, zone: str, display: DisplayPreferences, *, now: datetime) -> str:
    """The date only, for captions and axes that name the zone."""
    return _date(moment.astimezone(zone_info(zone)), display, now)


def _date(local: datetime, display: DisplayPreferences, now: datetime) -> str:
    short, long = _DAY[display.language]
    this_year = local.year == now.astimezone(local.tzinfo).year
    return _format_day(local, display, short if this_year else long)


def _format_day(local: datetime, display: DisplayPreferences, pattern: str) -> str:
    if display.era == "be":
        pattern = pattern.replace("y", f"'{local.year + _BUDDHIST_ERA_OFFSET}'")
    return _format_date(local.date(), pattern, display.language)


@lru_cache(maxsize=1024)
def _format_date(day: date, pattern: str, language: str) -> str:
    """Cached: the times on a page fall on few days."""
    return locale_of(language).format_date(day, pattern)


def _format_clock(local: datetime, *, seconds: bool) -> str:
    return f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"


def ticks_between(zone: str, start: datetime, end: datetime, step: int) -> list[datetime]:
    """Every `step` hours of the local day, also in zones with a fractional UTC offset."""
    info = zone_info(zone)
    # Steps of 15 minutes of absolute time: every UTC offset is a multiple of it, and skipped or
    # repeated hours need no special case.
    at = quarter_start(start) + QUARTER
    found: list[datetime] = []
    seen: set[datetime] = set()
    while at < end:
        local = at.astimezone(info)
        wall = local.replace(tzinfo=None)
        if local.minute == 0 and local.hour % step == 0 and wall not in seen:
            seen.add(wall)
            found.append(at)
        at += QUARTER
    return found


def units_of(span: timedelta) -> tuple[tuple[str, int], ...]:
    """One or two units, rounded down: `(("h", 1), ("min", 5))`."""
    seconds = int(abs(span).total_seconds())
    if seconds < 60:
        return (("s", seconds),)
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return (("min", minutes), ("s", rest)) if minutes < 5 and rest else (("min", minutes),)
    hours, minutes = divmod(minutes, 60)
    if abs(span) < _TWO_UNITS:
        return (("h", hours), ("min", minutes)) if minutes else (("h", hours),)
    return (("d", hours // 24),)


def unit_label(unit: str, count: int) -> Message:
    match unit:
        case "ms":
            return _("{count} ms", count=count)
        case "s":
            return _("{count} s", count=count)
        case "min":
            return _("{count} min", count=count)
        case "h":
            return _("{count} h", count=count)
        case _:
            return _("{count} d", count=count)


def span(length: timedelta | float | None, language: str) -> str:
    """A duration: `840 ms`, `2.3 s`, `1 h 5 min`."""
    if length is None:
        return "–"
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds >= 10:
        return _format_span(float(int(seconds)), language)
    return _format_span(round(seconds, 1 if seconds >= 1 else 3), language)


@lru_cache(maxsize=4096)
def _format_span(seconds: float, language: str) -> str:
    """Cached: lists contain hundreds of durations, and rounded ones repeat."""
    if seconds < 1:
        return in_language(unit_label("ms", round(seconds * 1000)), language)
    if seconds < 10:
        shown = number(seconds, language)
        return in_language(_("{count} s", count=shown), language)
    return _join_units(units_of(timedelta(seconds=seconds)), language)


def window_name(name: str, language: str) -> str:
    """Localised name of a time window of a URL: `24h` or `7d`."""
    return in_language(unit_label(name[-1], int(name[:-1])), language)


def _join_units(units: tuple[tuple[str, int], ...], language: str) -> str:
    between = "" if language == "zh" else " "
    return between.join(in_language(unit_label(*each), language) for each in units)


def relative(moment: datetime, now: datetime, language: str) -> str:
    """`in 1 h 5 min`, `3 min ago`, `now`."""
    away = moment - now
    if abs(away) < timedelta(seconds=1):
        return in_language(_("now"), language)
    words = _join_units(units_of(away), language)
    if away > timedelta(0):
        return in_language(_("in {span}", span=words), language)
    return in_language(_("{span} ago", span=words), language)


def moment_html(
    moment: datetime | None,
    display: DisplayPreferences,
    *,
    now: datetime,
    zone: str | None = None,
    seconds: bool = False,
    distance: bool = True,
) -> Markup:
    """The `<time>` element that all pages use. `zone` is the zone of the schedule."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    first, other = primary_zone(display, zone), secondary_zone(display, zone)

    def shown(in_zone: str) -> str:
        return absolute(moment, in_zone, display, now=now, seconds=seconds)

    parts = [
        Markup('<time datetime="{}" title="{}"><span class="when">{}</span>').format(
            format_moment(moment), _tooltip(moment, display, zone, now), shown(first)
        )
    ]
    if distance:
        parts.append(
            Markup(' <span class="away" data-away>{}</span>').format(
                relative(moment, now, display.language)
            )
        )
    if other is not None:
        parts.append(Markup(' <span class="also">{}</span>').format(shown(other)))
    parts.append(Markup("</time>"))
    return Markup("").join(parts)


def _tooltip(moment: datetime, display: DisplayPreferences, zone: str | None, now: datetime) -> str:
    """All zones and the Unix time, for the tooltip."""
    zones = dict.fromkeys([*([zone] if zone else []), display.zone, "UTC"])
    lines = [f"{absolute(moment, each, display, now=now, seconds=True)} · {each}" for each in zones]
    return "\n".join([*lines, f"Unix {int(moment.timestamp())}"])


def number(value: float, language: str) -> str:
    """The same in all three languages."""
    return format_decimal(value)


def percent(share: float, language: str) -> str:
    # A share below 1 is never shown as 100 %.
    shown = min(share, 0.999) if share < 1 else share
    return format_percent(shown, 1 if 0.9 < share < 1 else 0)


def size(count: float, language: str) -> str:
    step = 0
    while count >= 1024 and step < len(_BYTES) - 1:
        count, step = count / 1024, step + 1
    shown = number(round(count, 1 if count < 10 and step else 0), language)
    return f"{shown} {_BYTES[step]}"


def describe_clock_change(
    affected: AffectedFire, display: DisplayPreferences, now: datetime
) -> Message:
    """What a clock change (daylight saving time) does to a schedule."""
    zone = affected.change.zone
    on = day(affected.change.at, zone, display, now=now)
    clock = f"{affected.meant:%H:%M}"
    match affected.effect:
        case Effect.MOVED:
            return _(
                "{day}: {time} does not exist in {zone}; it fires at {fires}.",
                day=on,
                time=clock,
                zone=zone,
                fires=f"{affected.fires:%H:%M}",
            )
        case Effect.ONCE:
            return _(
                "{day}: {time} occurs twice in {zone}; it fires only the first time.",
                day=on,
                time=clock,
                zone=zone,
            )
        case Effect.TWICE:
            return _(
                "{day}: {time} occurs twice in {zone}; it fires both times.",
                day=on,
                time=clock,
                zone=zone,
            )


_STATUS_LABELS: Mapping[RunStatus, Message] = {
    RunStatus.QUEUED: _("queued"),
    RunStatus.RUNNING: _("running"),
    RunStatus.SUCCEEDED: _("succeeded"),
    RunStatus.FAILED: _("failed"),
    RunStatus.TIMEOUT: _("timed out"),
    RunStatus.CANCELED: _("canceled"),
    RunStatus.SKIPPED: _("skipped"),
    RunStatus.MISSED: _("missed"),
    RunStatus.UNKNOWN: _("unknown"),
}


@lru_cache
def status_labels(language: str) -> Mapping[RunStatus, str]:
    return {status: in_language(word, language) for status, word in _STATUS_LABELS.items()}


def status_label(status: RunStatus, language: str) -> str:
    return status_labels(language)[status]


def fire_label(status: RunStatus | None, language: str) -> str:
    """Label of a mark of a timeline; None: upcoming."""
    if status is None:
        return in_language(_("planned"), language)
    return status_label(status, language)
