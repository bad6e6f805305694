"""Detection of refused secrets and tokens in runs and deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model.access import Actor, Role
from chimes.model.ids import DeliveryId, RunId
from chimes.model.insights import (
    AttentionList,
    IssueCause,
    ScheduleAttention,
    ScheduleIssue,
    merge_attention,
)
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.services.attention import CODES, credential_refusals, is_authentication_error
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, HOUR, MINUTE, NOW, a_run, a_schedule

OPERATOR = Actor(role=Role.OPERATOR)
REFUSED = "HTTP 401 Unauthorized"


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (REFUSED, True),
        ("HTTP 403 Forbidden", True),
        ("the agent answered HTTP 401: no (is CHIMES_AGENT_API_KEY right?)", True),
        ("HTTP 404 Not Found", False),
        ("HTTP 4010", False),
        ("RuntimeError: they said HTTP 401", False),
        ("", False),
    ],
)
def test_is_authentication_error(error: str, refused: bool) -> None:
    assert is_authentication_error(error) is refused


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SettableClock(NOW))


async def failed(store: MemoryStore, error: str = REFUSED, **given: Any) -> Schedule:
    """A schedule with one failed run; `given` overrides fields of the schedule."""
    values = {"last_status": RunStatus.FAILED, "last_error": error, "last_run_at": NOW - MINUTE}
    schedule = await store.add_schedule(a_schedule(**(values | given)))
    run = a_run(
        schedule,
        owner=schedule.owner,
        status=RunStatus.FAILED,
        created_at=NOW - MINUTE,
        finished_at=NOW - MINUTE,
        error=error,
    )
    await store.load([run])
    return schedule


async def add_delivery(
    store: MemoryStore, schedule: Schedule, minutes: int = 5, **given: Any
) -> Delivery:
    at = NOW - minutes * MINUTE
    values: dict[str, Any] = {
        "id": DeliveryId(f"{schedule.id}-{minutes}"),
        "run_id": RunId("some-run"),
        "schedule_id": schedule.id,
        "owner": schedule.owner,
        "recipient": Recipient(channel=Channel.TELEGRAM, to="42"),
        "notify_on": NotifyOn.FAILURE,
        "state": DeliveryState.DEAD,
        "created_at": at,
        "available_at": at,
        "error": "Telegram answered 403: blocked by the user",
        "code": "blocked",
    }
    return await store.add_delivery(Delivery(**(values | given)))


async def test_a_refused_call_has_its_run(store: MemoryStore) -> None:
    schedule = await failed(store)
    (found,) = await credential_refusals(store, OPERATOR, NOW)
    assert (found.channel, found.error) == (None, REFUSED)
    assert found.found.schedule.id == schedule.id
    sign = found.found.sign
    assert (sign.cause, sign.at) == (IssueCause.REFUSED, NOW - MINUTE)
    assert sign.run_id is not None
    assert await credential_refusals(store, OPERATOR, NOW, any_failed=False) == ()


async def test_recovered_paused_and_other_failures_are_left_out(
    store: MemoryStore,
) -> None:
    await failed(store, last_status=RunStatus.SUCCEEDED, last_error="")
    await failed(store, last_error="HTTP 500")
    await failed(store, enabled=False)
    await failed(store, error="HTTP 500")
    assert await credential_refusals(store, OPERATOR, NOW) == ()
    assert await credential_refusals(store, OPERATOR, NOW + 25 * HOUR) == ()


@pytest.mark.parametrize("state", [DeliveryState.DEAD, DeliveryState.PENDING])
async def test_a_refused_delivery_has_its_channel(store: MemoryStore, state: DeliveryState) -> None:
    schedule = await store.add_schedule(a_schedule())
    await add_delivery(store, schedule, minutes=9, state=state)
    newest = await add_delivery(store, schedule, minutes=3, state=state)
    (found,) = await credential_refusals(store, OPERATOR, NOW)
    assert (found.channel, found.error) == (Channel.TELEGRAM, newest.error)
    assert (found.found.sign.count, found.found.sign.run_id) == (2, newest.run_id)


async def test_later_deliveries_and_other_errors_are_left_out(
    store: MemoryStore,
) -> None:
    schedule = await store.add_schedule(a_schedule())
    await add_delivery(store, schedule, minutes=9)
    await add_delivery(store, schedule, minutes=3, state=DeliveryState.DELIVERED, code="", error="")
    other = await store.add_schedule(a_schedule())
    await add_delivery(store, other, code="unreachable")
    await add_delivery(store, other, minutes=25 * 60)
    assert await credential_refusals(store, OPERATOR, NOW) == ()
    # Delivered to another chat; this one still refuses.
    there = Recipient(channel=Channel.TELEGRAM, to="43")
    await add_delivery(store, schedule, minutes=8, recipient=there, code="bad_token")
    (found,) = await credential_refusals(store, OPERATOR, NOW)
    assert found.found.sign.count == 1
    assert "bad_token" in CODES


async def test_only_visible_schedules_are_listed(store: MemoryStore) -> None:
    await failed(store, owner=BOB)
    theirs = await store.add_schedule(a_schedule(owner=BOB))
    await add_delivery(store, theirs)
    anna = Actor(owner=ALICE, role=Role.MEMBER)
    assert await credential_refusals(store, anna, NOW) == ()
    mine = await failed(store, owner=ALICE)
    (found,) = await credential_refusals(store, anna, NOW)
    assert found.found.schedule.id == mine.id
    assert len(await credential_refusals(store, OPERATOR, NOW)) == 3


def test_a_schedule_appears_once_with_its_most_severe_issue() -> None:
    one, two, three = (a_schedule(name=name) for name in "abc")

    def seen(schedule: Schedule, cause: IssueCause, ago: timedelta = MINUTE) -> ScheduleAttention:
        sign = ScheduleIssue(schedule_id=schedule.id, cause=cause, at=NOW - ago)
        return ScheduleAttention(schedule=schedule, sign=sign)

    found = AttentionList(
        total=7, items=(seen(one, IssueCause.FAILING), seen(two, IssueCause.STOPPED))
    )
    more = [
        seen(one, IssueCause.REFUSED),
        seen(two, IssueCause.REFUSED),
        seen(three, IssueCause.REFUSED, HOUR),
        seen(three, IssueCause.CLOCK_CHANGE),
    ]
    after = merge_attention(found, more)
    assert after.total == 8
    assert [(each.schedule.name, each.sign.cause) for each in after.items] == [
        ("b", IssueCause.STOPPED),
        ("a", IssueCause.REFUSED),
        ("c", IssueCause.REFUSED),
    ]
    assert merge_attention(found, ()).total == 7
