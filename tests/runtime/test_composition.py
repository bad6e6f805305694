"""Interval limits and quotas of the built services."""

from __future__ import annotations

from functools import partial

import pytest

from chimes.config import Settings
from chimes.errors import InvalidInput, InvalidTrigger, QuotaExceeded
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.runtime.composition import build_services
from chimes.services.access import AccessService
from chimes.services.runs import RunRequest
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import ALICE, a_schedule

CHAT = Owner(type=OwnerType.CHAT, id="7")
IN_CHAT = Actor(owner=CHAT, role=Role.MEMBER, interface="telegram")
MEMBER = Actor(owner=ALICE, role=Role.MEMBER)
anywhere = partial(a_schedule, target=HttpTarget(url="http://example.org/"))


# A chat user is never the local user of this machine.
async def test_chats_get_the_minimum_interval_of_members_without_keys() -> None:
    clock = SettableClock()
    services = await build_services(Settings(), MemoryStore(clock), clock)
    fast = anywhere(trigger=Every("1s"))
    for actor, owner in ((IN_CHAT, CHAT), (replace(IN_CHAT, owner=ALICE), ALICE), (Actor(), CHAT)):
        with pytest.raises(InvalidTrigger, match="10 s"):
            await services.schedules.create(actor, replace(fast, owner=owner))
    made = await services.schedules.create(Actor(), fast)
    assert made.enabled
    chats = await services.schedules.create(IN_CHAT, anywhere(owner=CHAT, trigger=Every("10s")))
    with pytest.raises(InvalidTrigger, match="10 s"):
        await services.schedules.change(
            IN_CHAT, chats.id, lambda s: replace(s, trigger=Every("2s"))
        )


# The first key may be created on another node, and a chat request passes no authentication.
async def test_quotas_apply_as_soon_as_a_key_exists() -> None:
    clock = SettableClock()
    store = MemoryStore(clock)
    services = await build_services(Settings(max_schedules_per_owner=1), store, clock)
    await services.schedules.create(MEMBER, anywhere(owner=ALICE))
    await AccessService(store, clock).create(Actor(), name="x", role=Role.ADMIN)
    clock.advance(1)
    with pytest.raises(QuotaExceeded):
        await services.schedules.create(MEMBER, anywhere(owner=ALICE))


async def test_members_may_not_overtake_everybody_by_priority() -> None:
    clock = SettableClock()
    store = MemoryStore(clock)
    services = await build_services(Settings(max_priority_member=5), store, clock)
    await AccessService(store, clock).create(Actor(), name="x", role=Role.ADMIN)
    clock.advance(1)
    with pytest.raises(InvalidInput, match="at most 5") as refused:
        await services.schedules.create(MEMBER, anywhere(owner=ALICE, priority=6))
    assert refused.value.field == "priority"
    made = await services.schedules.create(MEMBER, anywhere(owner=ALICE, priority=5))

    def raised(schedule: Schedule) -> Schedule:
        return replace(schedule, priority=1000)

    with pytest.raises(InvalidInput, match="at most 5"):
        await services.schedules.change(MEMBER, made.id, raised)
    request = RunRequest(target=made.target, policy=made.policy, priority=6)
    with pytest.raises(InvalidInput, match="at most 5"):
        await services.manual_runs.start(MEMBER, request)
    # What an admin has set stays when a member changes something else, and may be lowered.
    await services.schedules.change(Actor(), made.id, raised)
    changed = await services.schedules.change(MEMBER, made.id, lambda s: replace(s, name="other"))
    assert changed.priority == 1000
    lowered = await services.schedules.change(MEMBER, made.id, lambda s: replace(s, priority=-1))
    assert lowered.priority == -1
    # By default members may not raise it at all.
    assert Settings().max_priority_member == 0
