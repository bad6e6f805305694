"""`chimes apply`, schedules of sources in the store, and reload over the API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chimes.clock import SystemClock
from chimes.config import Settings, load_settings, store_location
from chimes.errors import ConfigError, Conflict, InvalidInput, NotAllowed
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import NodeId
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Misfire, Overlap, Policy, RunDefaults
from chimes.model.schedule import Schedule
from chimes.model.sync import Sources
from chimes.runtime.apply_config import (
    PairCapabilities,
    SourceFile,
    SourceSchedules,
    signal_reload,
)
from chimes.runtime.composition import Services, build_services, build_store, merge_capabilities
from chimes.services.system import SourceRegistry
from chimes.targets.sync.config import read_sources
from tests.builders import NOW, a_node
from tests.forking import run_chimes
from tests.sdk.process import CHIMES, Start, Worker, wait_until

ADMIN = Actor()


def raw(**collections: Any) -> dict[str, Any]:
    """Sources by their collections: `{name: schedule}`."""
    return {
        source: {
            "driver": "command",
            "config": {"command": ["true"]},
            "collections": [
                {"name": name, **({"schedule": schedule} if schedule else {})}
                for name, schedule in names.items()
            ],
        }
        for source, names in collections.items()
    }


class Rig:
    """The schedules of sources on a store."""

    def __init__(self, services: Services, known: SourceRegistry) -> None:
        self.services = services
        self.known = known
        self.schedules = SourceSchedules(services, Settings())

    async def write(self, plain: dict[str, Any]) -> dict[str, str]:
        self.known.put(read_sources(plain, "", NOW))
        changes = await self.schedules.write(self.known.now)
        return {change.name: change.what for change in changes}

    async def plan(self, plain: dict[str, Any]) -> dict[str, str]:
        sources: Sources = read_sources(plain, "", NOW)
        return {each.name: each.what for each in await self.schedules.plan(sources)}

    async def stored(self) -> dict[str, Schedule]:
        query = ScheduleQuery(namespace="sync", limit=100)
        page = await self.services.store.list_schedules(query)
        return {each.name: each for each in page.items}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    settings = Settings(store="memory://")
    clock = SystemClock()
    store = build_store(store_location(settings), clock)
    await store.open()
    known = SourceRegistry()
    services = await build_services(
        settings, store, clock, capabilities=lambda: PairCapabilities(known), sources=known
    )
    yield Rig(services, known)
    await store.close()


async def test_scheduled_collections_get_a_schedule(rig: Rig) -> None:
    found = await rig.write(raw(shop={"orders": "@daily", "users": ""}))
    assert found == {"shop/orders": "created"}
    schedule = (await rig.stored())["shop/orders"]
    policy = schedule.policy
    assert (policy.misfire, policy.overlap) == (Misfire.SKIP, Overlap.SKIP)
    assert (policy.concurrency_key, policy.concurrency_limit) == ("sync:shop#orders", 1)
    assert policy.max_retries == 0
    assert str(schedule.owner) == "system:default"
    assert schedule.priority == 200


async def test_only_changed_collections_are_updated(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily", "users": "@hourly"}))
    before = await rig.stored()
    again = await rig.write(raw(shop={"orders": "@daily", "users": "@weekly"}))
    assert again == {"shop/orders": "unchanged", "shop/users": "updated"}
    after = await rig.stored()
    assert after["shop/orders"] == before["shop/orders"]
    assert after["shop/users"].id == before["shop/users"].id
    assert after["shop/users"].next_run_at != before["shop/users"].next_run_at


async def test_pause_survives_apply(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily"}))
    schedule = (await rig.stored())["shop/orders"]
    await rig.services.schedules.pause(ADMIN, schedule.id)
    assert await rig.write(raw(shop={"orders": "@hourly"})) == {"shop/orders": "updated"}
    assert not (await rig.stored())["shop/orders"].enabled


async def test_removed_collection_is_deleted(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily", "users": "@daily"}, files={"all": "@daily"}))
    first = await rig.stored()
    wanted = raw(shop={"orders": "@daily", "users": ""})
    expected = {"files/all": "deleted", "shop/orders": "unchanged", "shop/users": "deleted"}
    assert await rig.plan(wanted) == expected
    assert await rig.stored() == first
    assert await rig.write(wanted) == expected
    assert set(await rig.stored()) == {"shop/orders"}
    # Added again it is a new schedule with its own slots.
    assert (await rig.write(raw(shop={"orders": "@daily", "users": "@daily"})))[
        "shop/users"
    ] == "created"
    assert (await rig.stored())["shop/users"].id != first["shop/users"].id


async def test_source_of_another_node_is_kept(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily"}, files={"all": "@daily"}))
    now = await rig.services.store.now()
    node = a_node("other", capabilities=("sync:files",), started_at=now)
    await rig.services.store.join(node, Settings().lease)
    assert await rig.write(raw(shop={"orders": ""})) == {
        "files/all": "kept",
        "shop/orders": "deleted",
    }
    changes = await rig.schedules.plan(rig.known.now, own_node="other")
    assert [change.what for change in changes] == ["deleted"]


async def test_foreign_schedules_in_the_namespace_are_kept(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily"}))
    schedule = (await rig.stored())["shop/orders"]
    await rig.services.schedules.create(
        ADMIN, replace(schedule, id=type(schedule.id)(""), name="by hand")
    )
    assert await rig.write(raw(shop={"orders": "@daily"})) == {"shop/orders": "unchanged"}
    assert set(await rig.stored()) == {"shop/orders", "by hand"}


async def join_node(rig: Rig, name: str, *keys: str) -> None:
    """Joins a node with these pairs of source and collection."""
    policy = RunDefaults(policy=Policy(), priority=200)
    capabilities = tuple(sorted({key.partition("#")[0] for key in keys}))
    node = a_node(name, capabilities=capabilities, defaults=dict.fromkeys(keys, policy))
    await rig.services.store.join(node, Settings().lease)


async def test_nodes_with_different_collections_do_not_interfere(rig: Rig) -> None:
    """A rolling change of files: a node with the older file keeps schedules of the newer."""
    older = read_sources(raw(shop={"orders": "@daily"}), "", NOW)
    newer = raw(shop={"orders": "@hourly", "new": "@daily"})
    await join_node(rig, "older", "sync:shop#orders")
    await join_node(rig, "newer", "sync:shop#orders", "sync:shop#new")
    await rig.write(newer)
    before = await rig.stored()
    await rig.schedules.follow_nodes(older, own_node="older")
    assert await rig.stored() == before
    changes = {each.name: each.what for each in await rig.schedules.plan(older, "older")}
    assert changes == {"shop/new": "kept", "shop/orders": "updated"}
    # A deleted schedule is created again; one that no node has is deleted.
    await rig.services.schedules.delete(ADMIN, before["shop/new"].id)
    await rig.schedules.follow_nodes(rig.known.now, own_node="newer")
    assert set(await rig.stored()) == {"shop/new", "shop/orders"}
    await rig.services.store.leave(NodeId("newer"))
    await rig.schedules.follow_nodes(older, own_node="older")
    assert set(await rig.stored()) == {"shop/orders"}


async def test_nodes_do_not_undo_each_other(rig: Rig) -> None:
    """A node without workers creates no schedules that others would delete; a node whose file has
    the collection without a schedule deletes it only once."""
    files = read_sources(raw(files={"all": "@daily"}), "", NOW)
    rig.known.put(files)
    await rig.schedules.follow_nodes(files)
    assert await rig.stored() == {}
    await join_node(rig, "worker", "sync:files#all")
    await rig.schedules.follow_nodes(files)
    before = await rig.stored()
    assert set(before) == {"files/all"}
    without = read_sources(raw(files={"all": ""}), "", NOW)
    await rig.schedules.follow_nodes(without)
    assert await rig.stored() == before
    assert [each.what for each in await rig.schedules.write(without)] == ["deleted"]


# --- reload ---


def a_file(folder: Path, plain: Any) -> SourceFile:
    (folder / "chimes.yaml").write_text(json.dumps({"sources": plain}))
    loaded = load_settings(environ={}, config_file=folder / "chimes.yaml")
    return SourceFile(loaded, SystemClock())


async def test_invalid_file_changes_nothing(tmp_path: Path) -> None:
    file = a_file(tmp_path, raw(shop={"orders": "@daily"}))
    before = file.known.now
    for text in ("{", "[]", '{"sources": {"shop": 1}}', '{"sorces": {}}'):
        (tmp_path / "chimes.yaml").write_text(text)
        with pytest.raises(ConfigError):
            await file.reload()
        assert file.known.now is before
    (tmp_path / "chimes.yaml").unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        await file.reload()
    assert file.known.now is before


def attached(rig: Rig, folder: Path, lease: str = "1s") -> SourceFile:
    """A node with the file of the folder."""
    environ = {"CHIMES_LEASE": lease}
    loaded = load_settings(environ=environ, config_file=folder / "chimes.yaml")
    file = SourceFile(loaded, SystemClock())

    async def nothing() -> None: ...

    file.attach(rig.schedules, announce=nothing, own_node=lambda: "own")
    return file


async def test_rejected_schedule_applies_nothing(rig: Rig, tmp_path: Path) -> None:
    """All schedules are validated before any is written."""
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    file = attached(rig, tmp_path)
    rig.known.put(file.known.now)
    await file.begin()
    before, stored = file.known.now, await rig.stored()
    a_file(tmp_path, raw(shop={"aaa": "@daily", "bad": "@every 50ms"}))
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match="collection shop/bad: "):
            await file.reload(dry_run=dry_run)
        assert file.known.now is before
        assert await rig.stored() == stored


async def test_reconciling_continues_after_a_rejection(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cause, for example a quota, may have been removed."""
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    file = attached(rig, tmp_path, lease="1s")
    rig.known.put(file.known.now)
    await join_node(rig, "own", "sync:shop#orders")
    refused = asyncio.Event()
    really = rig.schedules.follow_nodes

    async def follow_nodes(*given: Any) -> None:
        if not refused.is_set():
            refused.set()
            raise InvalidInput("too many schedules", field="owner", code="quota")
        await really(*given)

    monkeypatch.setattr(rig.schedules, "follow_nodes", follow_nodes)
    monkeypatch.setattr("chimes.runtime.apply_config.RETRY_PAUSE", 0.01)
    keeping = asyncio.create_task(file.reconcile())
    try:
        async with asyncio.timeout(20):
            while not await rig.stored():
                await asyncio.sleep(0.02)
                assert not keeping.done()
    finally:
        keeping.cancel()
    assert "the schedules of the sources were rejected" in caplog.text


