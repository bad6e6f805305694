"""`chimes worker --app` and `chimes serve --app` as real processes; acceptance tests of Catbird."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chimes import Chimes
from chimes.config import Settings
from chimes.model.ids import slot_key, slot_run_id
from chimes.model.listing import RunQuery
from chimes.model.planning import FireContext, plan
from chimes.model.run import Run, RunStatus
from chimes.triggers import Cron
from tests.sdk.inspection import eventually, runs_of, stored
from tests.sdk.process import Start, wait_until

MODULE = """
import os, time
from chimes import Chimes, Context

app = Chimes()

def note(word):
    with open("effects", "a") as file:
        file.write(word + "\\n")

@app.task
async def report(day: str = "today") -> str:
    print("a report about", day)
    note("report")
    return day

@app.task
def slow(seconds: float, context: Context) -> str:
    note("slow begins")
    time.sleep(seconds)
    note("slow ends")
    return "slept"

@app.task(isolation="process")
def where() -> int:
    return os.getpid()

@app.task(queue="mail")
async def send() -> str:
    return "sent"

flow = app.flow("pipeline")

@flow.step()
async def one(number: int) -> int:
    return number + 1

@flow.step(after=["one"])
def two(one: int) -> int:
    return one * 10

app.schedule("daily", "0 9 * * *", report, args={"day": "Monday"})
app.schedule("unseen", "0 9 1 1 *", slow, args={"seconds": 3.0}, mode="memory")
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE)


def mirror(url: str) -> Chimes:
    """The same application in this process, without a node."""
    app = Chimes(url, settings=Settings(store=url))
    names: dict[str, object] = {"__name__": "shop", "Chimes": Chimes}
    exec(MODULE.replace("app = Chimes()", ""), names | {"app": app})
    return app


def worker(start: Start, url: str, *arguments: str) -> list[str]:
    return ["worker", "--app", "shop:app", "--store", url, *arguments]


def effects(home: Path) -> list[str]:
    file = home / "effects"
    return file.read_text().splitlines() if file.exists() else []


async def ended(app: Chimes, name: str, count: int = 1) -> list[Run]:
    return await eventually(
        lambda: runs_of(app, name),
        lambda runs: sum(run.status.terminal for run in runs) >= count,
    )


async def test_one_of_ten_claims_succeeds(shared_url: str) -> None:
    apps = [mirror(shared_url) for _ in range(10)]
    for app in apps:
        await app.open()
    try:
        await apps[0].sync()
        await apps[0].reschedule_for("daily", datetime.now(UTC))
        fired = await asyncio.gather(
            *(app.runtime().services.store.fire_due(plan, limit=1) for app in apps)
        )
        made = [each for each in fired if each.claimed or each.others]
        assert len(made) == 1
        assert len(await runs_of(apps[0], "daily")) == 1
    finally:
        for app in apps:
            await app.close()


async def test_end_to_end(start: Start, shared_url: str, tmp_path: Path) -> None:
    async with mirror(shared_url) as app:
        await app.sync()
        due = await app.reschedule_for("daily", datetime.now(UTC) + timedelta(seconds=1))
        assert due.next_run_at is not None
        process = start(*worker(start, shared_url)).ready()
        (run,) = await ended(app, "daily")
        assert run.status is RunStatus.SUCCEEDED
        assert run.slot == due.next_run_at
        assert run.result == {"value": "Monday"}
        assert effects(tmp_path) == ["report"]
        after = await app.get_schedule("daily")
        assert after.next_run_at == Cron("0 9 * * *").next_after(due.next_run_at)
        assert after.last_run_at == due.next_run_at
        assert after.last_enqueued_at is not None
        assert process.stop() == 0
        assert len(await runs_of(app, "daily")) == 1


