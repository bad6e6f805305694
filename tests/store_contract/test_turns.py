"""Owners take turns: the runs of one do not delay those of another."""

from __future__ import annotations

from datetime import timedelta

from chimes.model.access import Owner, OwnerType
from chimes.model.planning import plan
from chimes.model.run import Run, owner_number, take_turns
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    MINUTE,
    NOW,
    SECOND,
    TASK,
    a_completion,
    a_retry,
    a_run,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import NODE, joined
from tests.store_contract.stores import Home

CAROL = Owner(type=OwnerType.USER, id="carol")


async def claimed(store: Store, free: int, **given: object) -> list[Run]:
    return list(await store.claim(claim_request(NODE, free, **given)))  # type: ignore[arg-type]


def runs_of(owner: Owner, count: int, **given: object) -> list[Run]:
    """Each a second later than the one before; available before `NOW`."""
    first = NOW - timedelta(hours=1)
    return [
        a_run(owner=owner, **{"available_at": first + place * SECOND, **given})
        for place in range(count)
    ]


def owners(runs: list[Run]) -> list[str]:
    return sorted(run.owner.id for run in runs)


async def test_many_runs_of_one_owner_do_not_delay_those_of_another(store: Store) -> None:
    await joined(store)
    many = runs_of(ALICE, 300)
    await store.add_runs(many)
    assert [run.id for run in await claimed(store, 20)] == [run.id for run in many[:20]]
    late = a_run(owner=BOB, available_at=NOW)
    await store.add_runs([late])
    assert late.id in [run.id for run in await claimed(store, 5)]
    # With one permit at a time, too.
    for turn in range(3):
        late = a_run(owner=BOB, available_at=NOW)
        await store.add_runs([late])
        first = [(await claimed(store, 1))[0].id for _ in range(2)]
        assert late.id in first, turn


async def test_each_owner_gets_an_equal_share_and_others_what_is_left(store: Store) -> None:
    await joined(store)
    await store.add_runs([*runs_of(ALICE, 30), *runs_of(BOB, 30), *runs_of(CAROL, 2)])
    # A share of five each; what the third leaves goes to the first in turn.
    found = await claimed(store, 15)
    counts = {name: owners(found).count(name) for name in ("alice", "bob", "carol")}
    assert counts["carol"] == 2
    assert sorted((counts["alice"], counts["bob"])) == [5, 8]
    # The next claims are equal again.
    assert owners(await claimed(store, 4)) == ["alice"] * 2 + ["bob"] * 2
    # Nothing is left out when less is left than there is room for.
    assert len(await claimed(store, 100)) == 62 - 19


async def test_turns_continue_from_claim_to_claim(store: Store) -> None:
    await joined(store)
    await store.add_runs([*runs_of(ALICE, 4), *runs_of(BOB, 4), *runs_of(CAROL, 4)])
    found = [owners(await claimed(store, 1))[0] for _ in range(12)]
    order = sorted((ALICE, BOB, CAROL), key=lambda owner: owner_number(str(owner)))
    assert found == [owner.id for owner in order] * 4


async def test_runs_of_one_owner_keep_their_order(store: Store) -> None:
    await joined(store)
    mine, other = runs_of(ALICE, 6), runs_of(BOB, 6)
    await store.add_runs([*reversed(mine), *other])
    found = [run for _ in range(4) for run in await claimed(store, 3)]
    assert [run.id for run in found if run.owner == ALICE] == [run.id for run in mine]


async def test_rank_goes_before_turns_and_each_rank_has_its_own(store: Store) -> None:
    """A rank whose owner is served again and again does not change whose turn it is in another."""
    await joined(store)
    low = [*runs_of(ALICE, 6), *runs_of(BOB, 6)]
    await store.add_runs(low)
    found = []
    for _ in range(4):
        await store.add_runs(runs_of(CAROL, 1, priority=5))
        high = await claimed(store, 1)
        assert owners(high) == ["carol"]
        found += owners(await claimed(store, 1))
    assert sorted(found) == ["alice", "alice", "bob", "bob"]


async def test_pools_take_turns_separately(store: Store) -> None:
    await joined(store)
    for owner in (ALICE, BOB):
        await store.add_runs([*runs_of(owner, 4), *runs_of(owner, 4, target=TASK)])
    found = []
    for _ in range(4):
        found += owners(await claimed(store, 1, capabilities=frozenset({"http"})))
        await claimed(store, 1, capabilities=frozenset({TASK.requirement}))
    assert sorted(found) == ["alice", "alice", "bob", "bob"]


async def test_owners_without_a_run_for_this_claim_have_no_turn(
    store: Store, clock: SettableClock
) -> None:
    """Neither a retry that waits for its time nor a run of another kind is in the way."""
    await joined(store, lease=timedelta(hours=1))
    await store.add_runs([*runs_of(ALICE, 8), *runs_of(CAROL, 20, target=TASK)])
    await store.add_runs(runs_of(BOB, 2))
    (first, second) = [run for run in await claimed(store, 4) if run.owner == BOB]
    await store.finish([a_retry(first, clock.now(), MINUTE), a_completion(second, clock.now())])
    assert owners(await claimed(store, 4)) == ["alice"] * 4
    clock.advance(MINUTE)
    await store.add_runs(runs_of(ALICE, 8))
    found = await claimed(store, 2)
    assert first.id in [run.id for run in found]


async def test_more_owners_than_one_claim_visits(store: Store) -> None:
    await joined(store)
    people = [Owner(type=OwnerType.USER, id=f"u{number}") for number in range(70)]
    await store.add_runs([run for owner in people for run in runs_of(owner, 2)])
    found: list[Run] = []
    while more := await claimed(store, 40):
        found += more
    assert len({run.id for run in found}) == len(found) == 140
    # None is served twice before every owner was visited; others may be served early.
    late = a_run(owner=BOB, available_at=NOW)
    await store.add_runs([*(run for owner in people for run in runs_of(owner, 5)), late])
    claims = 0
    while late.id not in [run.id for run in await claimed(store, 10)]:
        claims += 1
    assert claims <= 8


async def test_fired_runs_are_claimed_in_turn(store: Store, clock: SettableClock) -> None:
    await joined(store)
    for _ in range(12):
        await store.add_schedule(due_schedule(owner=ALICE, slot=NOW - SECOND))
    await store.add_schedule(due_schedule(owner=BOB, slot=NOW))
    fired = await store.fire_due(plan, limit=50, request=claim_request(NODE, 4))
    assert len(fired.claimed) == 4
    assert BOB in [run.owner for run in fired.claimed]
    assert len(fired.others) == 9


async def test_runs_that_wait_keep_their_turn_over_a_restart(durable_home: Home) -> None:
    store = await durable_home.open()
    await joined(store)
    many, late = runs_of(ALICE, 30), a_run(owner=BOB, available_at=NOW)
    await store.add_runs([*many, late])
    await store.close()
    store = await durable_home.open()
    await joined(store)
    assert late.id in [run.id for run in await claimed(store, 4)]


def test_turns_without_a_store() -> None:
    many, late = runs_of(ALICE, 10), a_run(owner=BOB, available_at=NOW)
    assert late in take_turns([*many, late], 2)
    assert take_turns([*many, late], 0) == []
    assert take_turns(many, 3) == many[:3]
    assert take_turns([*many, a_run(owner=BOB, priority=1)], 1)[0].owner == BOB
