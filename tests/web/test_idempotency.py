"""Idempotency-Key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model.access import Quota, Role
from chimes.model.audit import AuditEntry
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.memory import MemoryStore
from chimes.store.port import IdempotencyRecord
from chimes.testing import SettableClock
from chimes.web import middleware as envelope
from tests.builders import ALICE, BOB
from tests.web.rig import HTTP, Rig, definition, serving

PATH = "/api/v1/schedules"
KEY = {"Idempotency-Key": "k-1"}


async def test_repeated_request_is_executed_once(any_rig: Rig) -> None:
    first = await any_rig.client.post(PATH, json=definition(), headers=KEY)
    before = await any_rig.snapshot()
    # The same JSON value in another notation.
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


async def test_different_body_with_the_same_key_is_rejected(any_rig: Rig) -> None:
    await any_rig.client.post(PATH, json=definition(), headers=KEY)
    before = await any_rig.snapshot()
    other = await any_rig.client.post(PATH, json=definition(name="other"), headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert other.json()["errors"][0]["header"] == "Idempotency-Key"
    assert await any_rig.snapshot() == before


async def test_long_ids_fit_the_idempotency_scope(any_rig: Rig) -> None:
    """The scope of a request fits into every store and stays unique."""
    made = [await any_rig.create(id=f"{letter * 199}x") for letter in "ab"]
    answers = [
        await any_rig.client.post(f"{PATH}/{each['id']}/run", headers=KEY)
        for each in (*made, made[0])
    ]
    assert [answer.status_code for answer in answers] == [202, 202, 202]
    assert answers[0].content == answers[2].content != answers[1].content


async def test_idempotency_keys_expire_after_a_day(rig: Rig) -> None:
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


async def test_error_response_is_not_kept(rig: Rig) -> None:
    body = definition(name="")
    first = await rig.client.post(PATH, json=body, headers=KEY)
    again = await rig.client.post(PATH, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (422, 422)
    assert "idempotency-replayed" not in again.headers
    assert again.headers["content-type"] == "application/problem+json"
    # The key can be used for the corrected request.
    assert (await rig.client.post(PATH, json=definition(), headers=KEY)).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "tab\there", "é"])
async def test_invalid_idempotency_keys_are_rejected(rig: Rig, key: str) -> None:
    answer = await rig.client.post(
        PATH, json=definition(), headers={"Idempotency-Key": key.encode()}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_key")
    assert await rig.snapshot() == []


class PausingStore(MemoryStore):
    """Pauses while a schedule is being written."""

    def __init__(self, clock: SettableClock) -> None:
        super().__init__(clock)
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self.done = asyncio.Event()
        self.broken = False
        self.defect = False

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        await super().answer_request(scope, key, answer)
        self.done.set()

    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        self.reached.set()
        await self.release.wait()
        if self.defect:
            raise RuntimeError("a bug")
        if self.broken:
            raise StoreUnavailable("postgresql://user:secret@db is gone")
        return await super().add_schedule(schedule, audit, quotas=quotas)


async def test_concurrent_request_with_the_same_key_is_a_conflict() -> None:
    clock = SettableClock()
    store = PausingStore(clock)
    async with serving(store, clock) as rig:
        first = asyncio.create_task(rig.client.post(PATH, json=definition(), headers=KEY))
        await store.reached.wait()
        second = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (second.status_code, second.json()["code"]) == (409, "request_under_way")
        assert second.headers["retry-after"] == "1"
        store.release.set()
        assert (await first).status_code == 201
        third = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert third.headers["idempotency-replayed"] == "true"


async def test_timed_out_request_is_executed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelope, "REQUEST_SECONDS", 0.05)
    clock = SettableClock()
    store = PausingStore(clock)
    async with serving(store, clock) as rig:
        late = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (late.status_code, late.json()["code"]) == (503, "answer_timeout")
        store.release.set()
        await store.done.wait()
        answer = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert answer.headers["idempotency-replayed"] == "true"
        assert len(await rig.snapshot()) == 1


async def test_internal_error_is_not_replayed() -> None:
    clock = SettableClock()
    store = PausingStore(clock)
    store.defect = True
    store.release.set()
    async with serving(store, clock) as rig:
        assert (await rig.client.post(PATH, json=definition(), headers=KEY)).status_code == 500
        store.defect = False
        assert (await rig.client.post(PATH, json=definition(), headers=KEY)).status_code == 201


async def test_unavailable_response_is_not_replayed() -> None:
    clock = SettableClock()
    store = PausingStore(clock)
    store.broken = True
    store.release.set()
    async with serving(store, clock) as rig:
        failed = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert failed.status_code == 503
        assert failed.headers["retry-after"] == "5"
        assert "secret" not in failed.text
        store.broken = False
        again = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (again.status_code, "idempotency-replayed" in again.headers) == (201, False)


class CrashingStore(MemoryStore):
    """Simulates a crash or a lost response directly after a write."""

    crash: BaseException | None = None

    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        made = await super().add_schedule(schedule, audit, quotas=quotas)
        if self.crash is not None:
            raise self.crash
        return made

    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        made = await super().add_runs(runs, audit)
        if self.crash is not None:
            raise self.crash
        return made

    async def change_schedule(self, *args: Any, **named: Any) -> Schedule:
        made = await super().change_schedule(*args, **named)
        if self.crash is not None:
            raise self.crash
        return made

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        if isinstance(self.crash, asyncio.CancelledError):
            return  # a crashed process writes nothing
        await super().answer_request(scope, key, answer)

    async def forget_request(self, scope: str, key: str) -> None:
        if isinstance(self.crash, asyncio.CancelledError):
            return
        await super().forget_request(scope, key)


@pytest.mark.parametrize("case", ["schedule", "run", "retry", "start", "backfill"])
async def test_request_of_a_crashed_process_is_taken_over(case: str) -> None:
    clock = SettableClock()
    store = CrashingStore(clock)
    async with serving(store, clock) as rig:
        path, body = await _request_of(rig, case)
        before = len(await rig.snapshot())
        store.crash = asyncio.CancelledError()
        with pytest.raises(asyncio.CancelledError):
            await rig.client.post(path, json=body, headers=KEY)
        store.crash = None
        done = await rig.snapshot()
        assert len(done) == before + 1
        early = await rig.client.post(path, json=body, headers=KEY)
        assert (early.status_code, early.json()["code"]) == (409, "request_under_way")
        clock.advance(61)
        taken = await rig.client.post(path, json=body, headers=KEY)
        assert taken.status_code in (200, 201, 202), taken.text
        assert await rig.snapshot() == done
        again = await rig.client.post(path, json=body, headers=KEY)
        assert again.json() == taken.json()
        assert again.headers["idempotency-replayed"] == "true"


async def _request_of(rig: Rig, case: str) -> tuple[str, dict[str, Any]]:
    if case == "schedule":
        return PATH, definition()
    if case == "start":
        return "/api/v1/runs", {"target": HTTP}
    made = await rig.create(
        trigger={"kind": "every", "every": "1h", "anchor": "2030-01-15T07:30:00Z"}
    )
    if case == "run":
        return f"{PATH}/{made['id']}/run", {}
    if case == "backfill":
        span = {"from": "2030-01-15T08:00:00Z", "to": "2030-01-15T09:00:00Z"}
        return f"{PATH}/{made['id']}/backfill", span
    run = (await rig.client.post(f"{PATH}/{made['id']}/run")).json()
    await rig.client.post(f"/api/v1/runs/{run['id']}/cancel")
    return f"/api/v1/runs/{run['id']}/retry", {}


async def test_request_with_a_lost_commit_response_can_be_repeated() -> None:
    clock = SettableClock()
    store = CrashingStore(clock)
    async with serving(store, clock) as rig:
        store.crash = StoreUnavailable("lost", code="commit_unknown")
        first = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert (first.status_code, first.json()["code"]) == (503, "commit_unknown")
        store.crash = None
        again = await rig.client.post(PATH, json=definition(), headers=KEY)
        assert again.status_code == 201
        assert len(await rig.snapshot()) == 1
        other = await rig.client.post(PATH, json=definition(name="other"), headers=KEY)
        assert other.json()["code"] == "key_reused"


async def test_non_repeatable_request_stays_pending_after_a_lost_response() -> None:
    clock = SettableClock()
    store = CrashingStore(clock)
    async with serving(store, clock) as rig:
        made = await rig.create()
        path = f"{PATH}/{made['id']}/skip"
        store.crash = StoreUnavailable("lost", code="commit_unknown")
        assert (await rig.client.post(path, headers=KEY)).status_code == 503
        store.crash = None
        clock.advance(3600)
        again = await rig.client.post(path, headers=KEY)
        assert (again.status_code, again.json()["code"]) == (409, "request_under_way")
        assert len((await rig.client.get("/api/v1/runs")).json()["items"]) == 1


async def test_new_api_key_is_not_replayed(rig: Rig) -> None:
    body = {"name": "ci", "role": "admin"}
    first = await rig.client.post("/api/v1/keys", json=body, headers=KEY)
    text = first.json()["key"]
    again = await rig.client.post(
        "/api/v1/keys", json=body, headers=KEY | {"Authorization": f"Bearer {text}"}
    )
    assert again.json() == first.json() | {"key": "***"}
    assert text.split("_", 2)[2] not in repr(await rig.snapshot())
