"""Idempotency-Key (S26)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from chimes.doors import envelope
from chimes.errors import StoreUnavailable
from chimes.model.access import Role
from chimes.model.audit import AuditEntry
from chimes.model.schedule import Schedule
from chimes.store.memory import MemoryStore
from chimes.store.port import Remembered
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB
from tests.doors.rig import Rig, definition, serving

PATH = "/api/v1/schedules"
KEY = {"Idempotency-Key": "k-1"}


async def test_the_same_request_twice_is_done_once(any_rig: Rig) -> None:
    first = await any_rig.client.post(PATH, json=definition(), headers=KEY)
    before = await any_rig.snapshot()
    # Another way of writing the same value.
    spelled = json.dumps(dict(reversed(definition().items())), indent=2)
    again = await any_rig.client.post(
        PATH, content=spelled, headers=KEY | {"Content-Type": "application/json; charset=utf-8"}
    )
    assert again.status_code == 201
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    for name in ("location", "etag", "content-type"):
        assert again.headers[name] == first.headers[name]
    assert await any_rig.snapshot() == before


async def test_another_body_under_the_same_key_is_refused(any_rig: Rig) -> None:
    await any_rig.client.post(PATH, json=definition(), headers=KEY)
    before = await any_rig.snapshot()
    other = await any_rig.client.post(PATH, json=definition(name="other"), headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert other.json()["errors"][0]["header"] == "Idempotency-Key"
    assert await any_rig.snapshot() == before


async def test_keys_are_forgotten_after_a_day(rig: Rig) -> None:
    await rig.client.post(PATH, json=definition(), headers=KEY)
    rig.clock.advance(timedelta(hours=24, seconds=1))
    await rig.client.post(PATH, json=definition(), headers=KEY)
    assert len((await rig.client.get(PATH)).json()["items"]) == 2


async def test_routes_and_owners_are_independent() -> None:
    async with serving() as rig:
        alice = await rig.key(Role.MEMBER, ALICE)
        bob = await rig.key(Role.MEMBER, BOB)
        one = await rig.client.post(PATH, json=definition(), headers=alice | KEY)
        two = await rig.client.post(PATH, json=definition(), headers=bob | KEY)
        assert one.json()["id"] != two.json()["id"]
        run = await rig.client.post(f"{one.headers['location']}/run", headers=alice | KEY)
        assert run.status_code == 202
        again = await rig.client.post(f"{one.headers['location']}/run", headers=alice | KEY)
        assert again.json() == run.json()


async def test_a_refusal_is_repeated_too(rig: Rig) -> None:
    body = definition(name="")
    first = await rig.client.post(PATH, json=body, headers=KEY)
    again = await rig.client.post(PATH, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (422, 422)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "tab\there", "é"])
async def test_odd_keys_are_refused(rig: Rig, key: str) -> None:
    answer = await rig.client.post(
        PATH, json=definition(), headers={"Idempotency-Key": key.encode()}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_key")
    assert await rig.snapshot() == []


class HeldStore(MemoryStore):
    """Lets a test look at the moment in which a schedule is being written."""

    def __init__(self, clock: SettableClock) -> None:
        super().__init__(clock)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.done = asyncio.Event()
        self.broken = False
        self.defect = False

    async def answer_request(self, scope: str, key: str, answer: Remembered) -> None:
        await super().answer_request(scope, key, answer)
        self.done.set()

    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quota: int | None = None
    ) -> Schedule:
        self.reached.set()
        await self.go_on.wait()
        if self.defect:
            raise RuntimeError("a bug")
        if self.broken:
            raise StoreUnavailable("postgresql://user:secret@db is gone")
        return await super().add_schedule(schedule, audit, quota=quota)


async def test_while_the_first_is_under_way_the_second_is_a_conflict() -> None:
    clock = SettableClock()
    store = HeldStore(clock)
    async with serving(store, clock) as rig:
        first = asyncio.create_task(rig.client.post(PATH, json=definition(), headers=KEY))
        await store.reached.wait()
        second = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (second.status_code, second.json()["code"]) == (409, "request_under_way")
        assert second.headers["retry-after"] == "1"
        store.go_on.set()
        assert (await first).status_code == 201
        third = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert third.headers["idempotency-replayed"] == "true"


async def test_a_request_that_took_too_long_is_still_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelope, "REQUEST_SECONDS", 0.05)
    clock = SettableClock()
    store = HeldStore(clock)
    async with serving(store, clock) as rig:
        late = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (late.status_code, late.json()["code"]) == (503, "answer_timeout")
        store.go_on.set()
        await store.done.wait()
        answer = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert answer.headers["idempotency-replayed"] == "true"
        assert len(await rig.snapshot()) == 1


async def test_a_defect_is_not_kept_either() -> None:
    clock = SettableClock()
    store = HeldStore(clock)
    store.defect = True
    store.go_on.set()
    async with serving(store, clock) as rig:
        assert (await rig.client.post(PATH, json=definition(), headers=KEY)).status_code == 500
        store.defect = False
        assert (await rig.client.post(PATH, json=definition(), headers=KEY)).status_code == 201


async def test_a_failure_of_the_server_is_not_kept() -> None:
    clock = SettableClock()
    store = HeldStore(clock)
    store.broken = True
    store.go_on.set()
    async with serving(store, clock) as rig:
        failed = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert failed.status_code == 503
        assert failed.headers["retry-after"] == "5"
        assert "secret" not in failed.text
        store.broken = False
        again = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (again.status_code, "idempotency-replayed" in again.headers) == (201, False)


async def test_a_new_key_is_shown_once(rig: Rig) -> None:
    body = {"name": "ci", "role": "admin"}
    first = await rig.client.post("/api/v1/keys", json=body, headers=KEY)
    text = first.json()["key"]
    again = await rig.client.post(
        "/api/v1/keys", json=body, headers=KEY | {"Authorization": f"Bearer {text}"}
    )
    assert again.json() == first.json() | {"key": "***"}
    assert text.rpartition("_")[2] not in repr(await rig.snapshot())
