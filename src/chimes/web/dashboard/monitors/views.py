"""Rows, details and the form of monitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.i18n import Message, _, in_language
from chimes.model.access import Actor
from chimes.model.fields import to_json
from chimes.model.monitor import (
    DownCause,
    Monitor,
    MonitorEvent,
    MonitorEventKind,
    MonitorStatus,
    Ping,
    expected_at,
    is_running,
    status_at,
)
from chimes.model.recipient import Recipient, format_recipient, parse_recipient
from chimes.triggers import format_duration_go
from chimes.triggers.text import format_trigger_text
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from
from chimes.web.dashboard.charts.sparkline import sparkline
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.page_request import Form
from chimes.web.dashboard.core.preferences import DisplayPreferences

#: Durations in the sparkline of a row.
MAX_DURATIONS = 30
DEFAULT_RECIPIENT = "inbox:on=failure+recovery"


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorRow:
    monitor: Monitor
    status: MonitorStatus
    expected: datetime | None
    running: bool
    chart: Chart | None
    may_operate: bool
    may_write: bool

    @property
    def why(self) -> Message | None:
        """Why it is down."""
        down = self.monitor.down
        if down is None or self.status is not MonitorStatus.DOWN:
            return None
        return cause_text(down.cause, down.exit_code)


def monitor_row(
    monitor: Monitor, actor: Actor, display: DisplayPreferences, now: datetime
) -> MonitorRow:
    paused = monitor.paused_at is not None
    return MonitorRow(
        monitor=monitor,
        status=status_at(monitor, now),
        expected=None if paused else expected_at(monitor),
        running=is_running(monitor),
        chart=_durations(monitor, display),
        may_operate=actor.may_operate(monitor.owner),
        may_write=actor.may_write(monitor.owner) and not actor.is_agent,
    )


def _durations(monitor: Monitor, display: DisplayPreferences) -> Chart | None:
    found = [each.duration.total_seconds() for each in monitor.pings if each.duration is not None]
    if len(found) < 2:
        return None
    language = display.language
    heads = (in_language(_("No."), language), in_language(_("Duration"), language))
    return sparkline(
        found[-MAX_DURATIONS:],
        title=in_language(_("Durations of {name}", name=monitor.name), language),
        format_span=lambda seconds: times.span(seconds, language),
        heads=heads,
    )


def cause_text(cause: DownCause, exit_code: int | None) -> Message:
    match cause:
        case DownCause.FAILED if exit_code is not None:
            return _("exit code {code}", code=exit_code)
        case DownCause.FAILED:
            return _("the job reported a failure")
        case DownCause.OVERRUN:
            return _("the job began and did not end in time")
        case DownCause.MISSING:
            return _("no check-in")


def event_text(event: MonitorEvent) -> Message:
    match event.kind:
        case MonitorEventKind.LATE:
            return _("late")
        case MonitorEventKind.RECOVERED:
            return _("recovered")
        case MonitorEventKind.DOWN:
            assert event.cause is not None
            return _("down: {cause}", cause=cause_text(event.cause, event.exit_code))


@dataclass(frozen=True, kw_only=True, slots=True)
class PingRow:
    ping: Ping
    log: str


def ping_rows(monitor: Monitor, logs: dict[int, str]) -> list[PingRow]:
    """Newest first."""
    return [PingRow(ping=each, log=logs.get(each.number, "")) for each in reversed(monitor.pings)]


def snippets(url: str) -> list[tuple[Message, str]]:
    """How a job calls the URL."""
    return [
        (_("After a job"), f"backup.sh && curl -fsS -m 10 --retry 5 -o /dev/null {url}"),
        (
            _("With the exit code, duration and log"),
            f"curl -fsS -m 10 -o /dev/null {url}/start; log=$(backup.sh 2>&1); code=$?; "
            f'printf %s "$log" | curl -fsS -m 10 --retry 5 -o /dev/null --data-binary @- '
            f"{url}/$code",
        ),
        (
            _("In a crontab"),
            f"0 2 * * * backup.sh; curl -fsS -m 10 --retry 5 -o /dev/null {url}/$?",
        ),
    ]


# --- form -----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorForm:
    """The texts in the fields."""

    name: str = ""
    when: str = ""
    zone: str = ""
    grace: str = "30m"
    tags: str = ""
    recipients: str = DEFAULT_RECIPIENT


def form_of(monitor: Monitor) -> MonitorForm:
    return MonitorForm(
        name=monitor.name,
        when=format_trigger_text(monitor.trigger),
        zone=monitor.trigger.zone,
        grace=format_duration_go(monitor.grace),
        tags=" ".join(monitor.tags),
        recipients="\n".join(_text_of(each) for each in monitor.delivery),
    )


def form_from(form: Form) -> MonitorForm:
    return MonitorForm(
        name=form.text("name"),
        when=form.text("when"),
        zone=form.text("zone"),
        grace=form.text("grace"),
        tags=form.text("tags"),
        recipients=form.raw("recipients").strip(),
    )


def recipients_of(text: str, before: Sequence[Recipient] = ()) -> tuple[Recipient, ...]:
    """One per line. A line that has not changed keeps what it does not show, such as keys."""
    known = {_text_of(each): each for each in before}
    found: list[Recipient] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line in known:
            found.append(known[line])
            continue
        try:
            found += recipients_from([RecipientIn.model_validate(parse_recipient(line))], before)
        except ValueError:
            raise InvalidInput(
                _(
                    "{text!r} is not a recipient: write for example inbox:on=failure+recovery, "
                    "telegram:CHAT, webhook:URL or email:ADDRESS",
                    text=line[:100],
                ),
                field="recipients",
                code="bad_recipient",
            ) from None
    return tuple(found)


def _text_of(recipient: Recipient) -> str:
    return format_recipient(to_json(recipient, masked=True))
