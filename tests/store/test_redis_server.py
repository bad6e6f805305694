"""Redis servers that are volatile, full, emptied, restarted or silent."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import ConfigError, StoreLost, StoreUnavailable, StoreUnsafe
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import AuditQuery, DeliveryQuery, InboxQuery, RunQuery, ScheduleQuery
from chimes.model.notification import DeliveryState
from chimes.model.planning import plan
from chimes.model.policy import Policy
from chimes.model.recipient import Channel
from chimes.model.run import RunStatus
from chimes.store.epoch import describe_rollback
from chimes.store.redis import RedisStore, open_redis
from chimes.store.redis.connection import Address, parse_address
from chimes.store.redis.server import Durability, assess_durability
from tests.builders import (
    INBOX,
    LEASE,
    a_completion,
    a_delivery,
    a_delivery_completion,
    a_node,
    a_run,
    a_schedule,
    a_sync_run,
    an_entry,
    an_item,
    claim_request,
    log_lines,
)
from tests.servers.kinds import REDIS
from tests.servers.server import PrivateServer, free_port, start
from tests.store.redis_rig import all_keys, opened, plain_client, published_wakeups
from tests.store.server_rig import until_listening

PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with start(REDIS) as server:
        yield server


@pytest.fixture
async def store(server: PrivateServer) -> AsyncIterator[RedisStore]:
    async with opened(server.url) as store:
        yield store


# --- URL ----------------------------------------------------------------------------------------
def test_url_with_all_parts() -> None:
    assert parse_address("rediss://me:p%40ss@h:6380/3?prefix=a:&ssl_cert_reqs=none") == Address(
        host="h",
        port=6380,
        database=3,
        username="me",
        password="p@ss",
        tls=True,
        tls_options=(("ssl_cert_reqs", "none"),),
        prefix="a:",
    )
    assert parse_address("redis://:only@[::1]") == Address(host="::1", password="only")
    assert parse_address("redis://h").shown == "redis://h:6379/0"
    assert "hush" not in repr(parse_address("redis://u:hush@h"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://h/jobs", "no database of Redis"),
        ("redis://h:0x1/0", "1 to 65535"),
        ("redis://h/?prefx=a", "did you mean prefix"),
        ("redis://h/?ssl_ca_certs=x", "rediss://"),
        ("http://h", "not a Redis URL"),
    ],
)
def test_invalid_url_error_names_the_correct_form(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_redis(url)


async def test_unreachable_server_is_reported() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9"):
        await open_redis("redis://127.0.0.1:9/0").open()


async def test_wrong_password_is_reported(server: PrivateServer) -> None:
    server.admin("CONFIG SET requirepass right")
    for wrong in (":wrong@", ""):
        with pytest.raises(StoreUnavailable, match="user or password") as caught:
            await open_redis(f"redis://{wrong}127.0.0.1:{server.port}").open()
        assert "wrong@" not in str(caught.value)
    async with opened(f"redis://:right@127.0.0.1:{server.port}") as store:
        assert "right" not in (await store.status()).location


# --- durability settings ------------------------------------------------------------------------
GOOD = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize(
    ("changed", "refused", "note"),
    [
        ({}, "", ""),
        ({"appendfsync": "everysec"}, "", "about the last second"),
        ({"appendfsync": "no"}, "", "not written yet"),
        ({"no-appendfsync-on-rewrite": "no"}, "", ""),
        ({"no-appendfsync-on-rewrite": "yes"}, "", "no-appendfsync-on-rewrite is yes"),
        (
            {"appendfsync": "everysec", "no-appendfsync-on-rewrite": "yes"},
            "",
            "no-appendfsync-on-rewrite is yes",
        ),
        (
            {"appendonly": "no", "no-appendfsync-on-rewrite": "yes"},
            "nothing is kept on disk",
            "",
        ),
        ({"appendonly": "no"}, "nothing is kept on disk", ""),
        ({"appendonly": "no", "save": "3600 1"}, "only snapshots are kept", ""),
        ({"maxmemory-policy": "allkeys-lru"}, "set it to noeviction", ""),
    ],
)
def test_durability_settings_are_rated(changed: dict[str, str], refused: str, note: str) -> None:
    found = assess_durability(GOOD | changed)
    assert refused in found.refused
    assert note in found.note
    assert (found == Durability()) == (not refused and not note)


async def test_volatile_server_is_rejected() -> None:
    with start(REDIS, settings={"appendonly": "no"}) as server:
        with pytest.raises(StoreUnsafe, match="--allow-volatile"):
            await open_redis(server.url).open()
        with plain_client(server.url) as client:
            assert all_keys(client) == {}
        async with opened(server.url, allow_volatile=True) as store:
            assert "nothing is kept on disk" in (await store.status()).degraded
            await store.add_schedule(a_schedule())


async def test_appendfsync_everysec_causes_a_warning(server: PrivateServer) -> None:
    server.admin("CONFIG SET appendfsync everysec")
    async with opened(server.url) as store:
        assert "last second" in (await store.status()).degraded


async def test_no_fsync_during_rewrite_causes_a_warning(
    server: PrivateServer,
) -> None:
    """Even with `appendfsync always`."""
    server.admin("CONFIG SET appendfsync always")
    async with opened(server.url) as store:
        assert (await store.status()).degraded == ""
    server.admin("CONFIG SET no-appendfsync-on-rewrite yes")
    async with opened(server.url) as store:
        assert "no-appendfsync-on-rewrite" in (await store.status()).degraded


async def test_unreadable_server_settings_are_rejected_unless_volatile_is_allowed(
    server: PrivateServer,
) -> None:
    server.admin("ACL SETUSER app on >pw ~* &* +@all -config")
    url = f"redis://app:pw@127.0.0.1:{server.port}/0"
    with pytest.raises(StoreUnsafe, match="CONFIG GET is not allowed"):
        await open_redis(url).open()
    async with opened(url, allow_volatile=True) as store:
        await store.add_schedule(a_schedule())


# --- lost or replaced store ---------------------------------------------------------------------
async def _all_operations(store: RedisStore) -> list[Callable[[], Any]]:
    node, run = NodeId("node-1"), RunId("r")
    return [
        lambda: store.now(),
        lambda: store.add_schedule(a_schedule()),
        lambda: store.get_schedule(ScheduleId("s")),
        lambda: store.change_schedule(ScheduleId("s"), lambda s, now: s),
        lambda: store.list_schedules(ScheduleQuery()),
        lambda: store.next_due(),
        lambda: store.fire_due(plan, limit=5),
        lambda: store.add_runs([a_run()]),
        lambda: store.add_unless_active(a_sync_run()),
        lambda: store.get_run(run),
        lambda: store.list_runs(RunQuery()),
        lambda: store.claim(claim_request()),
        lambda: store.start(run, 1),
        lambda: store.finish([a_completion(_claimed_run(), _claimed_run().created_at)]),
        lambda: store.cancel_run(run, "x"),
        lambda: store.append_logs(run, 1, log_lines("x")),
        lambda: store.join(a_node(), LEASE),
        lambda: store.heartbeat(node, LEASE, clock=a_run().created_at),
        lambda: store.rescue(limit=5),
        lambda: store.append_audit(an_entry()),
        lambda: store.list_audit(AuditQuery()),
        lambda: store.counts(),
        lambda: store.epoch(),
    ]


def _claimed_run() -> Any:
    from chimes.model import replace

    base = a_run()
    return replace(base, holder=NodeId("node-1"), claimed_at=base.created_at, fence=1, attempt=1)


@pytest.mark.parametrize("how", ["FLUSHALL", "FLUSHDB"])
async def test_flushed_server_is_not_used_as_a_new_store(
    server: PrivateServer, store: RedisStore, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.add_schedule(a_schedule())
    before = await store.epoch()
    server.admin(how)
    for verb in await _all_operations(store):
        with pytest.raises(StoreLost) as caught:
            await verb()
        assert caught.value.details["code"] == "store_lost"
    said = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert len(said) == 1
    with plain_client(server.url) as client:
        assert all_keys(client) == {}, "nothing was written to it"

    # It must be initialised manually; then the lost epoch is reported.
    other = open_redis(server.url)
    await other.init()
    with pytest.raises(StoreLost):
        await store.counts()
    after = await store.epoch()
    assert "went back" in describe_rollback(before, after)
    await store.add_schedule(a_schedule())
    assert (await store.counts()).schedules == 1


async def test_store_initialised_by_another_node_is_not_adopted(
    server: PrivateServer, store: RedisStore
) -> None:
    """A node without a marker file initialised the flushed server. Nodes that used the old store do
    not adopt it, whatever its counter is, until an operator confirms it."""
    await store.add_schedule(a_schedule())
    before = await store.epoch()
    server.admin("FLUSHALL")
    async with opened(server.url) as stranger:
        for _ in range(5):
            strange = await stranger.epoch()
        await stranger.add_schedule(a_schedule())
        for _ in range(2):
            with pytest.raises(StoreLost, match="chimes store init --force") as caught:
                await store.epoch()
            assert caught.value.details["code"] == "store_lost"
            with pytest.raises(StoreLost):
                await store.add_schedule(a_schedule())
        assert (await stranger.counts()).schedules == 1

        await open_redis(server.url).init()
        assert "went back" in describe_rollback(before, await store.epoch())
        assert "went back" in describe_rollback(strange, await stranger.epoch())
        assert describe_rollback(strange, await store.epoch()) == "", "later epochs are no rollback"
        assert (await store.counts()).schedules == 1


async def test_restarted_node_does_not_adopt_a_foreign_store(
    server: PrivateServer, tmp_path: Path
) -> None:
    marker = tmp_path / "stores.json"
    async with opened(server.url, marker=marker):
        pass
    server.admin("FLUSHALL")
    async with opened(server.url, marker=tmp_path / "of-another-machine.json"):
        pass
    for _ in range(2):
        with pytest.raises(StoreLost, match="holds another store than before"):
            await open_redis(server.url, marker=marker).open()
    await open_redis(server.url, marker=tmp_path / "a-third.json").init()
    async with opened(server.url, marker=marker) as store:
        assert (await store.counts()).schedules == 0


async def test_restarted_node_detects_a_flushed_server(
    server: PrivateServer, tmp_path: Path
) -> None:
    marker = tmp_path / "new" / "stores.json"
    async with opened(server.url, marker=marker) as store:
        await store.add_schedule(a_schedule())
    async with opened(server.url, marker=marker):
        pass
    server.admin("FLUSHALL")
    with pytest.raises(StoreLost, match="chimes store init --force"):
        await open_redis(server.url, marker=marker).open()
    with plain_client(server.url) as client:
        assert all_keys(client) == {}
    await open_redis(server.url, marker=marker).init()
    async with opened(server.url, marker=marker) as store:
        assert (await store.counts()).schedules == 0
    # Another database of the server has no marker here.
    async with opened(f"{server.url}1", marker=marker):
        pass


# --- restarts -----------------------------------------------------------------------------------
async def test_contents_survive_a_server_restart(server: PrivateServer, store: RedisStore) -> None:
    schedule = await store.add_schedule(a_schedule(), an_entry())
    server.restart()
    assert await store.get_schedule(schedule.id) == schedule
    assert len(await store.list_audit(AuditQuery())) == 1
    await store.add_schedule(a_schedule(), an_entry())


async def test_kill_9_of_the_server_loses_no_acknowledged_change() -> None:
    """Ten rounds: runs are added, claimed and completed while the server is killed."""
    added: set[str] = set()
    finished: set[str] = set()
    doubled: list[str] = []

    async def work(store: RedisStore, me: str, done: asyncio.Event) -> None:
        held: dict[str, Any] = {}
        while not done.is_set():
            with contextlib.suppress(StoreUnavailable):
                now = await store.now()
                new = [
                    a_run(created_at=now, planned_at=now, available_at=now, concurrency_key=None)
                    for _ in range(3)
                ]
                await store.add_runs(new)
                added.update(run.id for run in new)
                for run in await store.claim(claim_request(me, 3)):
                    held[run.id] = run
                completions = [a_completion(run, now) for run in held.values()]
                for run in (await store.finish(completions)).accepted:
                    del held[run.id]
                    if run.id in finished and run.attempts[-1].node != me:
                        doubled.append(run.id)
                    finished.add(run.id)
            await asyncio.sleep(0)

    with start(REDIS, durable=True) as server:
        one, other = open_redis(server.url), open_redis(server.url)
        for store in (one, other):
            await store.open()
        for me, store in (("one", one), ("other", other)):
            await store.join(a_node(me), 100 * LEASE)
        done = asyncio.Event()
        workers = [
            asyncio.create_task(work(one, "one", done)),
            asyncio.create_task(work(other, "other", done)),
        ]
        for _ in range(10):
            before = len(finished)
            async with asyncio.timeout(PATIENCE):
                while len(finished) < before + 10:  # noqa: ASYNC110 it is a number that counts
                    await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill9)
            await asyncio.to_thread(server.restart)
        done.set()
        await asyncio.wait_for(asyncio.gather(*workers), PATIENCE)
        page = await one.list_runs(RunQuery(limit=None))
        runs = {run.id: run for run in page.items}
        assert added <= runs.keys()
        lost = [each for each in finished if runs[each].status is not RunStatus.SUCCEEDED]
        assert lost == []
        assert doubled == []
        assert all(len(run.attempts) <= 1 for run in runs.values())
        for store in (one, other):
            await store.close()


# --- full memory --------------------------------------------------------------------------------
async def test_server_out_of_memory_leaves_no_partial_changes(
    server: PrivateServer, store: RedisStore
) -> None:
    await store.join(a_node("node-1"), 100 * LEASE)
    now, told = await store.now(), Policy(delivery=(INBOX,))
    await store.add_runs([a_run(available_at=now, policy=told)])
    (at_work,) = await store.claim(claim_request())
    await store.load([a_delivery(available_at=now)])
    (sending,) = await store.claim_deliveries([Channel.INBOX], limit=1, lease=LEASE, overdue=LEASE)
    server.admin("CONFIG SET maxmemory 4mb")
    kept: list[str] = []
    long = {"schedule_name": "x" * 4000, "concurrency_key": "k", "concurrency_limit": 9999}

    async def fill() -> None:
        now = await store.now()
        for _ in range(2000):
            run = a_run(available_at=now, **long)
            await store.add_runs([run], an_entry())
            kept.append(run.id)

    with pytest.raises(StoreUnavailable) as caught:
        await fill()
    assert caught.value.details["code"] == "store_full"
    with plain_client(server.url) as client:
        before = all_keys(client)
        for verb in (
            lambda: store.add_runs([a_run()]),
            lambda: store.claim(claim_request(free=5)),
            lambda: store.add_schedule(a_schedule(), an_entry()),
            lambda: store.cancel_run(RunId(kept[0]), "x", an_entry()),
            lambda: store.fire_due(plan, limit=5),
            lambda: store.add_inbox(an_item()),
            lambda: store.retry_delivery(sending.id, an_entry()),
        ):
            with pytest.raises(StoreUnavailable):
                await verb()
        assert all_keys(client) == before
    # Running runs can still be completed: their work must not be repeated.
    assert (await store.heartbeat(NodeId("node-1"), LEASE, clock=at_work.created_at)).alive
    (ended,) = (await store.finish([a_completion(at_work, at_work.created_at)])).accepted
    assert ended.status is RunStatus.SUCCEEDED
    (waiting,) = (await store.list_deliveries(DeliveryQuery(run_id=at_work.id))).items
    assert waiting.state is DeliveryState.PENDING
    assert (
        len(await store.finish_deliveries([a_delivery_completion(sending, inbox=an_item())])) == 1
    )
    assert len((await store.list_inbox(InboxQuery())).items) == 1
    assert (await store.take_tokens("somebody", rate=1, burst=9)).granted == 1
    # Reads work, and writes succeed again when there is memory.
    counts = (await store.counts()).runs
    assert counts == {RunStatus.QUEUED: len(kept), RunStatus.SUCCEEDED: 1}
    server.admin("CONFIG SET maxmemory 0")
    assert len(await store.claim(claim_request(free=5))) == 5
    page = await store.list_runs(RunQuery(limit=None))
    assert {run.id for run in page.items} == {*kept, at_work.id}


# --- connections --------------------------------------------------------------------------------
async def test_flushed_scripts_are_sent_again(server: PrivateServer, store: RedisStore) -> None:
    await store.add_schedule(a_schedule())
    server.admin("SCRIPT FLUSH")
    await store.add_schedule(a_schedule())
    assert (await store.counts()).schedules == 2


async def test_cut_connections_are_reopened(server: PrivateServer, store: RedisStore) -> None:
    await store.add_schedule(a_schedule())
    server.admin("CLIENT KILL TYPE normal SKIPME yes")
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.add_schedule(a_schedule())
                break
    assert (await store.counts()).schedules >= 2


async def test_wake_ups_resume_after_a_cut_connection(
    server: PrivateServer, store: RedisStore
) -> None:
    async with opened(server.url) as other:
        async with asyncio.timeout(PATIENCE):
            seen = store.changes()
            server.admin("CLIENT KILL TYPE pubsub")
            # Wake-ups of the meantime are lost, so listening again causes one.
            await store.wait_for_work(seen, None)
            seen = store.changes()
            await other.add_runs([a_run()])
            await store.wait_for_work(seen, None)


async def test_own_change_wakes_a_node_once(server: PrivateServer, store: RedisStore) -> None:
    await until_listening(store)
    before = store.changes()
    with published_wakeups(server.url) as published:
        await store.add_runs([a_run()])
        assert len(published()) == 1
    await asyncio.sleep(0.1)  # for its own message, which must not wake it again
    # By the change itself, and by the marker after the message.
    assert store.changes() == before + 2


async def test_work_is_found_by_polling_without_pub_sub(server: PrivateServer) -> None:
    """The user may not subscribe."""
    server.admin("ACL SETUSER deaf on >pw ~* resetchannels +@all")
    deaf_url = f"redis://deaf:pw@127.0.0.1:{server.port}/0"
    async with opened(server.url) as other:
        await other.add_runs([a_run()])
        store = open_redis(deaf_url)
        await store.open()
        now = await store.now()
        await asyncio.wait_for(store.wait_for_work(store.changes(), now), PATIENCE)
        assert await store.next_available() is not None
        await store.close()


async def test_heartbeat_thread_has_its_own_connections(store: RedisStore) -> None:
    """The engine sends heartbeats from a thread with its own event loop."""
    await store.join(a_node("node-1"), LEASE)
    now = await store.now()

    def heartbeat() -> bool:
        return asyncio.run(store.heartbeat(NodeId("node-1"), LEASE, clock=now)).alive

    assert await asyncio.to_thread(heartbeat)
    assert await asyncio.to_thread(heartbeat)


async def test_store_time_is_the_server_time(store: RedisStore, server: PrivateServer) -> None:
    with plain_client(server.url) as client:
        seconds, micros = client.time()
        found = await store.now()
        later, more = client.time()
    assert seconds + micros / 1e6 <= found.timestamp() <= later + more / 1e6


# --- TLS ----------------------------------------------------------------------------------------
@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    into = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", *made.split(), *subject, *into]
    subprocess.run(command, check=True, capture_output=True)
    for path in (key, certificate, tmp_path, *tmp_path.parents):
        with contextlib.suppress(PermissionError):
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    return key, certificate


async def test_tls_with_a_private_certificate(certificate: tuple[Path, Path]) -> None:
    key, cert = certificate
    settings = {
        "tls-cert-file": str(cert),
        "tls-key-file": str(key),
        "tls-auth-clients": "no",
    }
    with start(REDIS, settings=settings) as server:
        port = free_port()
        with plain_client(server.url) as client:
            client.config_set("tls-port", str(port))
        url = f"rediss://127.0.0.1:{port}/0"
        with pytest.raises(StoreUnavailable):
            await open_redis(url).open()
        async with opened(f"{url}?ssl_ca_certs={cert}") as store:
            await store.add_schedule(a_schedule())
            assert (await store.status()).location.startswith("rediss://")
    assert ssl.OPENSSL_VERSION
