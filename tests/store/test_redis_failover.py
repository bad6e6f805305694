"""What a Redis store loses when a replica takes over that lacks the last changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from chimes.errors import StoreReadOnly
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from chimes.store.epoch import describe_rollback
from chimes.store.port import ClaimRequest
from chimes.triggers import Every
from tests.builders import LEASE, a_completion, a_node, a_schedule
from tests.servers import REDIS, Server
from tests.servers import start as start_server
from tests.servers.kinds import HOST
from tests.store.redis_rig import opened, plain_client

NODE = a_node("node-1")


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    quick = {"repl-diskless-sync-delay": "0"}
    with start_server(REDIS, settings=quick) as master, start_server(REDIS) as replica:
        replica.admin(f"REPLICAOF {HOST} {master.port}")
        wait_until_replicated(master)
        yield master, replica


def wait_until_replicated(master: Server) -> None:
    """Writes a key of another database, and waits until the replica has received it."""
    with plain_client(f"{master.url}9") as client:
        client.incr("written")
        assert client.wait(1, 60_000) == 1


async def test_lost_changes_are_detected_and_slots_run_again_under_the_same_ids(
    servers: tuple[Server, Server],
) -> None:
    master, replica = servers
    async with opened(f"{master.url}0") as before:
        await before.join(NODE, LEASE)
        now = await before.now()
        trigger = Every("1h", anchor=now)
        schedule = await before.add_schedule(
            a_schedule(trigger=trigger, next_slot=now, next_run_at=now)
        )
        await before.epoch()
        await asyncio.to_thread(wait_until_replicated, master)
        replica.admin("REPLICAOF NO ONE")

        # Acknowledged by the master, unknown to the replica that takes over.
        request = ClaimRequest(node_id=NODE.id, capabilities=frozenset({"http"}), free=5)
        await before.fire_due(plan, limit=5)
        [first] = await before.claim(request)
        await before.finish([a_completion(first, now)])
        epoch = await before.epoch()

        async with opened(f"{replica.url}0") as after:
            assert describe_rollback(epoch, await after.epoch())
            assert not (await after.list_runs(RunQuery())).items
            await after.fire_due(plan, limit=5)
            [again] = await after.claim(request)
            assert (again.id, again.slot) == (first.id, first.slot)
            await after.finish([a_completion(again, now)])
            [run] = (await after.list_runs(RunQuery())).items
            assert (run.id, run.status) == (first.id, RunStatus.SUCCEEDED)
            assert await after.get_schedule(schedule.id) is not None

        # A node that still talks to the demoted master gets an error, not a second history.
        master.admin(f"REPLICAOF {HOST} {replica.port}")
        with pytest.raises(StoreReadOnly):
            await before.add_schedule(a_schedule())
