"""What is kept for a repeated Idempotency-Key: only answers of requests with an effect, bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from chimes.model.access import Role
from chimes.web.api import route
from tests.builders import ALICE, BOB
from tests.security.serving import Served, served
from tests.store_contract.stores import KINDS, StoreKind
from tests.web.rig import CRON, definition

PATH = "/api/v1/schedules"
KEY = {"Idempotency-Key": "k-1"}
HOURLY = {"kind": "every", "every": "1m", "anchor": "2030-01-01T00:00:00Z"}

each_store = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


async def _create(client: httpx2.AsyncClient, **given: Any) -> str:
    answer = await client.post(PATH, json=definition(**given))
    assert answer.status_code == 201, answer.text
    return f"{PATH}/{answer.json()['id']}"


async def _slots(server: Served, client: httpx2.AsyncClient, count: int) -> tuple[str, Any]:
    """Path and body of a backfill of so many past slots."""
    path = await _create(client, trigger=HOURLY)
    server.rig.clock.advance(86400)
    start = server.rig.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    end = start.replace(hour=count // 60, minute=count % 60 - 1)
    return f"{path}/backfill", {"from": start.isoformat(), "to": end.isoformat()}


@each_store
async def test_answers_without_an_effect_are_not_kept(kind: StoreKind, tmp_path: Path) -> None:
    """The key is free again: another body is no reuse of it."""
    async with served(kind, tmp_path) as server, server.client() as client:
        for _ in range(2):
            invalid = await client.post(PATH, json=definition(name=""), headers=KEY)
            assert invalid.status_code == 422
            assert "idempotency-replayed" not in invalid.headers
        wrong = await client.post(PATH, json=definition(unknown=1), headers=KEY)
        assert wrong.status_code == 422
        assert (await client.post(PATH, json=definition(), headers=KEY)).status_code == 201
        for path, bodies in {
            "/api/v1/preview": [{"trigger": CRON}, {"trigger": HOURLY}],
            "/api/v1/explain": [{"expression": "0 9 * * *"}, {"expression": "0 8 * * *"}],
            "/api/v1/parse": [{"text": "every day 9:00 x"}, {"text": "every day 8:00 x"}],
            f"{PATH}/nothing/run": [{}, {"reason": "x"}],
        }.items():
            answers = [await client.post(path, json=body, headers=KEY) for body in bodies]
            assert "key_reused" not in [answer.json().get("code") for answer in answers], path
        path, body = await _slots(server, client, 2)
        dry = await client.post(path, json=body | {"dry_run": True}, headers=KEY)
        assert (dry.status_code, dry.json()["runs"]) == (200, [])
        real = await client.post(path, json=body, headers=KEY)
        assert len(real.json()["runs"]) == 2
        again = await client.post(path, json=body, headers=KEY)
        assert again.headers["idempotency-replayed"] == "true"


@each_store
async def test_the_query_belongs_to_the_request(kind: StoreKind, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as server, server.client() as client:
        first = await client.post(f"{PATH}?lang=en&x=1", json=definition(), headers=KEY)
        assert first.status_code == 201, first.text
        other = await client.post(f"{PATH}?lang=th&x=1", json=definition(), headers=KEY)
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        # The same query in another order.
        again = await client.post(f"{PATH}?x=1&lang=en", json=definition(), headers=KEY)
        assert again.json() == first.json()


@each_store
async def test_large_answers_are_not_kept(kind: StoreKind, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as server, server.client() as client:
        path, body = await _slots(server, client, 400)
        first = await client.post(path, json=body, headers=KEY)
        assert first.status_code == 200, first.text
        assert len(first.content) > route.MAX_KEPT_ANSWER
        again = await client.post(path, json=body, headers=KEY)
        assert (again.status_code, again.json()["code"]) == (409, "answer_not_kept")
        assert "200" in again.json()["detail"]
        # Still executed once, and no other request may use the key.
        other = await client.post(path, json=body | {"concurrency": 2}, headers=KEY)
        assert other.json()["code"] == "key_reused"


@each_store
async def test_kept_bytes_of_an_owner_are_bounded(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "MAX_KEPT_BYTES", 20_000)
    async with served(kind, tmp_path) as server, server.client() as client:
        alice = await server.rig.key(Role.MEMBER, ALICE)
        bob = await server.rig.key(Role.MEMBER, BOB)

        async def create(number: int, owner: dict[str, str]) -> httpx2.Response:
            server.rig.clock.advance(0.2)
            key = {"Idempotency-Key": f"k-{number}"}
            return await client.post(PATH, json=definition(), headers=owner | key)

        first = [await create(number, alice) for number in range(20)]
        assert {answer.status_code for answer in first} == {201}
        again = [await create(number, alice) for number in range(20)]
        kept = [answer for answer in again if answer.status_code == 201]
        assert 2 <= len(kept) < 20
        assert sum(len(answer.content) for answer in kept) <= 20_000
        for answer, made in zip(again, first, strict=True):
            if answer.status_code != 201:
                assert (answer.status_code, answer.json()["code"]) == (409, "answer_not_kept")
                assert made.headers["location"] in answer.json()["detail"]
        # Another owner has bytes of its own.
        await create(1, bob)
        assert (await create(1, bob)).headers["idempotency-replayed"] == "true"
        listed = await client.get(PATH, headers=alice)
        assert len(listed.json()["items"]) == 20
        # After a day the bytes are free again.
        server.rig.clock.advance(86400 * 1.1)
        await create(1, alice)
        assert (await create(1, alice)).headers["idempotency-replayed"] == "true"