async def test_five_workers_make_one_run(start: Start, shared_url: str, tmp_path: Path) -> None:
    async with mirror(shared_url) as app:
        await app.sync()
        workers = [start(*worker(start, shared_url)) for _ in range(5)]
        for each in workers:
            each.ready()
        nodes = await app.runtime().services.store.nodes()
        assert len(nodes) == 5
        await app.reschedule_for("daily", datetime.now(UTC))
        (run,) = await ended(app, "daily")
        assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
        for each in workers:
            assert each.stop() == 0
        assert len(await runs_of(app, "daily")) == 1
        assert effects(tmp_path) == ["report"]


async def test_pause_and_resume(start: Start, shared_url: str, tmp_path: Path) -> None:
    async with mirror(shared_url) as app:
        await app.sync()
        soon = datetime.now(UTC) + timedelta(seconds=1)
        await app.reschedule_for("daily", soon)
        await app.set_schedule_enabled("daily", False)
        in_time = datetime.now(UTC) < soon
        # A pause that comes after the slot, on a busy machine, has fired it.
        before = {run.id for run in await runs_of(app, "daily")}
        assert not (in_time and before)
        process = start(*worker(start, shared_url)).ready()
        # Its slot has passed: a later run has ended, and it has none.
        handle = await app.enqueue("report", delay="2s")
        await handle.result("60s")
        assert {run.id for run in await runs_of(app, "daily")} == before
        await app.set_schedule_enabled("daily", True)
        assert {run.id for run in await runs_of(app, "daily")} == before
        await app.reschedule_for("daily", datetime.now(UTC))
        runs = await ended(app, "daily", len(before) + 1)
        assert len(runs) == len(before) + 1
        assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("spec", "zone", "now", "following"),
    [
        ("@hourly", "UTC", "2026-02-24T10:15:30", "2026-02-24T11:00:00"),
        ("@daily", "UTC", "2026-02-24T23:59:59", "2026-02-25T00:00:00"),
        ("0 9 * * *", "UTC", "2026-02-24T09:00:00", "2026-02-25T09:00:00"),
        ("*/15 * * * *", "UTC", "2026-02-24T10:14:00", "2026-02-24T10:15:00"),
        ("0 9 * * 1", "UTC", "2026-02-24T10:00:00", "2026-03-02T09:00:00"),
        ("0 9 1 * 1", "UTC", "2026-02-02T10:00:00", "2026-02-09T09:00:00"),
        # The leap second 2016-12-31T23:59:60Z is not a slot.
        ("@hourly", "UTC", "2016-12-31T23:59:59", "2017-01-01T00:00:00"),
        # 9 AM New York stays 9 AM there: 14:00 UTC in winter, 13:00 in summer.
        ("0 9 * * *", "America/New_York", "2026-03-07T15:00:00", "2026-03-08T13:00:00"),
        ("0 9 * * *", "America/New_York", "2026-10-31T14:00:00", "2026-11-01T14:00:00"),
        # Month boundaries, a leap year, and a month without a 31st.
        ("0 0 1 * *", "UTC", "2026-01-31T23:59:00", "2026-02-01T00:00:00"),
        ("0 0 29 2 *", "UTC", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 31 * *", "UTC", "2026-04-01T00:00:00", "2026-05-31T00:00:00"),
    ],
)
def test_next_run_at(spec: str, zone: str, now: str, following: str) -> None:
    app = Chimes("memory://")

    @app.task
    async def report() -> None: ...

    app.schedule("x", spec, report, timezone=zone)
    trigger = app.declarations["x"].trigger
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert trigger.next_after(moment) == datetime.fromisoformat(following).replace(tzinfo=UTC)


