"""Factories of complete, valid model values; a test passes only the fields that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import count
from typing import Any

from chimes.model import replace
from chimes.model.access import ApiKey, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, InboxId, KeyId, NodeId, RunId, ScheduleId
from chimes.model.node import Node
from chimes.model.notification import (
    Artifact,
    Delivery,
    DeliveryCompletion,
    DeliveryState,
    InboxItem,
)
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, QuietHours, Recipient
from chimes.model.run import (
    Attempt,
    AttemptEnd,
    Completion,
    LogEntry,
    Origin,
    Run,
    RunDefinition,
    RunStatus,
)
from chimes.model.schedule import Schedule, plan_after
from chimes.model.target import ActionTarget, FlowTarget, HttpTarget, SyncTarget, TaskTarget
from chimes.store.port import ClaimRequest
from chimes.testing import DEFAULT_NOW
from chimes.triggers import Every

NOW = DEFAULT_NOW
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)
KINDS = frozenset({"http"})
ALICE = Owner(type=OwnerType.USER, id="alice")
BOB = Owner(type=OwnerType.USER, id="bob")
TARGET = HttpTarget(url="http://127.0.0.1:9/hook", headers={"X-Test": "1"}, body='{"a": 1}')
#: Stores must return every JSON value unchanged.
ODD_JSON: dict[str, object] = {
    "text": "น้ำ 水 \U0001f514 %_'\"\\ \n\t",
    "": "empty name",
    "dotted.key": [],
    "empty": {},
    "nothing": None,
    "true": True,
    "false": False,
    "zero": 0,
    "large": 2**63,
    "small": -(2**40),
    "fraction": 0.1,
    "tiny": 5e-324,
    "huge": 1e23,
    "nested": {"list": [1, 2.5, None, True, "x", {"deep": [[]]}]},
}
TASK = TaskTarget(name="reports.nightly", args=ODD_JSON)
FLOW = FlowTarget(name="pipeline-2", input=ODD_JSON)
SYNC = SyncTarget(source="crm", collection="deals.eu")
ACTION = ActionTarget(
    action_type_id="at-\u6c34",
    kn_id="kn1",
    branch="dev/2",
    identities=({"id": "pod-1"}, ODD_JSON),
    params=ODD_JSON,
    account_id="u-1",
    account_type="user",
)
CAPABILITIES = frozenset(
    {TARGET.requirement, TASK.requirement, FLOW.requirement, SYNC.requirement, ACTION.requirement}
)
#: Notified of every end of a run.
INBOX = Recipient(channel=Channel.INBOX)
CHAT = Recipient(channel=Channel.TELEGRAM, to="-100200300", on=(NotifyOn.SUCCESS,), language="th")
HOOK = Recipient(
    channel=Channel.WEBHOOK,
    to="https://example.com/ü?q=%20",
    on=(NotifyOn.FAILURE, NotifyOn.RECOVERY),
    language="zh",
    signing_secrets=("whsec_b25l", "whsec_dHdv"),
)
#: A recipient without a default value in any field.
FULL_HOOK = replace(
    HOOK,
    late_after=timedelta(minutes=5, microseconds=1),
    quiet=QuietHours(
        start=time(22),
        end=time(7, 30),
        zone="Asia/Bangkok",
        except_for=(NotifyOn.FAILURE, NotifyOn.LATE),
    ),
    digest=Digest(
        every=Period.WEEK,
        at=time(9, 15),
        weekday=4,
        zone="America/New_York",
        except_for=(NotifyOn.FAILURE,),
    ),
)

_numbers = count(1)


def at(hour: int, minute: int = 0, second: int = 0, microsecond: int = 0) -> datetime:
    """A time on the day of NOW."""
    return datetime(NOW.year, NOW.month, NOW.day, hour, minute, second, microsecond, tzinfo=UTC)


def a_schedule(**given: Any) -> Schedule:
    """Fires every minute from the full hour; the next slot is the first after NOW by default."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": ScheduleId(f"schedule-{number:05d}"),
        "name": f"schedule {number}",
        "trigger": Every("1m", anchor=NOW),
        "target": TARGET,
        "created_at": NOW,
        "updated_at": NOW,
    }
    schedule = Schedule(**(values | given))
    if "next_slot" in given or "next_run_at" in given or not schedule.enabled:
        return schedule
    return plan_after(schedule, NOW)