async def test_only_an_admin_may_reload(tmp_path: Path) -> None:
    file = a_file(tmp_path, raw(shop={"orders": "@daily"}))
    with pytest.raises(NotAllowed):
        await file.known.reload(Actor(role=Role.OPERATOR))
    assert (await file.known.reload(ADMIN)).file == str(tmp_path / "chimes.yaml")
    with pytest.raises(Conflict, match="no configuration file"):
        await SourceRegistry().reload(ADMIN)


def test_warning_for_a_readable_file_with_secrets(tmp_path: Path) -> None:
    plain = raw(shop={"orders": ""})
    file = a_file(tmp_path, plain)
    (tmp_path / "chimes.yaml").chmod(0o644)
    assert file.warnings == ()
    plain["shop"]["config"]["api_token"] = "tok-123"
    file = a_file(tmp_path, plain)
    assert "chmod 600" in file.warnings[0]
    assert "tok-123" in file.secrets
    (tmp_path / "chimes.yaml").chmod(0o600)
    assert file.warnings == ()


async def test_node_publishes_its_pairs(rig: Rig) -> None:
    await rig.write(raw(shop={"orders": "@daily", "users": ""}))
    pairs = PairCapabilities(rig.known)
    assert list(pairs) == ["sync:shop#orders", "sync:shop#users"]
    assert len(pairs) == 2
    own = {"task:a": pairs["sync:shop#users"], "sync:shop#users": pairs["sync:shop#users"]}
    joined = merge_capabilities(own, pairs)
    assert sorted(joined) == ["sync:shop#orders", "sync:shop#users", "task:a"]
    assert len(joined) == 3
    assert joined["sync:shop#orders"].priority == 200
    assert joined["task:a"] is own["task:a"]
    with pytest.raises(KeyError):
        joined["sync:shop#none"]


