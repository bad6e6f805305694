"""Quotas of schedules and active schedules per owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from chimes.errors import AlreadyExists, QuotaExceeded
from chimes.model import replace
from chimes.model.access import Owner, OwnerType, Quota
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    delete_schedule,
    pause_schedule,
    resume_schedule,
)
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Once
from tests.builders import ALICE, BOB, MINUTE, NOW, a_schedule, an_entry
from tests.store_contract.stores import Home

TWO = (Quota(limit=2),)
TWENTY_ACTIVE = (Quota(limit=20, active=True, namespace="softnix"),)


async def audit_verbs(store: Store) -> list[str]:
    return [entry.verb for entry in await store.list_audit(AuditQuery())]


async def succeeds(work: Awaitable[Schedule]) -> bool:
    try:
        await work
    except QuotaExceeded:
        return False
    return True


async def test_quota_counts_undeleted_schedules_of_the_owner(store: Store) -> None:
    await store.add_schedule(a_schedule(owner=BOB))
    # Owners differ by type as well as by id.
    await store.add_schedule(a_schedule(owner=Owner(type=OwnerType.CHAT, id="alice")))
    first = await store.add_schedule(a_schedule(owner=ALICE), quotas=TWO)
    await store.add_schedule(a_schedule(owner=ALICE, enabled=False), quotas=TWO)
    refused = a_schedule(owner=ALICE)
    with pytest.raises(QuotaExceeded):
        await store.add_schedule(refused, an_entry(), quotas=TWO)
    assert await store.get_schedule(refused.id) is None
    assert await audit_verbs(store) == []
    await store.change_schedule(first.id, lambda s, now: delete_schedule(s, now, "me"))
    assert await store.add_schedule(refused, quotas=TWO) == refused


async def test_quota_error_names_the_quota_and_its_limit(store: Store) -> None:
    await store.add_schedule(a_schedule())
    with pytest.raises(QuotaExceeded) as refused:
        await store.add_schedule(a_schedule(), quotas=[Quota(limit=1)])
    assert "1 schedules" in str(refused.value)
    with pytest.raises(QuotaExceeded) as refused:
        await store.add_schedule(a_schedule(), quotas=[Quota(limit=1, active=True)])
    assert "1 active schedules" in str(refused.value)


async def test_taken_id_is_reported_before_the_quota(store: Store) -> None:
    one = [Quota(limit=1)]
    schedule = await store.add_schedule(a_schedule(owner=ALICE), quotas=one)
    with pytest.raises(AlreadyExists):
        await store.add_schedule(schedule, quotas=one)


# Paused, ended and other-namespace schedules are not active.
async def test_active_quota_counts_schedules_that_will_fire_again(
    store: Store, clock: SettableClock
) -> None:
    quotas = [Quota(limit=1, active=True, namespace="softnix")]
    await store.add_schedule(a_schedule(namespace="native"))
    await store.add_schedule(a_schedule(namespace="softnix", enabled=False))
    await store.add_schedule(a_schedule(namespace="softnix", owner=BOB))
    once = Once(NOW + MINUTE)
    first = await store.add_schedule(a_schedule(namespace="softnix", trigger=once), quotas=quotas)
    second = a_schedule(namespace="softnix")
    with pytest.raises(QuotaExceeded):
        await store.add_schedule(second, quotas=quotas)
    # A schedule that is not active itself is accepted.
    await store.add_schedule(a_schedule(namespace="native"), quotas=quotas)
    await store.add_schedule(a_schedule(namespace="softnix", enabled=False), quotas=quotas)
    clock.advance(MINUTE)
    await store.fire_due(plan, limit=10)
    used_up = await store.get_schedule(first.id)
    assert used_up is not None
    assert used_up.next_run_at is None
    await store.add_schedule(second, quotas=quotas)


# Such a pause ends without a request that could be rejected.
async def test_schedule_paused_until_a_time_counts_as_active(store: Store) -> None:
    quotas = [Quota(limit=2, active=True, namespace="softnix")]
    made = [await store.add_schedule(a_schedule(namespace="softnix")) for _ in range(2)]
    for each in made:
        await store.change_schedule(
            each.id, lambda s, now: pause_schedule(s, now, "me", until=now + MINUTE), quotas=quotas
        )
    with pytest.raises(QuotaExceeded):
        await store.add_schedule(a_schedule(namespace="softnix"), quotas=quotas)
    # Resuming it does not change the count.
    await store.change_schedule(
        made[0].id, lambda s, now: resume_schedule(s, now, "me"), quotas=quotas
    )
    await store.change_schedule(
        made[1].id, lambda s, now: pause_schedule(s, now, "me"), quotas=quotas
    )
    third = await store.add_schedule(a_schedule(namespace="softnix"), quotas=quotas)
    # Adding an end to a pause makes it active, so it needs quota.
    with pytest.raises(QuotaExceeded):
        await store.change_schedule(
            made[1].id,
            lambda s, now: pause_schedule(s, now, "me", until=now + MINUTE),
            quotas=quotas,
        )
    await store.change_schedule(third.id, lambda s, now: delete_schedule(s, now, "me"))
    await store.change_schedule(
        made[1].id, lambda s, now: pause_schedule(s, now, "me", until=now + MINUTE), quotas=quotas
    )


async def test_every_given_quota_is_enforced(store: Store) -> None:
    quotas = [Quota(limit=3), Quota(limit=1, active=True)]
    await store.add_schedule(a_schedule(), quotas=quotas)
    with pytest.raises(QuotaExceeded):
        await store.add_schedule(a_schedule(), quotas=quotas)
    await store.add_schedule(a_schedule(enabled=False), quotas=quotas)
    await store.add_schedule(a_schedule(enabled=False), quotas=quotas)
    with pytest.raises(QuotaExceeded):
        await store.add_schedule(a_schedule(enabled=False), quotas=quotas)


async def test_resume_over_the_quota_is_rejected(store: Store) -> None:
    softnix = {"namespace": "softnix", "owner": ALICE}
    for _ in range(20):
        last = await store.add_schedule(a_schedule(**softnix), quotas=TWENTY_ACTIVE)
    waiting = await store.add_schedule(a_schedule(**softnix, enabled=False), quotas=TWENTY_ACTIVE)
    with pytest.raises(QuotaExceeded):
        await store.change_schedule(
            waiting.id,
            lambda s, now: resume_schedule(s, now, "me"),
            an_entry(verb="resume"),
            quotas=TWENTY_ACTIVE,
        )
    assert await store.get_schedule(waiting.id) == waiting
    assert await audit_verbs(store) == []
    # An active schedule can still be changed in other ways.
    await store.change_schedule(
        last.id,
        lambda s, now: apply_edit(s, replace(s, name="other"), now, "me"),
        quotas=TWENTY_ACTIVE,
    )
    await store.change_schedule(
        last.id, lambda s, now: pause_schedule(s, now, "me"), quotas=TWENTY_ACTIVE
    )
    after = await store.change_schedule(
        waiting.id, lambda s, now: resume_schedule(s, now, "me"), quotas=TWENTY_ACTIVE
    )
    assert after.enabled
    with pytest.raises(QuotaExceeded):
        await store.change_schedule(
            last.id, lambda s, now: resume_schedule(s, now, "me"), quotas=TWENTY_ACTIVE
        )


async def test_quota_holds_under_concurrent_creation(store: Store) -> None:
    quotas = [Quota(limit=10)]
    made = (store.add_schedule(a_schedule(owner=ALICE), quotas=quotas) for _ in range(100))
    assert sum(await asyncio.gather(*map(succeeds, made))) == 10
    assert await store.count_schedules(ScheduleQuery(owner=ALICE)) == 10


# Resumes and creations on several nodes.
async def test_quota_holds_under_concurrent_resumption(shared_home: Home) -> None:
    stores = [await shared_home.open() for _ in range(2)]
    quotas = [Quota(limit=5, active=True)]
    sleeping = [await stores[0].add_schedule(a_schedule(enabled=False)) for _ in range(12)]
    works = [
        stores[number % 2].change_schedule(
            each.id, lambda s, now: resume_schedule(s, now, "me"), quotas=quotas
        )
        for number, each in enumerate(sleeping)
    ]
    works += [stores[n % 2].add_schedule(a_schedule(), quotas=quotas) for n in range(8)]
    assert sum(await asyncio.gather(*map(succeeds, works))) == 5
    page = await stores[1].list_schedules(ScheduleQuery(enabled=True, limit=None))
    assert len(page.items) == 5