def due_schedule(slot: datetime = NOW, **given: Any) -> Schedule:
    """Fires every minute from `slot`, which is the next slot."""
    values = {"trigger": Every("1m", anchor=slot), "next_slot": slot, "next_run_at": slot}
    return a_schedule(**(values | given))


def a_run(schedule: Schedule | None = None, **given: Any) -> Run:
    """A queued manual run, of `schedule` if given."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": RunId(f"run-{number:05d}"),
        "origin": Origin.MANUAL,
        "created_at": NOW,
        "planned_at": NOW,
        "available_at": NOW,
    }
    definition: dict[str, Any] = {
        "schedule_id": schedule.id if schedule else None,
        "schedule_name": schedule.name if schedule else "",
        "target": TARGET,
        "policy": schedule.policy if schedule else Policy(),
    }
    for name in RunDefinition.__struct_fields__:
        if name in given:
            definition[name] = given.pop(name)
    return Run(**(values | {"definition": RunDefinition(**definition)} | given))


def with_definition(run: Run, **changes: Any) -> Run:
    """The run with a changed definition."""
    return replace(run, definition=replace(run.definition, **changes))


def a_sync_run(target: SyncTarget = SYNC, **given: Any) -> Run:
    """A queued run of a pair of source and collection; one run per pair is active at a time."""
    return a_run(**({"target": target, "concurrency_key": target.key} | given))


def a_node(node_id: str = "node-1", **given: Any) -> Node:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "roles": ("scheduler", "worker"),
        "capacity": 10,
        "started_at": NOW,
        "heartbeat_at": NOW,
        "lease_until": NOW,
    }
    return Node(id=NodeId(node_id), **(values | given))


def claim_request(
    node_id: str = "node-1", free: int = 10, capabilities: frozenset[str] = KINDS
) -> ClaimRequest:
    return ClaimRequest(node_id=NodeId(node_id), capabilities=capabilities, free=free)


def an_attempt(run: Run, now: datetime, end: AttemptEnd, error: str = "") -> Attempt:
    """The current attempt of a claimed run, ended."""
    assert run.holder is not None
    assert run.claimed_at is not None
    return Attempt(
        number=run.attempt,
        fence=run.fence,
        node=run.holder,
        started_at=run.claimed_at,
        finished_at=now,
        end=end,
        error=error,
    )


def a_completion(
    run: Run, now: datetime, end: AttemptEnd = AttemptEnd.SUCCEEDED, **given: Any
) -> Completion:
    """The completion that the holder of a claimed run reports; succeeded by default."""
    error = "" if end is AttemptEnd.SUCCEEDED else f"it ended as {end.value}"
    values: dict[str, Any] = {
        "run_id": run.id,
        "fence": run.fence,
        "attempt": an_attempt(run, now, end, error),
        "status": RunStatus(end.value),
        "result": {"status": 200, "body": "ok"} if end is AttemptEnd.SUCCEEDED else None,
        "error": error,
        # As workers send it; stores read the run if it is None.
        "run": run,
    }
    return Completion(**(values | given))


def a_retry(run: Run, now: datetime, after: timedelta) -> Completion:
    """The completion of a failed attempt that is retried `after` this time."""
    completion = a_completion(run, now, AttemptEnd.FAILED)
    return replace(completion, status=RunStatus.QUEUED, retry_in=after)


def log_lines(*messages: str, moment: datetime = NOW) -> Sequence[LogEntry]:
    return [LogEntry(at=moment, message=message) for message in messages]


def an_entry(**given: Any) -> AuditEntry:
    values: dict[str, Any] = {
        "at": NOW,
        "actor": "user:alice",
        "interface": "native",
        "verb": "create",
        "object_kind": "schedule",
        "object_id": "schedule-x",
        "owner": "user:alice",
        "changes": {"name": [None, "น้ำ 水 %_"], "priority": [0, 5]},
        "reason": "because",
        "address": "127.0.0.1",
    }
    return AuditEntry(**(values | given))


def a_key(**given: Any) -> ApiKey:
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": KeyId(f"key-{number:05d}"),
        "secret_hash": "sha256:" + "ab" * 32,
        "name": "for the tests",
        "role": Role.MEMBER,
        "owner": ALICE,
        "created_at": NOW,
        "created_by": "system:default",
    }
    return ApiKey(**(values | given))


def a_delivery(**given: Any) -> Delivery:
    """A pending delivery."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": DeliveryId(f"delivery-{number:05d}"),
        "run_id": RunId(f"run-of-{number:05d}"),
        "schedule_id": None,
        "owner": ALICE,
        "recipient": INBOX,
        "notify_on": NotifyOn.SUCCESS,
        "created_at": NOW,
        "available_at": NOW,
    }
    return Delivery(**(values | given))


