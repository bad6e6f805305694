"""The text of a notification about a monitor: late, down or recovered (pure)."""

from __future__ import annotations

from datetime import timedelta

from chimes.i18n import Message, _, in_language
from chimes.model.monitor import DownCause, Monitor, MonitorEvent, MonitorEventKind
from chimes.model.notification import Delivery
from chimes.notifications.message import (
    MAX_NAME,
    NotificationMessage,
    build_fallback_message,
    language_of,
    local_time,
    monitor_headline,
    one_line,
)
from chimes.triggers import format_duration_go, format_moment


def build_monitor_message(
    delivery: Delivery,
    monitor: Monitor | None,
    number: int,
    *,
    language: str,
    zone: str,
    public_url: str = "",
) -> NotificationMessage:
    """`number`: of the event. A monitor or event that is no longer stored leaves the title."""
    events = () if monitor is None else monitor.events
    event = next((each for each in events if each.number == number), None)
    if monitor is None or event is None:
        return build_fallback_message(delivery, language)
    language = language_of(language)
    name = one_line(monitor.name)[:MAX_NAME]
    title = in_language(monitor_headline(name, delivery.notify_on), language)
    lines = [in_language(each, language) for each in _lines(monitor, event, zone)]
    link = f"{public_url}/ui/monitors/{monitor.id}" if public_url else ""
    return NotificationMessage(
        kind="monitor",
        run_id=None,
        schedule_id=None,
        schedule_name=monitor.name,
        status=event.kind.value,
        language=language,
        title=title,
        markdown="\n\n".join(lines),
        head="\n".join([title, *lines]),
        output="",
        is_markdown=False,
        tail=in_language(_("Open: {url}", url=link), language) if link else "",
        facts=_facts(monitor, event),
        link=link,
    )


def _lines(monitor: Monitor, event: MonitorEvent, zone: str) -> list[Message]:
    time, named = local_time(event.at, zone)
    lines: list[Message] = []
    match event.kind:
        case MonitorEventKind.LATE:
            lines.append(_("A check-in was expected at {time} ({zone}).", time=time, zone=named))
        case MonitorEventKind.DOWN:
            lines.append(_cause(event, zone, monitor.grace))
        case MonitorEventKind.RECOVERED:
            lines.append(_("Checked in at {time} ({zone}).", time=time, zone=named))
            if event.outage is not None:
                lines.append(_("It was down for {duration}.", duration=_duration(event.outage)))
    if event.kind is not MonitorEventKind.RECOVERED and monitor.last_success_at is not None:
        last, _named = local_time(monitor.last_success_at, zone)
        lines.append(_("Last success: {time} ({zone})", time=last, zone=named))
    return lines


def _cause(event: MonitorEvent, zone: str, grace: timedelta) -> Message:
    time, named = local_time(event.expected_at or event.at, zone)
    match event.cause:
        case DownCause.FAILED if event.exit_code is not None:
            return _(
                "The job reported exit code {code} at {time} ({zone}).",
                code=event.exit_code,
                time=time,
                zone=named,
            )
        case DownCause.FAILED:
            return _("The job reported a failure at {time} ({zone}).", time=time, zone=named)
        case DownCause.OVERRUN:
            return _(
                "The job began and did not end within {grace}, until {time} ({zone}).",
                grace=_duration(grace),
                time=time,
                zone=named,
            )
        case _:
            return _(
                "No check-in: one was expected at {time} ({zone}), with a grace of {grace}.",
                time=time,
                zone=named,
                grace=_duration(grace),
            )


def _duration(duration: timedelta) -> str:
    return format_duration_go(timedelta(seconds=round(duration.total_seconds())))


def _facts(monitor: Monitor, event: MonitorEvent) -> dict[str, object]:
    return {
        "id": monitor.id,
        "name": monitor.name,
        "event": event.kind.value,
        "at": format_moment(event.at),
        "cause": None if event.cause is None else event.cause.value,
        "exit_code": event.exit_code,
        "expected_at": None if event.expected_at is None else format_moment(event.expected_at),
        "tags": list(monitor.tags),
    }
