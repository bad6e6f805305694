"""Audit trail, keys, idempotency records and counts."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from chimes.errors import AlreadyExists, Conflict, NotFound
from chimes.model import replace
from chimes.model.access import ApiKey, Role, Scope, revoke
from chimes.model.audit import AuditEntry, chain_entry, verify_chain
from chimes.model.ids import KeyId
from chimes.model.listing import AuditQuery, Counts
from chimes.model.notification import DeliveryState
from chimes.model.planning import plan
from chimes.model.recipient import Channel
from chimes.model.run import AttemptEnd, RunStatus
from chimes.model.schedule import delete_schedule
from chimes.store.port import IdempotencyRecord, Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_delivery,
    a_delivery_completion,
    a_key,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import joined


# --- audit ------------------------------------------------------------------------------------
async def test_audit_entries_are_numbered_and_chained(store: Store) -> None:
    first = await store.append_audit(an_entry(verb="one"))
    assert first == chain_entry(an_entry(verb="one"), number=1, previous_hash="")
    second = await store.append_audit(
        an_entry(verb="two", allowed=False, changes={}, number=9, hash="x", previous_hash="y")
    )
    assert second == chain_entry(
        an_entry(verb="two", allowed=False, changes={}), number=2, previous_hash=first.hash
    )
    assert await store.list_audit(AuditQuery()) == (second, first)


async def test_audit_chain_covers_entries_of_all_operations(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule(), an_entry(verb="create"))
    await store.change_schedule(
        schedule.id, lambda s, now: delete_schedule(s, now, "me"), an_entry(verb="delete")
    )
    (run,) = await store.add_runs([a_run()], an_entry(verb="run"))
    await store.cancel_run(run.id, "x", an_entry(verb="cancel"))
    key = await store.add_key(a_key(), an_entry(verb="key create"))
    await store.change_key(key.id, revoke, an_entry(verb="key revoke"))
    entries = list(reversed(await store.list_audit(AuditQuery())))
    verbs = ["create", "delete", "run", "cancel", "key create", "key revoke"]
    assert [entry.verb for entry in entries] == verbs
    assert [entry.number for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert verify_chain(entries) is None


async def test_concurrently_appended_entries_form_one_chain(store: Store) -> None:
    await asyncio.gather(*(store.append_audit(an_entry(object_id=str(n))) for n in range(30)))
    entries = list(reversed(await store.list_audit(AuditQuery(limit=100))))
    assert [entry.number for entry in entries] == list(range(1, 31))
    assert {entry.object_id for entry in entries} == {str(n) for n in range(30)}
    assert verify_chain(entries) is None


async def test_audit_is_listed_newest_first_and_filtered(store: Store) -> None:
    rows = [
        an_entry(verb="create", object_id="a", owner="user:alice"),
        an_entry(verb="pause", object_id="a", owner="user:alice", actor="key:k1"),
        an_entry(verb="create", object_id="b", owner="user:bob", interface="softnix"),
        an_entry(
            verb="pause", object_id="b", owner="user:bob", interface="softnix", actor="key:k1"
        ),
    ]
    for row in rows:
        await store.append_audit(row)

    async def numbers(query: AuditQuery) -> list[int]:
        return [entry.number for entry in await store.list_audit(query)]

    assert await numbers(AuditQuery()) == [4, 3, 2, 1]
    assert await numbers(AuditQuery(limit=3)) == [4, 3, 2]
    assert await numbers(AuditQuery(before=3)) == [2, 1]
    assert await numbers(AuditQuery(before=3, limit=1)) == [2]
    assert await numbers(AuditQuery(owner="user:bob")) == [4, 3]
    assert await numbers(AuditQuery(object_id="a")) == [2, 1]
    assert await numbers(AuditQuery(verb="pause", object_id="b")) == [4]
    assert await numbers(AuditQuery(verb="nothing")) == []
    assert await numbers(AuditQuery(actor="key:k1")) == [4, 2]
    assert await numbers(AuditQuery(interface="softnix")) == [4, 3]
    assert await numbers(AuditQuery(actor="key:k1", interface="native")) == [2]
    assert await numbers(AuditQuery(actor="key:k1", before=4, limit=1)) == [2]


async def test_audit_is_filtered_by_several_objects_and_a_time_range(
    store: Store,
) -> None:
    verbs = ("run", "update", "run", "retry", "run")
    for number, verb in enumerate(verbs):
        moment = NOW + number * MINUTE
        await store.append_audit(an_entry(verb=verb, object_id="abcab"[number], at=moment))

    async def numbers(**given: Any) -> list[int]:
        return [entry.number for entry in await store.list_audit(AuditQuery(**given))]

    assert await numbers(object_ids=("a", "c")) == [4, 3, 1]
    assert await numbers(object_ids=("a", "c"), verbs=("run",)) == [3, 1]
    assert await numbers(object_ids=()) == []
    assert await numbers(verbs=("retry", "update")) == [4, 2]
    assert await numbers(since=NOW + 2 * MINUTE) == [5, 4, 3]
    assert await numbers(since=NOW + MINUTE, until=NOW + 3 * MINUTE) == [4, 3, 2]
    assert await numbers(object_ids=("b",), since=NOW + 2 * MINUTE, limit=1) == [5]


# --- keys -------------------------------------------------------------------------------------
async def test_key_round_trip_keeps_every_field(store: Store) -> None:
    bare = a_key()
    full = a_key(
        role=Role.OPERATOR,
        owner=BOB,
        expires_at=NOW + MINUTE,
        last_used_at=NOW - MINUTE,
        revoked_at=NOW,
        scopes=tuple(Scope),
    )
    for key in (bare, full):
        assert await store.add_key(key) == key
        assert await store.get_key(key.id) == key
    assert await store.get_key(KeyId("nobody")) is None


async def test_key_id_is_unique(store: Store) -> None:
    key = await store.add_key(a_key(), an_entry())
    with pytest.raises(AlreadyExists):
        await store.add_key(replace(key, secret_hash="other"), an_entry())
    assert await store.get_key(key.id) == key
    assert len(await store.list_audit(AuditQuery())) == 1


async def test_keys_are_listed_oldest_first(store: Store) -> None:
    young = await store.add_key(a_key(created_at=NOW + SECOND))
    twin_b = await store.add_key(a_key(id=KeyId("b")))
    twin_a = await store.add_key(a_key(id=KeyId("a"), revoked_at=NOW))
    assert await store.list_keys() == (twin_a, twin_b, young)


async def test_key_is_changed_atomically(store: Store, clock: SettableClock) -> None:
    key = await store.add_key(a_key())
    now = clock.advance(1)
    assert await store.change_key(key.id, revoke, an_entry()) == replace(key, revoked_at=now)
    assert await store.get_key(key.id) == replace(key, revoked_at=now)
    assert len(await store.list_audit(AuditQuery())) == 1


async def test_raising_key_change_changes_nothing(store: Store) -> None:
    key = await store.add_key(a_key())

    def refuse(before: ApiKey, now: datetime) -> ApiKey:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.change_key(key.id, refuse, an_entry())
    with pytest.raises(NotFound):
        await store.change_key(KeyId("nobody"), revoke, an_entry())
    assert await store.get_key(key.id) == key
    assert await store.list_audit(AuditQuery()) == ()


# --- idempotency records ----------------------------------------------------------------------
KEEP = timedelta(hours=24)


async def test_repeated_request_returns_its_idempotency_record(store: Store) -> None:
    assert await store.remember_request("alice", "k", "print", keep=KEEP) is None
    under_way = IdempotencyRecord(fingerprint="print")
    assert await store.remember_request("alice", "k", "other print", keep=KEEP) == under_way
    answer = IdempotencyRecord(
        fingerprint="print", status=201, body='{"id": "水"}', headers=(("ETag", '"1"'), ("A", "b"))
    )
    await store.answer_request("alice", "k", answer)
    assert await store.remember_request("alice", "k", "print", keep=KEEP) == answer


async def test_requests_of_another_scope_or_key_are_independent(store: Store) -> None:
    await store.remember_request("alice", "k", "print", keep=KEEP)
    assert await store.remember_request("bob", "k", "print", keep=KEEP) is None
    assert await store.remember_request("alice", "K", "print", keep=KEEP) is None


async def test_request_scope_may_be_as_long_as_owner_method_and_path(store: Store) -> None:
    """The scope consists of owner, method and path, each of maximum length."""
    scope, neighbour = ("user:" + "x" * 600 + end for end in "ab")
    assert await store.remember_request(scope, "k", "print", keep=KEEP) is None
    assert await store.remember_request(neighbour, "k", "print", keep=KEEP) is None
    answer = IdempotencyRecord(fingerprint="print", status=201)
    await store.answer_request(scope, "k", answer)
    assert await store.remember_request(scope, "k", "print", keep=KEEP) == answer
    await store.forget_request(scope, "k")
    assert await store.remember_request(scope, "k", "print", keep=KEEP) is None


async def test_audit_stores_the_longest_owner(store: Store) -> None:
    entry = an_entry(owner="t" * 64 + ":" + "x" * 255)
    appended = await store.append_audit(entry)
    assert await store.list_audit(AuditQuery(owner=entry.owner)) == (appended,)


async def test_forgotten_request_is_new_again(store: Store) -> None:
    await store.remember_request("alice", "k", "print", keep=KEEP)
    await store.forget_request("alice", "k")
    assert await store.remember_request("alice", "k", "new print", keep=KEEP) is None
    await store.forget_request("alice", "never seen")


async def test_idempotency_record_expires(store: Store, clock: SettableClock) -> None:
    await store.remember_request("alice", "k", "print", keep=KEEP)
    answer = IdempotencyRecord(fingerprint="print", status=200)
    clock.advance(KEEP - SECOND)
    await store.answer_request("alice", "k", answer)
    assert await store.remember_request("alice", "k", "print", keep=KEEP) == answer
    clock.advance(1)
    assert await store.remember_request("alice", "k", "new", keep=KEEP) is None
    assert await store.remember_request("alice", "k", "x", keep=KEEP) == IdempotencyRecord(
        fingerprint="new"
    )


async def test_response_of_an_unknown_request_is_not_stored(store: Store) -> None:
    await store.answer_request("alice", "k", IdempotencyRecord(fingerprint="p", status=200))
    assert await store.remember_request("alice", "k", "q", keep=KEEP) is None


async def test_one_of_many_concurrent_equal_requests_is_new(store: Store) -> None:
    asked = [store.remember_request("alice", "k", "print", keep=KEEP) for _ in range(20)]
    answers = await asyncio.gather(*asked)
    assert sum(answer is None for answer in answers) == 1


# --- insights ---------------------------------------------------------------------------------
async def test_counts_of_an_empty_store_are_zero(store: Store) -> None:
    assert await store.counts() == Counts(schedules=0, enabled=0, due=0, runs={})


async def test_counts_of_schedules_and_runs(store: Store, clock: SettableClock) -> None:
    await joined(store)
    for schedule in (
        due_schedule(NOW - SECOND),
        due_schedule(NOW),
        a_schedule(owner=ALICE),
        due_schedule(NOW, enabled=False),
    ):
        await store.add_schedule(schedule)
    gone = await store.add_schedule(due_schedule(NOW))
    await store.change_schedule(gone.id, lambda s, now: delete_schedule(s, now, "me"))
    await store.add_runs([a_run() for _ in range(4)])
    first, second, _ = await store.claim(claim_request(free=3))
    await store.finish(
        [a_completion(first, clock.now()), a_completion(second, clock.now(), AttemptEnd.FAILED)]
    )
    assert await store.counts() == Counts(
        schedules=4,
        enabled=3,
        due=2,
        runs={
            RunStatus.QUEUED: 1,
            RunStatus.RUNNING: 1,
            RunStatus.SUCCEEDED: 1,
            RunStatus.FAILED: 1,
        },
    )
    await store.fire_due(plan, limit=10)
    counts = await store.counts()
    assert (counts.due, counts.runs[RunStatus.QUEUED]) == (0, 3)


async def test_deliveries_are_counted_by_state(store: Store, clock: SettableClock) -> None:
    await store.load([a_delivery() for _ in range(4)])
    first, second = await store.claim_deliveries(
        [Channel.INBOX], limit=2, lease=MINUTE, overdue=MINUTE
    )
    await store.finish_deliveries(
        [a_delivery_completion(first), a_delivery_completion(second, sent=False)]
    )
    assert (await store.counts()).deliveries == {
        DeliveryState.PENDING: 2,
        DeliveryState.DELIVERED: 1,
        DeliveryState.DEAD: 1,
    }


async def test_audit_entry_round_trip_keeps_its_changes(store: Store) -> None:
    entry = await store.append_audit(an_entry(changes={"labels": [{}, {"a": None}], "x": [1, 2.5]}))
    assert isinstance(entry, AuditEntry)
    assert await store.list_audit(AuditQuery()) == (entry,)
