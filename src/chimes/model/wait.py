"""Waits: steps of flows that wait for a decision, a time or an event (ADR 81).

A wait is a queued child run that no node can claim: it holds no permit and no process. A decision,
an event, or its deadline ends it; its deadline is `available_at`. Every end is a pure function of
the run and the time, so a wait ends once, whatever comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct

from chimes.errors import Conflict, InvalidInput
from chimes.i18n import Message, _, freeze
from chimes.model import replace
from chimes.model.access import Role
from chimes.model.planning import end_immediately
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.target import TaskTarget
from chimes.triggers import format_moment

MAX_PROMPT = 2000
MAX_REASON = 1000
MAX_EVENT_NAME = 100
MAX_KEY = 200
_EVENT_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.:-]{{0,{MAX_EVENT_NAME - 1}}}")
#: Characters of the JSON that an event brings.
MAX_EVENT_DATA = 64_000
MIN_WAIT = timedelta(seconds=1)
MAX_WAIT = timedelta(days=366)
DEFAULT_EXPIRY = timedelta(days=7)

#: Begins the names of the tasks of waits. No node has such a task.
_TASK = "chimes.wait/"
_ARGUMENT = "wait"

#: How soon a flow that only waits looks again by itself: as long again as it has waited, within
#: these. Only a flow whose wake-up was lost with a node needs it.
MIN_RECHECK, MAX_RECHECK = timedelta(seconds=5), timedelta(minutes=10)


class WaitKind(StrEnum):
    APPROVAL = "approval"
    TIME = "time"
    EVENT = "event"


class OnReject(StrEnum):
    """What a rejection does to the step."""

    #: The step fails, and with it the flow.
    FAIL = "fail"
    #: The step is skipped, and the steps after it.
    SKIP = "skip"
    #: The step succeeds; conditions of the next steps use its output.
    CONTINUE = "continue"


class Decision(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class WaitReason:
    """Reasons of steps that ended without success."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    INVALID = "invalid_wait"


