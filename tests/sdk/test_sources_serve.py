"""Sources with real `chimes serve` processes: slots, reloads, and killed nodes."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.run import AttemptEnd, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import SyncTarget
from chimes.runtime.composition import Services, open_local
from tests.sdk.conftest import SHARED, store_url
from tests.sdk.inspection import eventually
from tests.sdk.process import Start, Worker, wait_until
from tests.targets.task_calls import alive

MODULE = """
import os, time
from pathlib import Path

def counts(source, collection, config, state):
    n = (state or {"n": 0})["n"] + 1
    print("number", n)
    return {"n": n}

def waits(source, collection, config, state):
    Path(f"pid-{collection}-{os.getpid()}").touch()
    print(f"{config['word']} begins with {state}")
    while not Path("go").exists():
        time.sleep(0.01)
    return {"word": config["word"]}
"""
EVERY_SECOND = "0/1 * * ? * * *"
QUICK = {"CHIMES_LEASE": "3s", "CHIMES_POLL_INTERVAL": "200ms", "CHIMES_SHUTDOWN_GRACE": "2s"}


def write(folder: Path, **sources: Any) -> None:
    (folder / "shop.py").write_text(MODULE)
    draft = folder / "chimes.yaml.new"
    draft.write_text(json.dumps({"sources": sources}))
    draft.rename(folder / "chimes.yaml")


def python(function: str, *collections: Any, **config: Any) -> dict[str, Any]:
    return {
        "driver": "python",
        "config": {"callable": f"shop:{function}", **config},
        "collections": list(collections),
    }


def serve(start: Start, url: str, *more: str, **environment: str) -> Worker:
    arguments = ("serve", "--port", "0", "--log-format", "json", "--store", url, *more)
    return start(*arguments, **(QUICK | environment))


def call(node: Worker, method: str, path: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{node.port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def log_line(node: Worker, event: str) -> dict[str, Any]:
    """The log line of the node with this event."""

    def look() -> dict[str, Any] | None:
        lines = (json.loads(line) for line in node.output.splitlines() if line.startswith("{"))
        return next((line for line in lines if event in line["event"]), None)

    return wait_until(look, event)


@asynccontextmanager
async def store_of(url: str) -> AsyncIterator[Services]:
    async with open_local(Settings(store=url)) as services:
        yield services


async def schedules(services: Services) -> dict[str, Schedule]:
    page = await services.store.list_schedules(ScheduleQuery(namespace="sync", limit=100))
    return {each.name: each for each in page.items}


async def runs(services: Services, *statuses: RunStatus) -> list[Run]:
    query = RunQuery(statuses=statuses, limit=1000, descending=False)
    return list((await services.store.list_runs(query)).items)


def pids(folder: Path, collection: str = "orders") -> list[int]:
    return [int(each.name.split("-")[2]) for each in folder.glob(f"pid-{collection}-*")]


@pytest.fixture(params=(*SHARED, "redis"))
def shared_url(request: pytest.FixtureRequest) -> str:
    """Tasks through the EventNative API."""
    return store_url(request, request.param)


async def test_two_nodes_create_one_task_per_slot(
    tmp_path: Path, start: Start, shared_url: str
) -> None:
    write(tmp_path, shop=python("counts", {"name": "orders", "schedule": EVERY_SECOND}))
    nodes = [serve(start, shared_url), serve(start, shared_url)]
    for node in nodes:
        node.ready()
    async with store_of(shared_url) as services:
        ended = await eventually(
            lambda: runs(services, RunStatus.SUCCEEDED), lambda found: len(found) >= 6
        )
        found = await schedules(services)
        everything = await runs(services)
        state = await services.store.get_checkpoint("sync:shop#orders")
    assert list(found) == ["shop/orders"]
    assert max(Counter(run.slot for run in everything).values()) == 1
    assert max(Counter(run.id for run in everything).values()) == 1
    assert all(run.attempt == 1 for run in ended)
    # On a very slow machine slots may overlap; then they are skipped.
    assert {run.status for run in everything} <= {
        RunStatus.SUCCEEDED, RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.SKIPPED
    }  # fmt: skip
    assert state is not None
    assert json.loads(state.value)["n"] >= 6


async def test_node_with_an_older_file_skips_new_collections(
    tmp_path: Path, start: Start, shared_url: str
) -> None:
    """A new file is deployed node by node; the older one has the same source."""
    write(tmp_path, shop=python("counts", "orders"))
    older = serve(start, shared_url).ready()
    new = {"name": "new", "schedule": "@yearly"}
    write(tmp_path, shop=python("counts", "orders", new))
    newer = serve(start, shared_url).ready()
    async with store_of(shared_url) as services:

        async def ended(number: int) -> list[Run]:
            return await eventually(
                lambda: runs(services, RunStatus.SUCCEEDED, RunStatus.FAILED),
                lambda found: len(found) == number,
            )

        for number in range(1, 9):
            # The node with the older file knows the pair from the others.
            call((older, newer)[number % 2], "POST", "/tasks?source=shop&collection=new")
            assert [run.error for run in await ended(number)] == [""] * number
        assert set(await schedules(services)) == {"shop/new"}


async def test_sighup_reloads_the_file(tmp_path: Path, start: Start, sqlite_url: str) -> None:
    write(
        tmp_path,
        shop=python("waits", {"name": "orders", "schedule": "0 0 1 1 *"}, "users", word="old"),
        gone=python("counts", {"name": "all", "schedule": "@daily"}),
    )
    node = serve(start, sqlite_url).ready()
    async with store_of(sqlite_url) as services:
        first = await schedules(services)
        assert set(first) == {"shop/orders", "gone/all"}
        task = call(node, "POST", "/tasks?source=shop&collection=orders")["task_id"]
        await eventually(lambda: runs(services, RunStatus.RUNNING), len)
        wait_until(lambda: pids(tmp_path), "the task")
        # An invalid file changes nothing.
        write(tmp_path, shop=python("waits", {"name": "orders", "schedule": "never"}))
        os.kill(node.pid, signal.SIGHUP)
        line = log_line(node, "the configuration file is invalid")
        assert "sources.shop.collections[0].schedule: " in line["error"]
        assert line["level"] == "error"
        assert await schedules(services) == first
        # An unchanged schedule keeps its slot, one is new, one is deleted.
        write(
            tmp_path,
            shop=python(
                "waits",
                {"name": "orders", "schedule": "0 0 1 1 *"},
                {"name": "users", "schedule": "@hourly", "priority": 100},
                word="new",
            ),
        )
        os.kill(node.pid, signal.SIGHUP)
        line = log_line(node, "the sources were reloaded")
        assert line["schedules"] == {"created": 1, "unchanged": 1, "deleted": 1}
        second = await schedules(services)
        assert set(second) == {"shop/orders", "shop/users"}
        assert second["shop/orders"] == first["shop/orders"]
        assert second["shop/users"].priority == 100
        # Running tasks continue with their old configuration.
        (tmp_path / "go").touch()
        await eventually(lambda: runs(services, RunStatus.SUCCEEDED), len)
        call(node, "POST", "/tasks?source=shop&collection=users")
        await eventually(lambda: runs(services, RunStatus.SUCCEEDED), lambda found: len(found) == 2)
        states = [
            await services.store.get_checkpoint(SyncTarget(source="shop", collection=name).key)
            for name in ("orders", "users")
        ]
    assert [json.loads(each.value)["word"] for each in states if each] == ["old", "new"]
    assert task.startswith("shop_orders_")
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(node, "POST", "/tasks?source=gone&collection=all")
    refused.value.close()
    assert refused.value.code == 400
    assert node.stop() == 0


async def test_task_of_a_killed_node_is_retried_by_another(
    tmp_path: Path, start: Start, postgres_url: str
) -> None:
    """The same run has one more attempt, and the first attempt no longer runs."""
    write(tmp_path, shop=python("waits", "orders", word="w"))
    async with store_of(postgres_url) as services:
        first = serve(start, postgres_url).ready()
        task = call(first, "POST", "/tasks?source=shop&collection=orders")["task_id"]
        [old] = wait_until(lambda: pids(tmp_path), "the first attempt")
        await services.store.set_checkpoint("sync:shop#orders", '{"from": "before"}')
        second = serve(start, postgres_url).ready()
        first.kill()
        wait_until(lambda: not alive(old), "the end of the first attempt", within=5)
        new = wait_until(lambda: set(pids(tmp_path)) - {old}, "the second attempt")
        assert not alive(old)
        assert call(second, "POST", "/tasks?source=shop&collection=orders")["task_id"] == task
        (tmp_path / "go").touch()
        [run] = await eventually(lambda: runs(services, RunStatus.SUCCEEDED), len)
        lines = [entry.message for entry in await services.store.read_logs(run.id)]
        state = await services.store.get_checkpoint("sync:shop#orders")
        assert len(await runs(services)) == 1
    assert task == f"shop_orders_{run.id}"
    assert [attempt.end for attempt in run.attempts] == [AttemptEnd.LOST, AttemptEnd.SUCCEEDED]
    assert "w begins with {'from': 'before'}" in lines
    assert lines[-1].startswith("FINISHED SUCCESSFULLY")
    assert state is not None
    assert json.loads(state.value) == {"word": "w"}
    assert len(new) == 1


def test_killed_node_leaves_no_processes(tmp_path: Path, start: Start, sqlite_url: str) -> None:
    """Several programs with child processes, because the order of their exits is a race."""
    program = (
        'sleep 600 & touch "pid-$CHIMES_COLLECTION-$!"; touch "pid-$CHIMES_COLLECTION-$$"; wait'
    )
    names = [f"c{number}" for number in range(4)]
    source = {"driver": "command", "config": {"command": ["sh", "-c", program]}}
    write(tmp_path, shop=source | {"collections": [{"name": name} for name in names]})
    node = serve(start, sqlite_url).ready()
    for name in names:
        call(node, "POST", f"/tasks?source=shop&collection={name}")
    started = wait_until(
        lambda: len(found := pids(tmp_path, "*")) == 2 * len(names) and found, "the tasks"
    )
    node.kill()
    wait_until(lambda: not any(map(alive, started)), "the end of all processes", within=10)


async def test_shutdown_grace_ends_running_tasks(
    tmp_path: Path, start: Start, sqlite_url: str
) -> None:
    write(tmp_path, shop=python("waits", "orders", word="w"))
    node = serve(start, sqlite_url, CHIMES_SHUTDOWN_GRACE="300ms").ready()
    call(node, "POST", "/tasks?source=shop&collection=orders")
    [pid] = wait_until(lambda: pids(tmp_path), "the task")
    assert node.stop() == 0
    assert not alive(pid)


async def test_cancel_through_the_api_ends_the_process(
    tmp_path: Path, start: Start, sqlite_url: str
) -> None:
    write(tmp_path, shop=python("waits", "orders", word="w"))
    node = serve(start, sqlite_url).ready()
    task = call(node, "POST", "/tasks?source=shop&collection=orders")["task_id"]
    [pid] = wait_until(lambda: pids(tmp_path), "the task")
    call(node, "POST", f"/tasks/{task}/cancel")
    wait_until(lambda: not alive(pid), "the end of the process", within=10)
    assert wait_until(
        lambda: call(node, "GET", f"/tasks/{task}")["status"] == "CANCELED", "the status"
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            python("counts", {"name": "a", "shedule": "@daily"}),
            "sources.shop.collections[0].shedule: unknown key 'shedule'; did you mean schedule?",
        ),
        (python("count", "a"), "sources.shop.config.callable: shop has no 'count'; did you mean"),
    ],
)
def test_node_does_not_start_with_an_invalid_file(
    tmp_path: Path, start: Start, source: dict[str, Any], error: str
) -> None:
    write(tmp_path, shop=source)
    node = serve(start, "memory://")
    assert node.wait() == 2
    assert error in node.output


async def test_source_of_another_node_is_kept_while_it_lives(
    tmp_path: Path, start: Start, sqlite_url: str
) -> None:
    """With different files, a node deletes only schedules that no live node has."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder, name in ((mine, "shop"), (theirs, "files")):
        folder.mkdir()
        write(folder, **{name: python("counts", {"name": "all", "schedule": "@daily"})})
    other = serve(start, sqlite_url, "--config", str(theirs / "chimes.yaml")).ready()
    serve(start, sqlite_url, "--config", str(mine / "chimes.yaml")).ready()
    async with store_of(sqlite_url) as services:
        assert set(await schedules(services)) == {"shop/all", "files/all"}
        other.kill()
        await eventually(lambda: schedules(services), lambda found: set(found) == {"shop/all"})


def ended(node: Worker, task: str) -> str:
    def look() -> str:
        status: str = call(node, "GET", f"/tasks/{task}")["status"]
        return status if status not in ("SCHEDULED", "RUNNING") else ""

    return wait_until(look, task)


def test_example_configuration_works(start: Start, sqlite_url: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "sources" / "chimes.yaml"
    node = serve(start, sqlite_url, "--config", str(example)).ready()
    for source, collection, line in (
        ("weather", "cities", "weather: Oslo, 3 days"),
        ("disk", "usage", "usage:"),
    ):
        task = call(node, "POST", f"/tasks?source={source}&collection={collection}")["task_id"]
        status = ended(node, task)
        logs = call(node, "GET", f"/tasks/{task}/logs")["logs"]
        assert status == "SUCCESS", logs
        assert any(line in entry["message"] for entry in logs)
        assert "FINISHED SUCCESSFULLY in [" in logs[-1]["message"]
    assert node.stop() == 0
