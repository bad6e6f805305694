"""Event streams over real connections: one owner cannot take all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import httpx2

from chimes.model.access import Role
from tests.builders import ALICE, BOB, HOUR, a_node, a_run, claim_request
from tests.engine.rig import until
from tests.security.serving import Served, served

LIMIT = 50


async def _open(
    stack: AsyncExitStack, client: httpx2.AsyncClient, path: str, headers: dict[str, str]
) -> int:
    """Opens a stream and waits for its first bytes; the status, or 0 if it ended at once."""
    answer = await stack.enter_async_context(client.stream("GET", path, headers=headers))
    if answer.status_code == 200:
        blocks = answer.aiter_text()
        stack.push_async_callback(blocks.aclose)  # Keeps the iterator, whose end closes the stream.
        first = await anext(blocks)
        if "retry: 10000" in first:
            return 0
    return answer.status_code


async def _running(server: Served) -> str:
    await server.rig.store.join(a_node(), HOUR)
    await server.rig.store.add_runs([a_run(owner=ALICE)])
    runs = await server.rig.store.claim(claim_request(free=1))
    return runs[0].id


async def test_log_streams_of_an_owner_are_limited() -> None:
    async with served() as server, server.client() as client, AsyncExitStack() as stack:
        run_id = await _running(server)
        alice = [await server.rig.key(Role.VIEWER, ALICE) for _ in range(2)]
        admin = await server.rig.key(Role.ADMIN)
        path = f"/api/v1/runs/{run_id}/logs?follow=true"
        codes = []
        for number in range(LIMIT + 2):
            # The two keys of an owner share its streams; the clock refills the rate limit.
            server.rig.clock.advance(1)
            codes.append(await _open(stack, client, path, alice[number % 2]))
        assert codes == [200] * LIMIT + [429] * 2
        assert await _open(stack, client, path, admin) == 200
        assert server.rig.app.state.streams.count == LIMIT + 1


async def test_log_streams_opened_at_once_are_limited() -> None:
    async with served() as server, server.client() as client, AsyncExitStack() as stack:
        run_id = await _running(server)
        admins = [await server.rig.key(Role.ADMIN) for _ in range(2)]
        path = f"/api/v1/runs/{run_id}/logs?follow=true"
        found = Counter[int]()
        for _ in range(2):
            server.rig.clock.advance(10)
            found.update(
                await asyncio.gather(
                    *(_open(stack, client, path, admins[0]) for _ in range(LIMIT // 2 + 10))
                )
            )
        assert found[200] == LIMIT
        assert found[429] + found[0] == 20
        assert await _open(stack, client, path, admins[1]) == 200


async def test_open_streams_do_not_use_up_the_rate_limit() -> None:
    async with served() as server, server.client() as client, AsyncExitStack() as stack:
        run_id = await _running(server)
        key = await server.rig.key(Role.ADMIN)
        path = f"/api/v1/runs/{run_id}/logs?follow=true"
        answers = []
        for _ in range(20):
            answer = await stack.enter_async_context(client.stream("GET", path, headers=key))
            answers.append(answer.aiter_text())
            stack.push_async_callback(answers[-1].aclose)
            await anext(answers[-1])
        server.rig.clock.advance(60)
        full = await client.get("/api/v1/runs?limit=1", headers=key)
        # Each keep-alive follows a check whether the key is still valid.
        for blocks in answers:
            assert "still here" in await anext(blocks)
        after = await client.get("/api/v1/runs?limit=1", headers=key)
        remaining = [int(each.headers["RateLimit-Remaining"]) for each in (full, after)]
        assert remaining[0] - remaining[1] == 1


async def test_live_pages_of_an_owner_are_limited() -> None:
    async with served() as server, AsyncExitStack() as stack:
        keys = [await server.rig.key(Role.VIEWER, owner) for owner in (ALICE, BOB)]
        clients = [await stack.enter_async_context(server.client()) for _ in keys]
        for client, key in zip(clients, keys, strict=True):
            text = key["Authorization"].removeprefix("Bearer ")
            assert (await server.sign_in(client, key=text)).status_code == 303
        codes = []
        for _ in range(LIMIT + 2):
            server.rig.clock.advance(1)
            codes.append(await _open(stack, clients[0], "/ui/events", {}))
        assert codes == [200] * LIMIT + [429] * 2
        assert await _open(stack, clients[1], "/ui/events", {}) == 200


async def test_closed_streams_are_not_counted() -> None:
    async with served() as server, server.client() as client:
        run_id = await _running(server)
        key = await server.rig.key(Role.VIEWER, ALICE)
        path = f"/api/v1/runs/{run_id}/logs?follow=true"
        async with AsyncExitStack() as stack:
            for _ in range(LIMIT):
                server.rig.clock.advance(1)
                await _open(stack, client, path, key)
        await until(lambda: server.rig.app.state.streams.count == 0)
        async with AsyncExitStack() as stack:
            assert await _open(stack, client, path, key) == 200
