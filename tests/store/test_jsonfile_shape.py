"""jobs.json has the format of Ksana: its files load, and manual edits are applied."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.planning import plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import AttemptEnd, Reason, RunStatus
from chimes.model.schedule import apply_edit, delete_schedule, pause_schedule
from chimes.model.target import SyncTarget, Target, TaskTarget
from chimes.store.jsonfile import JsonFileStore
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every, Once
from tests.builders import (
    FLOW,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    SYNC,
    TASK,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    claim_request,
    due_schedule,
    full_run,
    full_schedule,
    log_lines,
    with_definition,
)
from tests.store.jsonfiles import KSANA_FILE, document, dumped, edit, job, opened
from tests.tables import each_row

BEFORE_SAMPLE = datetime(2025, 9, 19, 11, 1, tzinfo=UTC)
KSANA_KEYS = [
    *("id", "name", "enabled", "type", "http", "schedule", "timeout", "max_retries"),
    *("retry_backoff", "last_run_at", "next_run_at", "last_status", "last_error"),
]


def written(directory: Path, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "jobs.json").write_text(text, encoding="utf-8")
    return directory


def write_jobs(directory: Path, *jobs: dict[str, Any]) -> Path:
    data = {"version": 1, "updated_at": "2025-09-19T11:00:00Z", "jobs": list(jobs)}
    return written(directory, json.dumps(data))


def a_ksana_job(**given: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "name": "a job",
        "enabled": True,
        "type": "http",
        "http": {"method": "POST", "url": "http://127.0.0.1:9/x", "headers": {}, "body": ""},
        "schedule": {"kind": "every", "every": "5m"},
    } | given


async def get_schedule(store: JsonFileStore, job_id: str = "a") -> Any:
    found = await store.get_schedule(ScheduleId(job_id))
    assert found is not None
    return found


async def test_ksana_file_loads(tmp_path: Path) -> None:
    async with opened(written(tmp_path, KSANA_FILE), SettableClock(BEFORE_SAMPLE)) as store:
        ping = await get_schedule(store, "uuid-1")
        assert (ping.namespace, ping.name, ping.enabled) == ("ksana", "ping service", True)
        assert (ping.target.method, ping.target.url) == ("GET", "https://example.com/ping")
        assert ping.target.headers == {"X-Token": "abc"}
        assert (ping.trigger.every, ping.trigger.jitter) == (5 * MINUTE, 5 * SECOND)
        assert ping.next_slot == ping.next_run_at == datetime(2025, 9, 19, 11, 5, tzinfo=UTC)
        policy = ping.policy
        assert (policy.misfire, policy.misfire_grace) == (Misfire.SKIP, SECOND)
        assert (policy.overlap, policy.pause_on_gone) == (Overlap.SKIP, False)
        assert (policy.timeout, policy.max_retries) == (10 * SECOND, 3)
        assert policy.retry_backoff == 5 * SECOND
        assert ping.created_at == datetime(2025, 9, 19, 11, tzinfo=UTC)
        assert (await store.status()).degraded == ""


async def test_ksana_file_is_written_back_compatible(tmp_path: Path) -> None:
    async with opened(written(tmp_path, KSANA_FILE), SettableClock(BEFORE_SAMPLE)) as store:
        before = await dumped(store)
    data = document(tmp_path)
    assert (data["version"], data["updated_at"]) == (1, "2025-09-19T11:01:00Z")
    (ping,) = data["jobs"]
    ours = ping.pop("chimes")
    assert list(ping) == KSANA_KEYS
    headers = ping["http"]["headers"]
    assert headers["X-Token"].startswith("chimes:sealed:1:")
    headers["X-Token"] = json.loads(KSANA_FILE)["jobs"][0]["http"]["headers"]["X-Token"]
    assert [ping] == json.loads(KSANA_FILE)["jobs"]
    assert ours["namespace"] == "ksana"
    async with opened(tmp_path, SettableClock(BEFORE_SAMPLE)) as store:
        assert await dumped(store) == before


# The file stays readable for people.
async def test_each_key_of_a_job_is_on_its_own_line(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.add_schedule(a_schedule(id=ScheduleId("a"), name="เตือน 提醒"))
    lines = (tmp_path / "jobs.json").read_text(encoding="utf-8").splitlines()
    assert '      "name": "เตือน 提醒",' in lines
    assert '        "every": "1m0s",' in lines


async def test_new_directory_gets_an_empty_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "new" / "data") as store:
        assert (await store.status()).degraded == ""
        expected = {"version": 1, "updated_at": "2030-01-15T09:00:00Z", "jobs": []}
        assert document(tmp_path / "new" / "data") == expected


@pytest.mark.parametrize(
    "trigger",
    [
        Every("90s", anchor=NOW, jitter="30s", start_at=NOW, end_at=NOW + 9 * MINUTE, max_runs=5),
        Every("1500ms"),
        Once("2031-01-01T00:00:00.25Z"),
        Once("2031-01-01T00:00:00", timezone="Asia/Bangkok"),
        Cron("*/5 9-17 * * 1-5", timezone="Asia/Bangkok", end_at=NOW + 99 * MINUTE),
        Cron("0 0 12 ? * MON#1 *", dialect="quartz"),
    ],
    ids=repr,
)
async def test_schedule_round_trip_with_any_trigger(tmp_path: Path, trigger: Any) -> None:
    schedule = replace(full_schedule(), trigger=trigger)
    async with opened(tmp_path) as store:
        await store.load([schedule, full_run()])
        before = await dumped(store)
    async with opened(tmp_path) as store:
        assert await dumped(store) == before
        assert await get_schedule(store, schedule.id) == schedule


@pytest.mark.parametrize(
    "target", [TASK, FLOW, SYNC, TaskTarget(name="bare")], ids=lambda t: t.requirement
)
async def test_task_flow_and_sync_targets_round_trip(tmp_path: Path, target: Target) -> None:
    schedule = replace(full_schedule(), target=target)
    async with opened(tmp_path) as store:
        await store.load([schedule, with_definition(full_run(), target=target)])
        before = await dumped(store)
    async with opened(tmp_path) as store:
        assert await dumped(store) == before
        assert await get_schedule(store, schedule.id) == schedule


async def test_manual_edit_of_task_arguments_is_applied(tmp_path: Path) -> None:
    schedule = a_schedule(target=TaskTarget(name="greet", args={"name": "Ada"}))
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    shown = job(tmp_path, schedule.id)
    assert shown["type"] == "task"
    assert shown["task"] == {"name": "greet", "args": {"name": "Ada"}}
    assert "http" not in shown
    edited = {"task": {"name": "greet", "args": {"name": "Bo"}, "why": "kept"}}
    edit(tmp_path, lambda data: data["jobs"][0].update(edited))
    async with opened(tmp_path) as store:
        changed = await get_schedule(store, schedule.id)
        assert changed.target == TaskTarget(name="greet", args={"name": "Bo"})
        assert (changed.version, changed.updated_by) == (2, "jobs.json")
        await store.add_schedule(a_schedule())
    assert job(tmp_path, schedule.id)["task"]["why"] == "kept"


# The concurrency key follows the pair, even after a manual edit.
async def test_manual_edit_of_a_sync_collection_moves_its_concurrency_key(tmp_path: Path) -> None:
    policy = Policy(overlap=Overlap.SKIP, concurrency_key=SYNC.key, max_concurrent_runs=1)
    schedule = a_schedule(target=SYNC, policy=policy)
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    shown = job(tmp_path, schedule.id)
    assert (shown["type"], shown["sync"]) == ("sync", {"source": "crm", "collection": "deals.eu"})
    edit(tmp_path, lambda data: data["jobs"][0]["sync"].update({"collection": "people"}))
    moved = SyncTarget(source="crm", collection="people")
    async with opened(tmp_path) as store:
        changed = await get_schedule(store, schedule.id)
        assert (changed.target, changed.policy.concurrency_key) == (moved, moved.key)
    edited = {"type": "http", "http": {"method": "GET", "url": "http://127.0.0.1:9/"}}
    edit(tmp_path, lambda data: data["jobs"][0].update(edited))
    async with opened(tmp_path) as store:
        changed = await get_schedule(store, schedule.id)
        assert (changed.target.requirement, changed.policy.concurrency_key) == ("http", None)


async def test_sync_job_with_overlap_queue_is_disabled(tmp_path: Path) -> None:
    schedule = a_schedule(policy=Policy(overlap=Overlap.QUEUE))
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    edited = {"type": "sync", "sync": {"source": "crm", "collection": "people"}}
    edit(tmp_path, lambda data: data["jobs"][0].update(edited))
    async with opened(tmp_path) as store:
        found = await get_schedule(store, schedule.id)
        assert not found.enabled
        assert "overlap must be skip for a sync target" in found.last_error


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("task", {"name": "../evil.py"}),
        ("task", {"name": "os:system"}),
        ("task", {}),
        ("flow", {"name": "f", "input": [1]}),
        ("sync", {"source": "crm"}),
        ("sync", {"source": "crm", "collection": "a#b"}),
        ("shell", {"name": "rm"}),
    ],
)
async def test_invalid_target_disables_the_job(
    tmp_path: Path, kind: str, part: dict[str, Any]
) -> None:
    schedule = a_schedule(target=TaskTarget(name="greet"))
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    edit(tmp_path, lambda data: data["jobs"][0].update({"type": kind, kind: part}))
    async with opened(tmp_path) as store:
        found = await get_schedule(store, schedule.id)
        assert not found.enabled
        assert found.last_error.startswith("jobs.json: ")


async def test_lone_surrogate_round_trips(tmp_path: Path) -> None:
    schedule = a_schedule(name="half a pair: \ud83d")
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) == schedule


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (RunStatus.SUCCEEDED, "success"),
        (RunStatus.FAILED, "failed"),
        (RunStatus.TIMEOUT, "timeout"),
        (RunStatus.SKIPPED, "skipped"),
        (RunStatus.MISSED, "missed"),
        (RunStatus.UNKNOWN, "failed"),
        (None, ""),
    ],
)
async def test_last_status_uses_ksana_words(
    tmp_path: Path, status: RunStatus | None, word: str
) -> None:
    schedule = a_schedule(id=ScheduleId("a"), last_status=status)
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
        assert job(tmp_path, "a")["last_status"] == word
        await store.change_schedule(schedule.id, lambda s, now: pause_schedule(s, now, "me"))
        assert job(tmp_path, "a")["last_status"] == "paused"
    async with opened(tmp_path) as store:
        assert (await get_schedule(store)).last_status == status


async def test_unchanged_durations_keep_their_original_notation(tmp_path: Path) -> None:
    given = {"every": "300s", "timeout": "0.5m", "jitter": "5000ms", "retry_backoff": "PT1S"}
    schedule = a_schedule(
        id=ScheduleId("a"),
        trigger=Every("300s", anchor=NOW, jitter="5s"),
        compat_data={"ksana": given},
    )
    policy = replace(schedule.policy, timeout=30 * SECOND, retry_backoff=2 * SECOND)
    async with opened(tmp_path) as store:
        await store.add_schedule(replace(schedule, policy=policy))
    written = job(tmp_path, "a")
    assert written["schedule"] == {
        "kind": "every",
        "every": "300s",
        "start_at": "",
        "jitter": "5000ms",
    }
    assert (written["timeout"], written["retry_backoff"]) == ("0.5m", "2s")


# --- Ksana jobs -----------------------------------------------------------------------------------
async def test_interval_without_next_run_at_is_planned(tmp_path: Path) -> None:
    async with opened(write_jobs(tmp_path, a_ksana_job())) as store:
        assert (await get_schedule(store)).next_run_at == NOW + 5 * MINUTE


async def test_next_run_at_is_aligned_to_start_at(tmp_path: Path) -> None:
    schedule = {"kind": "every", "every": "7m", "start_at": "2030-01-15T15:02:00+07:00"}
    async with opened(write_jobs(tmp_path, a_ksana_job(schedule=schedule))) as store:
        assert (await get_schedule(store)).next_run_at == NOW + 5 * MINUTE


# The missed slot is recorded.
async def test_overdue_interval_continues_from_now(tmp_path: Path) -> None:
    stale = a_ksana_job(next_run_at="2030-01-15T08:42:00Z")
    async with opened(write_jobs(tmp_path, stale)) as store:
        fired = await store.fire_due(plan, limit=10)
        (missed,) = fired.others
        assert (missed.status, missed.missed_count) == (RunStatus.MISSED, 4)
        assert (await get_schedule(store)).next_run_at == NOW + 2 * MINUTE


async def test_overdue_once_becomes_missed(tmp_path: Path) -> None:
    overdue = a_ksana_job(schedule={"kind": "once", "run_at": "2030-01-15T08:00:00Z"})
    async with opened(write_jobs(tmp_path, overdue)) as store:
        (missed,) = (await store.fire_due(plan, limit=10)).others
        assert (missed.status, missed.slot) == (RunStatus.MISSED, NOW - 60 * MINUTE)
    assert job(tmp_path, "a")["last_status"] == "missed"
    async with opened(tmp_path) as store:
        assert await store.next_due() is None


async def test_once_that_has_run_does_not_run_again(tmp_path: Path) -> None:
    done = a_ksana_job(
        schedule={"kind": "once", "run_at": "2030-01-15T08:00:00Z"},
        last_run_at="2030-01-15T08:00:00.123456789Z",
        last_status="success",
        next_run_at="",
    )
    async with opened(write_jobs(tmp_path, done)) as store:
        assert await store.next_due() is None
        assert (await get_schedule(store)).last_status is RunStatus.SUCCEEDED


async def test_disabled_job_is_never_due(tmp_path: Path) -> None:
    off = a_ksana_job(enabled=False, next_run_at="2030-01-15T09:01:00Z")
    async with opened(write_jobs(tmp_path, off)) as store:
        assert await store.next_due() is None


# Go writes an absent time in two ways, and an empty list as null.
async def test_zero_values_written_by_go_are_accepted(tmp_path: Path) -> None:
    zero = a_ksana_job(last_run_at="0001-01-01T00:00:00Z", next_run_at="0001-01-01T00:00:00Z")
    async with opened(write_jobs(tmp_path, zero)) as store:
        loaded = await get_schedule(store)
        assert (loaded.last_run_at, loaded.next_run_at) == (None, NOW + 5 * MINUTE)
    text = '{"version":1,"updated_at":"2025-09-19T11:00:00Z","jobs":null}'
    async with opened(written(tmp_path / "other", "\ufeff" + text)) as store:
        assert (await store.status()).degraded == ""
        assert document(tmp_path / "other")["jobs"] == []


# --- manual edits ---------------------------------------------------------------------------------
async def add_job(directory: Path, **given: Any) -> None:
    async with opened(directory) as store:
        await store.add_schedule(a_schedule(id=ScheduleId("a"), **given))


async def test_manual_edit_of_an_interval_is_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await add_job(tmp_path)

    def slower(data: dict[str, Any]) -> None:
        data["jobs"][0]["schedule"] |= {"every": "10m", "start_at": "", "jitter": "1s"}

    edit(tmp_path, slower)
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        assert (loaded.trigger.every, loaded.trigger.jitter) == (10 * MINUTE, SECOND)
        assert loaded.next_slot == NOW + 10 * MINUTE
        assert (loaded.version, loaded.updated_by) == (2, "jobs.json")
        assert "was edited since" in caplog.text
        assert job(tmp_path, "a")["schedule"]["every"] == "10m"
    async with opened(tmp_path) as store:
        assert await get_schedule(store) == loaded


async def test_manual_edit_keeps_the_other_fields(tmp_path: Path) -> None:
    trigger = Every("1m", anchor=NOW - 30 * SECOND, max_runs=9)
    await add_job(tmp_path, trigger=trigger, labels={"team": "ops"}, priority=3)
    edit(tmp_path, lambda data: data["jobs"][0].update(name="renamed", max_retries=7))
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        assert (loaded.name, loaded.policy.max_retries) == ("renamed", 7)
        assert (loaded.trigger, loaded.labels, loaded.priority) == (trigger, {"team": "ops"}, 3)
        assert loaded.next_slot == NOW + 30 * SECOND

    def faster(data: dict[str, Any]) -> None:
        data["jobs"][0]["schedule"]["every"] = "20s"

    edit(tmp_path, faster)
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        expected = Every("20s", anchor=NOW - 30 * SECOND, max_runs=9)
        assert (loaded.trigger, loaded.next_slot) == (expected, NOW + 10 * SECOND)


# An interval without start_at is anchored at its creation.
async def test_manual_edit_of_the_jitter_keeps_the_implicit_anchor(tmp_path: Path) -> None:
    anchor = NOW - 30 * SECOND
    given = {"ksana": {"every": "1m"}}
    await add_job(tmp_path, trigger=Every("1m", anchor=anchor), compat_data=given)
    assert job(tmp_path, "a")["schedule"]["start_at"] == ""

    def jitter(data: dict[str, Any]) -> None:
        data["jobs"][0]["schedule"]["jitter"] = "2s"

    edit(tmp_path, jitter)
    async with opened(tmp_path) as store:
        expected = Every("1m", anchor=anchor, jitter="2s")
        assert (await get_schedule(store)).trigger == expected


async def test_once_enabled_after_its_time_is_missed(tmp_path: Path) -> None:
    off = a_ksana_job(schedule={"kind": "once", "run_at": "2030-01-15T08:00:00Z"}, enabled=False)
    async with opened(write_jobs(tmp_path, off)) as store:
        assert await store.next_due() is None
    edit(tmp_path, lambda data: data["jobs"][0].update(enabled=True))
    async with opened(tmp_path) as store:
        (missed,) = (await store.fire_due(plan, limit=10)).others
        assert missed.status is RunStatus.MISSED
    edit(tmp_path, lambda data: data["jobs"][0].update(enabled=False))
    async with opened(tmp_path):
        pass
    edit(tmp_path, lambda data: data["jobs"][0].update(enabled=True))
    async with opened(tmp_path) as store:
        assert await store.next_due() is None


async def test_manual_edit_of_enabled_is_applied(tmp_path: Path) -> None:
    await add_job(tmp_path)
    edit(tmp_path, lambda data: data["jobs"][0].update(enabled=False))
    async with opened(tmp_path) as store:
        assert not (await get_schedule(store)).enabled
        assert await store.next_due() is None
        assert job(tmp_path, "a")["last_status"] == "paused"
    edit(tmp_path, lambda data: data["jobs"][0].update(enabled=True))
    clock = SettableClock(NOW + 90 * SECOND)
    async with opened(tmp_path, clock) as store:
        assert await store.next_due() == NOW + 2 * MINUTE


async def test_manual_edit_of_a_target_is_applied(tmp_path: Path) -> None:
    await add_job(tmp_path)
    http = {"method": "put", "url": "http://127.0.0.1/new", "headers": {"A": "b"}, "body": "x"}
    edit(tmp_path, lambda data: data["jobs"][0].update(http=http, timeout="1m"))
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        assert (loaded.target.method, loaded.target.url) == ("PUT", "http://127.0.0.1/new")
        assert (loaded.target.headers, loaded.target.body) == ({"A": "b"}, "x")
        assert loaded.policy.timeout == MINUTE


async def test_manual_edit_of_the_schedule_kind_is_applied(tmp_path: Path) -> None:
    await add_job(tmp_path)
    at = "2030-01-15T10:00:00Z"
    edit(
        tmp_path,
        lambda data: data["jobs"][0].update(schedule={"kind": "once", "run_at": at}),
    )
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        assert (loaded.trigger, loaded.next_run_at) == (Once(at), NOW + 60 * MINUTE)
    cron = {"kind": "cron", "expression": "30 9 * * *", "timezone": "UTC"}
    edit(tmp_path, lambda data: data["jobs"][0].update(schedule=cron))
    async with opened(tmp_path) as store:
        assert (await get_schedule(store)).next_run_at == NOW + 30 * MINUTE
        assert job(tmp_path, "a")["schedule"] == cron


async def test_next_run_at_can_be_moved_and_cleared_manually(tmp_path: Path) -> None:
    await add_job(tmp_path)
    edit(tmp_path, lambda data: data["jobs"][0].update(next_run_at="2030-01-15T09:00:07Z"))
    async with opened(tmp_path) as store:
        loaded = await get_schedule(store)
        assert (loaded.next_slot, loaded.next_run_at) == (NOW + MINUTE, NOW + 7 * SECOND)
    edit(tmp_path, lambda data: data["jobs"][0].update(next_run_at=""))
    async with opened(tmp_path) as store:
        assert (await get_schedule(store)).next_run_at == NOW + MINUTE


async def test_job_added_without_an_id_gets_one(tmp_path: Path) -> None:
    await add_job(tmp_path)
    copied = dict(job(tmp_path, "a"), name="copied with its id")
    added = {key: value for key, value in a_ksana_job(name="new").items() if key != "id"}
    edit(tmp_path, lambda data: data["jobs"].extend([added, copied]))
    async with opened(tmp_path) as store:
        ids = [each["id"] for each in document(tmp_path)["jobs"]]
        assert len(set(ids)) == 3
        assert all(ids)
        names = {(await get_schedule(store, each)).name for each in ids}
        assert names == {"new", "copied with its id", (await get_schedule(store)).name}
    async with opened(tmp_path):
        assert [each["id"] for each in document(tmp_path)["jobs"]] == ids


async def test_removed_job_is_deleted_with_its_queued_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        schedule = await store.add_schedule(due_schedule(id=ScheduleId("a")))
        (fired,) = (await store.fire_due(plan, limit=10)).others
        lonely, *_ = await store.add_runs([a_run(schedule_id=ScheduleId("never there"))])
    edit(tmp_path, lambda data: data["jobs"].clear())
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) is None
        canceled = await store.get_run(fired.id)
        assert canceled is not None
        assert (canceled.status, canceled.reason) == (
            RunStatus.CANCELED,
            Reason.SCHEDULE_DELETED,
        )
        assert await store.get_run(lonely.id) == lonely


# A deleted schedule is kept as history only.
async def test_deleted_schedule_is_no_job_and_its_id_is_not_reused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.add_schedule(a_schedule(id=ScheduleId("a")))
        await store.change_schedule(ScheduleId("a"), lambda s, now: delete_schedule(s, now, "me"))
        assert document(tmp_path)["jobs"] == []
    async with opened(tmp_path) as store:
        assert (await get_schedule(store)).deleted_at == NOW


async def test_unknown_keys_are_written_back(tmp_path: Path) -> None:
    raw = a_ksana_job(owner_team="ops", http=a_ksana_job()["http"] | {"proxy": {"a": [1]}})
    raw["schedule"] |= {"comment": "every five"}
    write_jobs(tmp_path, raw)
    edit(tmp_path, lambda data: data.update(generator="by hand"))
    async with opened(tmp_path) as store:
        await store.change_schedule(
            ScheduleId("a"), lambda s, now: apply_edit(s, replace(s, name="new"), now, "me")
        )
    async with opened(tmp_path):
        after = job(tmp_path, "a")
        assert (after["name"], after["owner_team"]) == ("new", "ops")
        assert after["http"]["proxy"] == {"a": [1]}
        assert after["schedule"]["comment"] == "every five"
        assert document(tmp_path)["generator"] == "by hand"


INVALID_JOBS = [
    {"http": {"method": "GET", "url": "not a url"}},
    {"http": {"method": "BREW", "url": "http://127.0.0.1/"}},
    {"http": []},
    {"http": {"url": "http://127.0.0.1/", "headers": {"n": 1}}},
    {"type": "shell"},
    {"schedule": {"kind": "sometimes"}},
    {"schedule": {"kind": "once"}},
    {"schedule": {"kind": "every", "every": "-5m"}},
    {"schedule": {"kind": "every", "every": 300}},
    {"schedule": {"kind": "every", "every": "5m", "jitter": "1h"}},
    {"schedule": {"kind": "cron", "expression": "* *"}},
    {"timeout": "soon"},
    {"timeout": "0s"},
    {"max_retries": -1},
    {"max_retries": True},
    {"enabled": "yes"},
    {"next_run_at": "tomorrow"},
    {"name": 7},
    {"chimes": {"trigger": 5}},
    {"chimes": []},
]


@each_row("wrong", INVALID_JOBS, ids=json.dumps)
@each_row("known", [False, True], ids=["plain", "written by Chimes"])
async def test_invalid_job_is_kept_disabled_and_does_not_affect_others(
    tmp_path_factory: pytest.TempPathFactory, wrong: dict[str, Any], known: bool
) -> None:
    tmp_path = tmp_path_factory.mktemp("store")
    write_jobs(tmp_path, a_ksana_job(extra=1), a_ksana_job(id="b"))
    if known:
        async with opened(tmp_path):
            pass
    edit(tmp_path, lambda data: data["jobs"][0].update(wrong))
    raw = job(tmp_path, "a")
    for _ in range(2):
        async with opened(tmp_path) as store:
            bad = await get_schedule(store)
            assert not bad.enabled
            assert bad.last_error.startswith("jobs.json: ")
            assert "a" in (await store.status()).degraded
            assert (await get_schedule(store, "b")).enabled
            await store.add_runs([a_run()])
        kept = job(tmp_path, "a")
        error_fields = {"last_status": "failed", "last_error": bad.last_error}
        assert kept == raw | error_fields
    good = {key: value for key, value in a_ksana_job().items() if key not in ("id", "name")}
    edit(tmp_path, lambda data: data["jobs"][0].update(good, name="mended", timeout="1s"))

    def repair(data: dict[str, Any]) -> None:
        data["jobs"][0].update(max_retries=1, next_run_at="")
        data["jobs"][0].pop("chimes", None)

    edit(tmp_path, repair)
    async with opened(tmp_path) as store:
        repaired = await get_schedule(store)
        assert (repaired.name, repaired.enabled, repaired.last_error) == ("mended", True, "")
        assert (await store.status()).degraded == ""


async def test_invalid_job_can_be_repaired_through_the_api(tmp_path: Path) -> None:
    write_jobs(tmp_path, a_ksana_job(schedule={"kind": "sometimes"}))
    async with opened(tmp_path) as store:
        await store.change_schedule(
            ScheduleId("a"),
            lambda s, now: apply_edit(
                s, replace(s, trigger=Every("1m", anchor=NOW), enabled=True), now, "me"
            ),
        )
    async with opened(tmp_path) as store:
        assert await store.next_due() == NOW + MINUTE


# --- restart --------------------------------------------------------------------------------------
# The lock proves that the previous process is gone, so no lease has to expire.
async def test_runs_of_the_previous_process_are_lost_immediately(tmp_path: Path) -> None:
    clock = SettableClock()
    async with opened(tmp_path, clock) as store:
        await store.join(a_node(), LEASE)
        (run,) = await store.add_runs([a_run()])
        await store.claim(claim_request())
    for crashes in (1, 2):
        async with opened(tmp_path, clock) as store:
            found = await store.get_run(run.id)
            assert found is not None
            assert (found.status, found.crashes) == (RunStatus.QUEUED, crashes)
            assert await store.nodes() == ()
            await store.join(a_node(f"node-{crashes + 1}"), LEASE)
            assert len(await store.claim(claim_request(f"node-{crashes + 1}"))) == 1
    async with opened(tmp_path, clock) as store:
        found = await store.get_run(run.id)
        assert found is not None
        assert (found.status, found.reason) == (RunStatus.FAILED, Reason.CRASH_LIMIT)


async def test_idempotency_records_survive_a_restart(tmp_path: Path) -> None:
    clock = SettableClock()
    hour = timedelta(hours=1)
    async with opened(tmp_path, clock) as store:
        assert await store.remember_request("s", "k", "print", keep=hour) is None
        known = await store.remember_request("s", "k", "print", keep=hour)
        assert known is not None
        answer = replace(known, status=201, body='{"a":1}', headers=(("ETag", '"1"'),))
        await store.answer_request("s", "k", answer)
        assert await store.remember_request("s", "under way", "print", keep=hour) is None
    async with opened(tmp_path, clock) as store:
        assert await store.remember_request("s", "k", "print", keep=hour) == answer
        again = await store.remember_request("s", "under way", "print", keep=hour)
        assert again is not None
    clock.advance(hour)
    async with opened(tmp_path, clock) as store:
        assert await store.remember_request("s", "k", "print", keep=hour) is None


async def test_completions_and_logs_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.join(a_node(), LEASE)
        await store.add_runs([a_run()])
        (run,) = await store.claim(claim_request())
        for message in ("one", "two"):
            await store.append_logs(run.id, run.fence, log_lines(message))
        await store.finish([a_completion(run, NOW, AttemptEnd.TIMEOUT)])
        before = await dumped(store)
    async with opened(tmp_path) as store:
        assert await dumped(store) == before