async def test_every_worker_computes_the_same_key(shared_url: str) -> None:
    apps = [mirror(shared_url) for _ in range(3)]
    for app in apps:
        await app.open()
    try:
        for app in apps:
            await app.sync()
        due = datetime.now(UTC).replace(microsecond=0)
        await apps[0].reschedule_for("daily", due - timedelta(hours=1))
        schedule = await stored(apps[0], "daily")
        assert schedule.next_run_at is not None
        keys = set()
        for app in apps:
            seen = await stored(app, "daily")
            assert seen.next_slot is not None
            keys.add(slot_key(seen.id, seen.next_slot))
            firing = plan(seen, FireContext(), datetime.now(UTC))
            assert firing.runs[0].id == slot_run_id(seen.id, seen.next_slot)
        assert len(keys) == 1
        (key,) = keys
        assert key.startswith(f"schedule:{schedule.id}:")
        # Fired by all three workers, there is one run.
        for app in apps:
            await app.runtime().services.store.fire_due(plan, limit=10)
        query = RunQuery(schedule_id=schedule.id)
        assert len((await apps[0].runtime().services.store.list_runs(query)).items) == 1
    finally:
        for app in apps:
            await app.close()


# --- processes ----------------------------------------------------------------------------------
async def test_tasks_flows_and_processes(start: Start, shared_url: str) -> None:
    process = start(*worker(start, shared_url, "--workers", "5")).ready()
    assert "Tasks  flow:pipeline, report, send, slow, where" in process.output
    async with mirror(shared_url) as app:
        handle = await app.enqueue("report", {"day": "x"})
        assert await handle.result("20s") == "x"
        # Its output is in the log of the run and on stdout.
        said = await app.runtime().services.store.read_logs(handle.id)
        assert [line.message for line in said] == ["a report about x"]
        pid = await (await app.enqueue("where")).result("40s")
        assert isinstance(pid, int)
        assert await (await app.flows["pipeline"].start({"number": 1})).result("60s") == {"two": 20}
        (node,) = await app.runtime().services.store.nodes()
        assert node.capacity >= 5
        assert "flow:pipeline" in node.capabilities
        assert "task:pipeline/two" in node.capabilities
    assert process.stop() == 0


async def test_sigterm_waits_for_a_running_task(
    start: Start, sqlite_url: str, tmp_path: Path
) -> None:
    process = start(*worker(start, sqlite_url)).ready()
    async with mirror(sqlite_url) as app:
        handle = await app.enqueue("slow", {"seconds": 1.5})
        wait_until(lambda: "slow begins" in effects(tmp_path), "the task to begin")
        assert process.stop() == 0
        assert effects(tmp_path) == ["slow begins", "slow ends"]
        assert await handle.result("60s") == "slept"
        assert (await handle.run()).attempt == 1


async def test_runs_of_a_killed_worker_are_rescued(
    start: Start, shared_url: str, tmp_path: Path
) -> None:
    lease = {"CHIMES_LEASE": "2s", "CHIMES_POLL_INTERVAL": "200ms"}
    first = start(*worker(start, shared_url), **lease).ready()
    async with mirror(shared_url) as app:
        handle = await app.enqueue("slow", {"seconds": 3})
        wait_until(lambda: "slow begins" in effects(tmp_path), "the task to begin")
        first.kill()
        # A longer lease, which it does not lose on a busy machine.
        second = start(*worker(start, shared_url), CHIMES_POLL_INTERVAL="200ms").ready()
        assert await handle.result("60s") == "slept"
        run = await handle.run()
        assert run.attempt == 2
        assert second.stop() == 0


async def test_memory_mode_runs_of_a_killed_worker_are_rescued(
    start: Start, shared_url: str, tmp_path: Path
) -> None:
    """Its schedule is not in the store."""
    lease = {"CHIMES_LEASE": "3s", "CHIMES_POLL_INTERVAL": "200ms"}
    first = start(*worker(start, shared_url), **lease).ready()
    assert "timed in memory" in first.output
    async with mirror(shared_url) as app:
        handle = await app.trigger_schedule("unseen")
        wait_until(lambda: "slow begins" in effects(tmp_path), "the task to begin")
        first.kill()
        second = start(*worker(start, shared_url), **lease).ready()
        assert await handle.result("60s") == "slept"
        run = await handle.run()
        assert run.attempt >= 2
        assert run.schedule_id is not None
        assert second.stop() == 0