# --- command ---


def apply(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return run_chimes(
        ["apply", *arguments], cwd=folder, env=kept | {"CHIMES_PORT": "1"} | environment
    )


def ask(node: Worker, path: str, method: str = "GET", token: str = "") -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{node.port}{path}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_apply_without_a_server_writes_the_store(tmp_path: Path) -> None:
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    done = apply(tmp_path, "--dry-run")
    assert (done.returncode, done.stdout) == (0, "+\tshop/orders\tcreated\n")
    assert apply(tmp_path).stdout == "+\tshop/orders\tcreated\n"
    assert apply(tmp_path).stdout == " \tshop/orders\tunchanged\n"
    a_file(tmp_path, raw(shop={"users": "@daily"}))
    done = apply(tmp_path, "--json")
    assert [(each["name"], each["what"]) for each in json.loads(done.stdout)] == [
        ("shop/orders", "deleted"),
        ("shop/users", "created"),
    ]


def test_exit_codes_of_invalid_files(tmp_path: Path) -> None:
    done = apply(tmp_path)
    assert done.returncode == 2
    assert "No chimes.yaml found" in done.stderr
    (tmp_path / "chimes.yaml").write_text("sources: {shop: {driver: pithon}}")
    done = apply(tmp_path)
    assert done.returncode == 2
    assert "sources.shop.driver: unknown 'pithon'; did you mean python?" in done.stderr
    done = apply(tmp_path, "--url", "http://127.0.0.1:1")
    assert done.returncode == 2
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    assert apply(tmp_path, "--url", "http://127.0.0.1:1").returncode == 7


def test_apply_reloads_the_server(tmp_path: Path, start: Start) -> None:
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    environment = {"CHIMES_ADMIN_TOKEN": "token-of-the-admin"}
    node = start("serve", "--port", "0", **environment).ready()
    server = {"CHIMES_PORT": str(node.port)}
    a_file(tmp_path, raw(shop={"orders": "@daily"}, files={"all": "@hourly", "some": ""}))
    assert apply(tmp_path, **server).returncode == 4
    done = apply(tmp_path, "--dry-run", **server, **environment)
    assert done.stdout == "+\tfiles/all\tcreated\n \tshop/orders\tunchanged\n", done.stderr
    status, found = ask(node, "/api/v1/sources", token="token-of-the-admin")
    assert (status, [each["id"] for each in found["items"]]) == (200, ["shop"])
    done = apply(tmp_path, **server, **environment)
    assert done.stdout == "+\tfiles/all\tcreated\n \tshop/orders\tunchanged\n", done.stderr
    status, found = ask(node, "/api/v1/sources", token="token-of-the-admin")
    assert found["file"] == str(tmp_path / "chimes.yaml")
    assert found["items"][1] == {
        "id": "files",
        "driver": "command",
        "collections": [
            {
                "name": "all",
                "trigger": {"kind": "cron", "expression": "@hourly"},
                "priority": 200,
                "timeout": "1h0m0s",
            },
            {"name": "some", "trigger": None, "priority": 200, "timeout": "1h0m0s"},
        ],
    }
    # The server uses another file.
    other = tmp_path / "other"
    other.mkdir()
    a_file(other, raw(shop={"orders": ""}))
    done = apply(other, **server, **environment)
    assert done.returncode == 5
    assert f"uses {tmp_path / 'chimes.yaml'}, not {other / 'chimes.yaml'}" in done.stderr
    (tmp_path / "chimes.yaml").write_text("sources: 5")
    status, problem = ask(node, "/api/v1/sources/reload", "POST", "token-of-the-admin")
    assert (status, problem["code"]) == (422, "bad_config")
    assert "sources: expected" in problem["detail"]
    assert node.stop() == 0


def test_apply_signals_local_nodes(tmp_path: Path, start: Start) -> None:
    a_file(tmp_path, raw(shop={"orders": "@daily"}))
    # Local nodes are found by their command lines.
    node = start("serve", "--port", "0", "--log-format", "json", executed=True).ready()
    a_file(tmp_path, raw(shop={"orders": "@hourly"}))
    done = apply(tmp_path)
    assert done.stdout == "~\tshop/orders\tupdated\n"
    assert f"-{node.pid}-" in done.stderr.partition("Reloaded by:")[2]
    ended = subprocess.Popen(["true"])
    ended.wait(60)
    strange = ["odd", f"{os.uname().nodename}-{ended.pid}-ab", f"elsewhere-{node.pid}-ab"]
    assert signal_reload([*strange, f"{os.uname().nodename}-{os.getpid()}-ab"]) == []
    wait_until(lambda: "the sources were reloaded" in node.output, "the reload")
    assert node.stop() == 0


def test_doctor_checks_the_sources(tmp_path: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}

    def doctor() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHIMES, "doctor"],
            cwd=tmp_path,
            env=kept | {"CHIMES_PORT": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    a_file(tmp_path, raw(shop={"orders": "@daily", "users": ""}))
    assert "✓\tsources\t1 with 2 collections" in doctor().stdout
    (tmp_path / "chimes.yaml").write_text("sources: {shop: {drver: python}}")
    done = doctor()
    assert done.returncode == 9
    assert "✕\tsources\tchimes.yaml: sources.shop.drver: unknown key 'drver'" in done.stdout