class Wait(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step waits for; stored in the arguments of its run."""

    kind: WaitKind
    #: Name of the flow.
    flow: str = ""
    #: Of an approval: the question.
    prompt: str = ""
    #: Of an approval: the decision at its deadline.
    default: Decision = Decision.REJECT
    on_reject: OnReject = OnReject.FAIL
    #: Of an approval: the least role that may decide; None: each who may operate the run.
    role: Role | None = None
    #: Of an event: its name, and the key that it must have; an empty one takes any.
    event: str = ""
    key: str = ""
    #: Of an event: at the deadline the step succeeds with `fallback` instead of failing.
    continues: bool = False
    fallback: object = None


class WaitEvent(Struct, frozen=True, kw_only=True):
    """An event that was sent to waiting flows."""

    id: str
    name: str
    key: str = ""
    data: object = None
    at: datetime
    #: The sender's; `everywhere`: it may operate the runs of all owners.
    owner: str = ""
    everywhere: bool = False


def check_event_name(name: str) -> str:
    if not _EVENT_NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "the name of an event has up to {most} letters, digits, '_', '-', '.' and ':', and"
                " begins with a letter or digit",
                most=MAX_EVENT_NAME,
            ),
            field="name",
            code="event_name",
        )
    return name


def wait_target(wait: Wait) -> TaskTarget:
    return TaskTarget(
        name=_task_name(wait.kind, wait.event), args={_ARGUMENT: msgspec.to_builtins(wait)}
    )


def wait_requirement(kind: WaitKind, event: str = "") -> str:
    """The requirement of these waits, by which stores find them."""
    return TaskTarget(name=_task_name(kind, event)).requirement


def _task_name(kind: WaitKind, event: str) -> str:
    return f"{_TASK}{kind}/{event}" if event else f"{_TASK}{kind}"


def is_wait(run: Run) -> bool:
    target = run.definition.target
    return (
        run.origin is Origin.CHILD
        and isinstance(target, TaskTarget)
        and target.name.startswith(_TASK)
    )


def wait_of(run: Run) -> Wait | None:
    """None: the run is not a wait, or what it waits for cannot be read."""
    if not is_wait(run):
        return None
    assert isinstance(run.target, TaskTarget)
    try:
        return msgspec.convert(run.target.args.get(_ARGUMENT), Wait)
    except msgspec.ValidationError:
        return None


def is_open(run: Run, now: datetime) -> bool:
    return run.status is RunStatus.QUEUED and now < run.available_at


# --- ends -----------------------------------------------------------------------------------------
def decide_wait(run: Run, decision: Decision, by: str, reason: str, now: datetime) -> Run:
    """Ends an approval. Raises Conflict unless it is open, so that of several decisions one
    counts."""
    wait = wait_of(run)
    if run.status.terminal:
        raise Conflict(_("the approval is decided already, or was canceled"), code="decided")
    if wait is None or not is_open(run, now):
        raise Conflict(_("the approval has expired"), code="expired")
    return _decided(run, wait, decision, by, reason, now, expired=False)


def expire_wait(run: Run, now: datetime) -> Run:
    """Ends a wait whose deadline has passed, as its options say; others stay unchanged."""
    wait = wait_of(run)
    if run.status is not RunStatus.QUEUED or wait is None or now < run.available_at:
        return run
    match wait.kind:
        case WaitKind.APPROVAL:
            return _decided(run, wait, wait.default, "", "", now, expired=True)
        case WaitKind.TIME:
            return _end(run, RunStatus.SUCCEEDED, now, value=format_moment(run.available_at))
        case WaitKind.EVENT if wait.continues:
            return _end(run, RunStatus.SUCCEEDED, now, value=wait.fallback)
        case WaitKind.EVENT:
            error = _(
                "the event {event!r} did not arrive until {time}",
                event=wait.event,
                time=format_moment(run.available_at),
            )
            return _end(run, RunStatus.FAILED, now, reason=WaitReason.EXPIRED, error=error)


def receive_event(run: Run, event: WaitEvent, now: datetime) -> Run:
    """Ends a wait that the event is for; others stay unchanged."""
    if not matches(run, event, now):
        return run
    ended = _end(run, RunStatus.SUCCEEDED, now, value=event.data)
    return replace(ended, result={"value": event.data, "event_id": event.id})


def matches(run: Run, event: WaitEvent, now: datetime) -> bool:
    wait = wait_of(run)
    return (
        wait is not None
        and wait.kind is WaitKind.EVENT
        and is_open(run, now)
        and wait.event == event.name
        and wait.key in ("", event.key)
        and (event.everywhere or event.owner == str(run.owner))
    )


def expedite(run: Run, now: datetime) -> Run:
    """A flow in the queue continues now; others stay unchanged."""
    if run.status is not RunStatus.QUEUED or run.available_at <= now:
        return run
    return replace(run, available_at=now)


def _decided(
    run: Run, wait: Wait, decision: Decision, by: str, reason: str, now: datetime, *, expired: bool
) -> Run:
    approved = decision is Decision.APPROVE
    value = {
        "approved": approved,
        "decision": "approved" if approved else "rejected",
        "by": by,
        "reason": reason,
        "at": format_moment(now),
        "expired": expired,
    }
    if approved or wait.on_reject is OnReject.CONTINUE:
        return _end(run, RunStatus.SUCCEEDED, now, value=value)
    why = WaitReason.EXPIRED if expired else WaitReason.REJECTED
    if wait.on_reject is OnReject.SKIP:
        return _end(run, RunStatus.SKIPPED, now, value=value, reason=why)
    error = _("rejected by {user}", user=by)
    if expired:
        error = _("no decision until {time}", time=format_moment(run.available_at))
    elif reason:
        error = _("rejected by {user}: {reason}", user=by, reason=reason)
    return _end(run, RunStatus.FAILED, now, value=value, reason=why, error=error)


def _end(
    run: Run,
    status: RunStatus,
    now: datetime,
    *,
    value: object = None,
    reason: str = "",
    error: str = "",
) -> Run:
    result = None if value is None and status is RunStatus.FAILED else {"value": value}
    return replace(
        end_immediately(run, status, reason, now),
        error=freeze(error) if error else "",
        result=result,
    )


# --- approvals ------------------------------------------------------------------------------------
class ApprovalStatus(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    #: Its deadline has passed; `decision` is the default.
    EXPIRED = "expired"
    #: Its flow ended before.
    CANCELED = "canceled"


APPROVAL_STATUS_NAMES: Mapping[ApprovalStatus, Message] = {
    ApprovalStatus.OPEN: _("open"),
    ApprovalStatus.APPROVED: _("approved"),
    ApprovalStatus.REJECTED: _("rejected"),
    ApprovalStatus.EXPIRED: _("expired"),
    ApprovalStatus.CANCELED: _("canceled"),
}


class Approval(Struct, frozen=True, kw_only=True):
    """An approval as people see it. Its id is that of the step's run."""

    run: Run
    wait: Wait
    status: ApprovalStatus
    #: `approved` or `rejected`, also by the default; empty while it is open or if it was canceled.
    decision: str = ""
    decided_by: str = ""
    reason: str = ""

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def flow(self) -> str:
        """The name of the schedule, or of the flow if there is none."""
        return self.run.schedule_name or self.wait.flow

    @property
    def expires_at(self) -> datetime:
        return self.run.available_at


def approval_of(run: Run, now: datetime) -> Approval | None:
    """None: the run is not an approval."""
    wait = wait_of(run)
    if wait is None or wait.kind is not WaitKind.APPROVAL:
        return None
    if not run.status.terminal:
        status = ApprovalStatus.OPEN if is_open(run, now) else ApprovalStatus.EXPIRED
        return Approval(run=run, wait=wait, status=status)
    value = (run.result or {}).get("value")
    if not isinstance(value, dict):
        return Approval(run=run, wait=wait, status=ApprovalStatus.CANCELED)
    decision = str(value.get("decision", ""))
    status = ApprovalStatus.APPROVED if value.get("approved") else ApprovalStatus.REJECTED
    return Approval(
        run=run,
        wait=wait,
        status=ApprovalStatus.EXPIRED if value.get("expired") else status,
        decision=decision,
        decided_by=str(value.get("by", "")),
        reason=str(value.get("reason", "")),
    )


# --- flows that only wait -------------------------------------------------------------------------
def suspended_until(waits: Iterable[Run], now: datetime) -> datetime:
    """When a flow that only waits for these has to look again."""
    open_waits = list(waits)
    age = now - min(run.created_at for run in open_waits)
    recheck = now + min(max(age, MIN_RECHECK), MAX_RECHECK)
    return min(recheck, *(run.available_at for run in open_waits))


def time_waited(runs: Iterable[Run], now: datetime) -> timedelta:
    """How long a flow has waited so far, at any of its waits; not part of its timeout."""
    total, upto = timedelta(), None
    for begin, end in sorted((run.created_at, run.finished_at or now) for run in runs):
        start = begin if upto is None else max(begin, upto)
        if end > start:
            total += end - start
        upto = end if upto is None else max(upto, end)
    return total
