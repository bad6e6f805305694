"""What happened to a run, moment by moment: made, tried, told, and what people did; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.doors.dashboard.views_audit_words import verb_in_words
from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, DeliveryState
from chimes.model.run import Attempt, AttemptEnd, Origin, Run, RunStatus
from chimes.wording import Wording, say


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    at: datetime
    what: Wording
    #: An error, or what somebody wrote beside it: as it is on record.
    remark: str = ""
    bad: bool = False


_MADE: Mapping[Origin, Wording] = {
    Origin.SCHEDULE: say("The schedule made it."),
    Origin.MANUAL: say("Somebody asked for it."),
    Origin.BACKFILL: say("A backfill made it."),
    Origin.CHILD: say("Its flow made it."),
}
_ENDED: Mapping[RunStatus, Wording] = {
    RunStatus.SUCCEEDED: say("It succeeded."),
    RunStatus.FAILED: say("It failed."),
    RunStatus.TIMEOUT: say("It timed out."),
    RunStatus.CANCELED: say("It was canceled."),
    RunStatus.SKIPPED: say("It was skipped."),
    RunStatus.MISSED: say("It was missed."),
    RunStatus.UNKNOWN: say("Nobody knows how it ended."),
}
_GOOD = frozenset({RunStatus.SUCCEEDED, RunStatus.CANCELED, RunStatus.SKIPPED})


def events_of(
    run: Run, deliveries: Iterable[Delivery], entries: Iterable[AuditEntry]
) -> tuple[Event, ...]:
    """Oldest first. `entries`: of the audit, about this run."""
    found = [Event(at=run.created_at, what=_MADE[run.origin])]
    for attempt in run.attempts:
        found.extend(_tried(attempt))
    if run.status is RunStatus.RUNNING and run.claimed_at is not None:
        found.append(_begun(run.claimed_at, run.attempt, run.holder or ""))
    if run.finished_at is not None and run.status in _ENDED:
        found.append(
            Event(
                at=run.finished_at,
                what=_ENDED[run.status],
                remark=run.reason,
                bad=run.status not in _GOOD,
            )
        )
    for delivery in deliveries:
        found.extend(_told(delivery))
    found.extend(each for entry in entries if entry.allowed for each in _done(entry))
    return tuple(sorted(found, key=lambda each: each.at))


def _begun(at: datetime, number: int, node: str) -> Event:
    return Event(at=at, what=say("Attempt {number} began on {node}.", number=number, node=node))


def _tried(attempt: Attempt) -> Iterator[Event]:
    yield _begun(attempt.started_at, attempt.number, attempt.node)
    number, good = attempt.number, attempt.end is AttemptEnd.SUCCEEDED
    what = (
        say("Attempt {number} succeeded.", number=number)
        if good
        else say("Attempt {number} ended without success.", number=number)
    )
    yield Event(at=attempt.finished_at, what=what, remark=attempt.error, bad=not good)


def _told(delivery: Delivery) -> Iterator[Event]:
    channel = delivery.recipient.channel.value
    yield Event(
        at=delivery.created_at, what=say("A message was written for {channel}.", channel=channel)
    )
    if delivery.finished_at is None:
        return
    if delivery.state is DeliveryState.DELIVERED:
        what = say("The message was delivered: {channel}.", channel=channel)
    else:
        what = say("The message was given up: {channel}.", channel=channel)
    bad = delivery.state is DeliveryState.DEAD
    yield Event(at=delivery.finished_at, what=what, remark=delivery.error, bad=bad)


def _done(entry: AuditEntry) -> Iterator[Event]:
    who = entry.actor
    match entry.verb:
        case "cancel":
            what = say("{who} asked it to stop.", who=who)
        case "retry":
            what = say("{who} had it run once more.", who=who)
        case "start":
            what = say("{who} asked for it.", who=who)
        case "mark_known":
            what = say("{who} marked the failure as known.", who=who)
        case "unmark_known":
            what = say("{who} took back that the failure is known.", who=who)
        case _:
            what = say("{who}: {verb}", who=who, verb=verb_in_words(entry.verb))
    yield Event(at=entry.at, what=what, remark=entry.reason)