def a_delivery_completion(delivery: Delivery, **given: Any) -> DeliveryCompletion:
    """The completion of a claimed delivery: sent, or failed if `retry_in` is given."""
    values: dict[str, Any] = {"sent": "retry_in" not in given}
    return DeliveryCompletion(delivery_id=delivery.id, fence=delivery.fence, **(values | given))


def an_item(**given: Any) -> InboxItem:
    """An unread message."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": InboxId(f"item-{number:05d}"),
        "owner": ALICE,
        "run_id": None,
        "schedule_id": None,
        "title": f"message {number}",
        "created_at": NOW,
    }
    return InboxItem(**(values | given))


def full_delivery(delivery_id: str = "full-delivery") -> Delivery:
    """A delivery without a default value in any field; dead, so it is never claimed."""
    return Delivery(
        id=DeliveryId(delivery_id),
        run_id=RunId("full-run"),
        schedule_id=ScheduleId("full"),
        schedule_name="ทดสอบ 测试 \U0001f514 %_'\"\\",
        owner=Owner(type=OwnerType.CHAT, id="-100200300"),
        recipient=FULL_HOOK,
        notify_on=NotifyOn.RECOVERY,
        state=DeliveryState.DEAD,
        attempts=8,
        fence=9,
        progress=2,
        created_at=NOW - HOUR,
        available_at=NOW - timedelta(microseconds=3),
        finished_at=NOW - timedelta(microseconds=1),
        error="403 Forbidden: 水",
        code="blocked",
        receipt="message 17",
    )


def full_item(item_id: str = "full-item") -> InboxItem:
    """An inbox item without a default value in any field."""
    return InboxItem(
        id=InboxId(item_id),
        owner=BOB,
        run_id=RunId("full-run"),
        schedule_id=ScheduleId("full"),
        schedule_name="น้ำ 水",
        title="สรุปข่าว 新闻 \U0001f514",
        text="# A heading\n\n* one\n* <script>two</script>\n",
        status="succeeded",
        artifacts=(
            Artifact(name="chart.png", url="https://example.com/a?b=%20"),
            Artifact(name="น้ำ.csv", url="https://example.com/c"),
        ),
        created_at=NOW - HOUR,
        read_at=NOW - MINUTE,
        starred=True,
        archived_at=NOW - SECOND,
        snoozed_until=NOW + HOUR,
    )


def full_schedule(schedule_id: str = "full") -> Schedule:
    """A schedule without a default value in any field: shows which field a store loses."""
    from chimes.model.policy import Backoff, Misfire, OnLost, Overlap
    from chimes.model.schedule import Dependency

    micro = timedelta(microseconds=7)
    return Schedule(
        id=ScheduleId(schedule_id),
        namespace="ksana",
        name="ทดสอบ 测试 \U0001f514 %_'\"\\",
        owner=ALICE,
        trigger=Every(
            "90s",
            anchor=NOW + micro,
            jitter="30s",
            start_at=NOW,
            end_at=NOW + 900 * HOUR,
            max_runs=12345,
            exclude=[{"dates": ["2030-12-25"]}],
        ),
        target=HttpTarget(
            url="https://example.com/ü?q=%20",
            method="PATCH",
            headers={"X-One": "1", "X-Two": "ä"},
            body='{"text": "\u0e01 \\n"}',
            expected_status=(200, 204),
            signing_secrets=("whsec_b25l", "whsec_dHdv"),
            verify_tls=False,
        ),
        policy=Policy(
            misfire=Misfire.ALL,
            misfire_grace=timedelta(seconds=1, microseconds=1),
            catch_up_limit=7,
            overlap=Overlap.QUEUE,
            max_concurrent_runs=3,
            burst_allowed=True,
            concurrency_key="shared \U0001f514",
            max_retries=9,
            retry_backoff=timedelta(milliseconds=1500),
            backoff=Backoff.EXPONENTIAL,
            backoff_cap=timedelta(days=2),
            timeout=timedelta(seconds=3),
            on_lost=OnLost.STOP,
            pause_on_gone=False,
            delivery=(INBOX, FULL_HOOK),
        ),
        priority=-5,
        labels={"team": "ops", "bare": None, "": "empty name"},
        enabled=False,
        pause_note="lunch",
        pause_until=NOW + HOUR,
        depends_on=Dependency(schedule_id=ScheduleId("other"), within=timedelta(minutes=5)),
        compat_data={"every": "90s", "nested": {"list": [1, 2.5, None, True, "x"]}},
        next_slot=NOW + MINUTE + micro,
        next_run_at=NOW + 2 * MINUTE + micro,
        last_slot=NOW - MINUTE,
        last_enqueued_at=NOW - SECOND,
        last_run_at=NOW - 2 * SECOND,
        last_status=RunStatus.TIMEOUT,
        last_error="it took too long",
        last_success_at=NOW - HOUR,
        fired_count=42,
        purged_until=NOW - 24 * HOUR,
        version=17,
        created_at=NOW - 48 * HOUR,
        created_by="user:alice",
        updated_at=NOW - micro,
        updated_by="key:k1",
    )


def full_run(run_id: str = "full-run", schedule_id: str = "full") -> Run:
    """An ended run without a default value in any field that such a run can have; no operation
    changes it."""
    schedule = full_schedule(schedule_id)
    attempt = Attempt(
        number=1,
        fence=2,
        node=NodeId("node-x"),
        started_at=NOW - MINUTE,
        finished_at=NOW - SECOND,
        end=AttemptEnd.LOST,
        error="gone",
    )
    return Run(
        id=RunId(run_id),
        definition=RunDefinition(
            schedule_id=schedule.id,
            schedule_name=schedule.name,
            schedule_version=17,
            namespace="ksana",
            owner=ALICE,
            target=schedule.target,
            policy=schedule.policy,
            trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        slot=NOW - MINUTE - timedelta(microseconds=3),
        origin=Origin.CHILD,
        parent_id=RunId("parent"),
        step="step two",
        retry_of=RunId("earlier"),
        priority=-5,
        catch_up=True,
        concurrency_key="some key",
        concurrency_limit=4,
        status=RunStatus.UNKNOWN,
        attempt=2,
        fence=3,
        cancel_requested=True,
        created_at=NOW - HOUR,
        planned_at=NOW - MINUTE,
        available_at=NOW - 2 * SECOND,
        claimed_at=NOW - SECOND,
        started_at=NOW - MINUTE,
        finished_at=NOW - timedelta(microseconds=1),
        result={"status": 500, "headers": {"a": "b"}, "ok": False, "none": None, "list": [1, "2"]},
        error="kaputt",
        reason="lost_after_start",
        missed_count=3,
        missed_until=NOW - SECOND,
        attempts=(attempt, replace(attempt, number=2, fence=3, end=AttemptEnd.TIMEOUT)),
    )