async def test_worker_with_queue_option_claims_only_that_queue(
    start: Start, sqlite_url: str
) -> None:
    process = start(*worker(start, sqlite_url, "--queue", "mail")).ready()
    assert "Tasks  send" in process.output
    async with mirror(sqlite_url) as app:
        usual = await app.enqueue("report")
        assert await (await app.enqueue("send")).result("20s") == "sent"
        assert await usual.status() is RunStatus.QUEUED
    assert process.stop() == 0


async def test_serve_with_an_application(start: Start, shared_url: str) -> None:
    process = start(
        "serve", "--app", "shop:app", "--store", shared_url, "--port", "0", PORT="0"
    ).ready()
    base = f"http://127.0.0.1:{process.port}"
    (row,) = [each for each in _get(f"{base}/api/schedules") if each["name"] == "daily"]
    assert row["kind"] == "task"
    assert row["cron_spec"] == "0 9 * * *"
    nodes = _get(f"{base}/api/v1/nodes")["items"]
    assert "task:report" in nodes[0]["offers"]
    async with mirror(shared_url) as app:
        assert await (await app.trigger_schedule("daily")).result("20s") == "Monday"
    assert process.stop() == 0


def _get(url: str) -> object:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_serve_without_an_application_offers_no_tasks(start: Start, sqlite_url: str) -> None:
    process = start("serve", "--store", sqlite_url, "--port", "0").ready()
    nodes = _get(f"http://127.0.0.1:{process.port}/api/v1/nodes")
    assert nodes["items"][0]["offers"] == [
        *("action", "agent", "channel:apprise", "http", "message")
    ]  # type: ignore[index]
    assert process.stop() == 0


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("shop", "expected module:name"),
        ("shpo:app", "did you mean shop?"),
        ("shop:ap", "did you mean app?"),
        ("shop:report", "not a Chimes application"),
        ("broken:app", "cannot be imported"),
    ],
)
def test_application_that_cannot_be_loaded(
    start: Start, sqlite_url: str, tmp_path: Path, path: str, why: str
) -> None:
    (tmp_path / "broken.py").write_text("import not_there_at_all")
    process = start("worker", "--app", path, "--store", sqlite_url)
    assert process.wait() == 2
    assert why in process.output
    assert "Traceback" not in process.output


def test_worker_needs_an_application(start: Start, sqlite_url: str) -> None:
    process = start("worker", "--store", sqlite_url)
    assert process.wait() == 2
    assert "--app MODULE:NAME" in process.output


def test_flags_override_the_environment_and_the_environment_the_code(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "coded.py").write_text(
        MODULE.replace("app = Chimes()", f"app = Chimes('sqlite:///{tmp_path}/code.db')")
    )
    code = start("worker", "--app", "coded:app").ready()
    assert f"{tmp_path}/code.db" in code.output
    there = f"sqlite:///{tmp_path}/environment.db"
    environment = start("worker", CHIMES_APP="coded:app", CHIMES_STORE=there).ready()
    assert f"{tmp_path}/environment.db" in environment.output
    flag = start(
        "worker", "--app", "coded:app", "--store", f"sqlite:///{tmp_path}/flag.db",
        CHIMES_STORE=there,
    ).ready()  # fmt: skip
    assert f"{tmp_path}/flag.db" in flag.output
    for process in (code, environment, flag):
        assert process.stop() == 0


def test_app_run_in_a_script(tmp_path: Path, sqlite_url: str) -> None:
    """`app.run()` handles signals and drains like a worker."""
    import subprocess
    import sys

    (tmp_path / "script.py").write_text(
        MODULE.replace("app = Chimes()", f"app = Chimes({sqlite_url!r})")
        + "\nprint('starting', flush=True)\napp.run()\nprint('over', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_until(lambda: (tmp_path / "chimes.db").exists(), "the store")
        wait_until(lambda: _joined(sqlite_url), "the node")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert output.startswith("starting\n")
    assert output.endswith("over\n")


def _joined(url: str) -> bool:
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        return bool(connection.execute("SELECT count(*) FROM nodes").fetchone()[0])
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
