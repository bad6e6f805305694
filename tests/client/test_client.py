"""Operations of both clients against a real server."""

from __future__ import annotations

import json
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.client import AsyncClient, Client, ConnectionInfo
from chimes.errors import (
    Conflict,
    InvalidInput,
    InvalidTrigger,
    NotAuthenticated,
    NotFound,
    RunCanceled,
    RunFailed,
)
from chimes.model.target import FlowTarget, HttpTarget, TaskTarget
from chimes.triggers import Every
from tests.cli.conftest import Server
from tests.client.conftest import KEY

FAR = datetime(2099, 1, 1, tzinfo=UTC)


def new_name() -> str:
    return f"n-{uuid.uuid4().hex[:12]}"


def test_catbird_methods(client: Client) -> None:
    name = new_name()
    made = client.schedule(name, "0 2 * * *", "task:greet", args={"name": "Ada"})
    assert (made.name, made.namespace, made.kind, made.target) == (name, "default", "task", "greet")
    assert (made.cron_spec, made.input, made.last_run_at) == ("0 2 * * *", {"name": "Ada"}, None)
    assert made.next_run_at is not None
    assert made.next_run_at.tzinfo is UTC
    assert client.get_schedule(name) == made
    assert client.get_schedule(made.id) == made
    assert client.trigger_schedule(name).result(timeout=30) == "hello Ada"
    assert client.get_schedule(name).next_run_at == made.next_run_at
    assert client.reschedule_for(name, FAR).next_run_at == FAR
    paused = client.set_schedule_enabled(name, False)
    assert (paused.enabled, paused.next_run_at) == (False, None)
    assert paused in client.list_schedules()
    resumed = client.set_schedule_enabled(name, True)
    assert (resumed.enabled, resumed.next_run_at) == (True, made.next_run_at)
    assert client.pause(name, note="lunch", until=FAR).enabled is False
    assert client.resume(name).enabled is True
    assert client.delete_schedule(name) is True
    assert client.delete_schedule(name) is False
    with pytest.raises(NotFound, match=name):
        client.trigger_schedule(name)


def test_reschedule_to_the_past_runs_now(client: Client) -> None:
    name = new_name()
    client.schedule(name, "0 2 1 1 *", "greet", args={"name": "Bo"})
    client.reschedule_for(name, "2000-01-01T00:00:00Z")
    run = _first_run(client, name)
    assert client.run_handle(run).result(30) == "hello Bo"


def _first_run(client: Client, name: str) -> str:
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while datetime.now(UTC) < deadline:
        if found := client.runs(schedule=name):
            return found[0].id
    raise AssertionError("it never ran")


def test_schedule_again_updates_only_changed_fields(client: Client) -> None:
    name = new_name()
    first = client.schedule(name, "every 1h", "task:greet", args={"name": "Ada"}, priority=3)
    assert client.schedule(name, "every 1h", "task:greet", args={"name": "Ada"}) == first
    changed = client.schedule(name, "every 1h", "flow:pipeline", input={"source": "x"}, retries=2)
    assert (changed.id, changed.next_run_at) == (first.id, first.next_run_at)
    assert (changed.kind, changed.priority, changed.version) == ("flow", 3, 2)
    moved = client.schedule(name, Every("2h"), FlowTarget(name="pipeline"))
    assert moved.cron_spec == "@every 2h0m0s"
    assert len([each for each in client.list_schedules() if each.name == name]) == 1
    client.delete_schedule(name)
    again = client.schedule(name, "every 1h", "greet", args={"name": "x"}, labels={"a": None})
    assert again.id != first.id
    assert again.labels == {"a": None}


def test_options_reach_the_policy(client: Client) -> None:
    name = new_name()
    made = client.schedule(
        name,
        "2099-01-01T09:00:00",
        HttpTarget(url="http://127.0.0.1:9999/", headers={"X-A": "1"}),
        timezone="Asia/Bangkok",
        catch_up="all",
        max_concurrent_runs=4,
        timeout=timedelta(seconds=5),
        retry_backoff="2s",
        misfire_grace=90,
        enabled=False,
        owner="user:alice",
    )
    assert (made.kind, made.target, made.enabled) == ("http", "http://127.0.0.1:9999/", False)
    assert (made.catch_up, made.max_concurrent_runs, made.owner) == ("all", 4, "user:alice")
    assert made.timezone == "Asia/Bangkok"
    assert not [each for each in client.list_schedules() if each.namespace != "default"]
    assert made in client.list_schedules(everywhere=True)


def test_depends_on_is_stored(client: Client, keyed_server: Server) -> None:
    first, second = new_name(), new_name()
    other = client.schedule(first, "0 2 * * *", "greet", args={"name": "x"}, mode="db")
    made = client.schedule(second, "0 3 * * *", "greet", args={"name": "y"}, depends_on=first)

    def stored() -> object:
        address = f"{keyed_server.url}/api/v1/schedules/{made.id}"
        request = urllib.request.Request(address, headers={"X-API-Key": KEY})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["depends_on"]

    assert stored() == {"schedule_id": other.id, "within": "PT1H"}
    client.schedule(
        second,
        "0 3 * * *",
        "greet",
        args={"name": "y"},
        depends_on=first,
        depends_within=timedelta(minutes=5),
    )
    assert stored() == {"schedule_id": other.id, "within": "PT5M"}
    client.schedule(second, "0 3 * * *", "greet", args={"name": "y"}, depends_on=None)
    assert stored() is None
    with pytest.raises(NotFound):
        client.schedule(second, "0 3 * * *", "greet", args={"name": "y"}, depends_on="nobody")


def test_unknown_options_are_rejected(client: Client) -> None:
    """An ignored option would go unnoticed: the run would start now instead of in an hour."""
    unknown: Any = {"delay": "1h"}
    with pytest.raises(TypeError, match="'delay'"):
        client.enqueue("greet", {"name": "x"}, **unknown)
    with pytest.raises(TypeError, match="'delay'"):
        client.schedule(new_name(), "0 2 * * *", "greet", timeout=3, **unknown)
    with pytest.raises(InvalidInput, match="mode is one of db"):
        client.schedule(new_name(), "0 2 * * *", "greet", mode="memory")
    with pytest.raises(InvalidInput, match="requires depends_on"):
        client.schedule(new_name(), "0 2 * * *", "greet", depends_within="1h")


def test_enqueue_runs_a_task_without_a_schedule(client: Client) -> None:
    handle = client.enqueue("greet", {"name": "Ada", "times": 2})
    assert handle.result(timeout="30s") == "hello Ada, hello Ada"
    assert handle.status() == "succeeded"
    run = handle.run()
    assert (run.status, run.ended, run.kind, run.origin) == ("succeeded", True, "task", "manual")
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.finished_at >= run.started_at
    assert [line.number for line in handle.logs()] == sorted(line.number for line in handle.logs())
    again = client.retry(run.id)
    assert again.result(30) == "hello Ada, hello Ada"
    assert again.run().retry_of == run.id


def test_enqueued_flow_has_step_runs(client: Client) -> None:
    handle = client.enqueue("flow:pipeline", input={"source": "s"})
    handle.result(timeout=30)
    steps = client.runs(parent_id=handle.id)
    assert {step.step for step in steps} == {"load", "total"}
    assert {step.origin for step in steps} == {"child"}
    values = {step.step: step.value for step in steps}
    assert values == {"load": [1, 2, 3], "total": 6}


def test_unsuccessful_runs_raise_errors(client: Client) -> None:
    with pytest.raises(RunFailed, match="it broke") as caught:
        client.enqueue("broken").result(30)
    assert (caught.value.status, caught.value.error != "") == ("failed", True)
    waiting = client.enqueue("greet", {"name": "x"}, at=FAR - timedelta(days=26000))
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0)
    assert waiting.cancel() is True
    with pytest.raises(RunCanceled):
        waiting.result(5)
    assert waiting.cancel() is False
    with pytest.raises(Conflict):
        client.cancel(waiting.id)


def test_error_of_invalid_input_names_its_field(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.enqueue("gret", {"name": "x"})
    assert (caught.value.field, caught.value.code) == ("target.name", "unknown_task")
    assert caught.value.hint == "did you mean greet?"
    with pytest.raises(InvalidTrigger):
        client.schedule(new_name(), "61 * * * *", "greet")
    with pytest.raises(InvalidInput, match="aware"):
        client.reschedule_for("x", datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="task:NAME"):
        client.schedule(new_name(), "every 1h", "shell:rm")
    with pytest.raises(NotFound):
        client.run("nope")


def test_nodes_are_listed(client: Client) -> None:
    [node] = client.nodes()
    assert node.alive
    assert {"http", "task:greet", "flow:pipeline"} <= set(node.offers)
    assert abs(node.clock_offset_seconds) < 5


async def test_connections_are_listed(client: Client, keyed_server: Server) -> None:
    (node,) = client.nodes()
    assert client.list_connections() == [
        ConnectionInfo(
            name="events", kind="redis", roles=("member",), allow=("e.*",), nodes=(node.id,)
        )
    ]
    async with AsyncClient(keyed_server.url, KEY) as other:
        assert await other.list_connections() == client.list_connections()


def test_runs_are_listed_over_pages(client: Client) -> None:
    name = new_name()
    client.schedule(name, "0 2 1 1 *", "greet", args={"name": "x"}, enabled=False, overlap="queue")
    ids = [client.trigger_schedule(name).id for _ in range(3)]
    found = client.runs(schedule=name, limit=None)
    assert sorted(run.id for run in found) == sorted(ids)
    assert len(client.runs(schedule=name, limit=2)) == 2


def test_api_key_is_not_in_repr_or_errors(keyed_server: Server) -> None:
    with Client(keyed_server.url, "chm_wrong-key") as client:
        assert repr(client) == f"Client({keyed_server.url!r})"
        with pytest.raises(NotAuthenticated) as caught:
            client.list_schedules()
        assert "wrong-key" not in f"{caught.value!r}{caught.value.details}"


def test_url_and_key_come_from_the_environment(
    keyed_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIMES_URL", keyed_server.url)
    monkeypatch.setenv("CHIMES_API_KEY", KEY)
    with Client() as client:
        assert client.url == keyed_server.url
        assert client.nodes()


async def test_async_client_has_the_same_methods(keyed_server: Server) -> None:
    name = new_name()
    async with AsyncClient(keyed_server.url, KEY) as client:
        made = await client.schedule(
            name, "0 2 * * *", TaskTarget(name="greet", args={"name": "A"})
        )
        assert await client.get_schedule(name) == made
        handle = await client.trigger_schedule(name)
        assert await handle.result(30) == "hello A"
        assert (await handle.run()).schedule_name == name
        assert await handle.status() == "succeeded"
        assert isinstance(await handle.logs(), list)
        assert await handle.cancel() is False
        assert await client.set_schedule_enabled(name, False) in await client.list_schedules()
        assert await (await client.enqueue("greet", {"name": "B"})).result(30) == "hello B"
        assert await client.delete_schedule(name)
    other = Client(keyed_server.url, KEY, namespace="team").aio
    try:
        assert other.namespace == "team"
        assert await other.list_schedules() == []
    finally:
        await other.close()


def test_filters_and_bulk_actions(client: Client) -> None:
    label = f"l{uuid.uuid4().hex[:8]}"
    made = [
        client.schedule(new_name(), "0 2 1 1 *", "greet", args={"name": "x"}, labels={label: None})
        for _ in range(2)
    ]
    ids = {each.id for each in made}
    assert {each.id for each in client.list_schedules(filter=f"label:{label}")} == ids
    planned = client.bulk("pause", filter=f"label:{label}", dry_run=True)
    assert {(each.id, each.result) for each in planned} == {(each, "planned") for each in ids}
    client.bulk("pause", filter=f"label:{label}", reason="move")
    assert {each.id for each in client.list_schedules(filter=f"label:{label} status:paused")} == ids
    run, missing = client.bulk("run", ids=[made[0].id, "nothing"])
    assert run.run_id is not None
    assert client.run_handle(run.run_id).result("60s") == "hello x"
    assert (missing.result, missing.error_code) == ("failed", "not_found")
    assert [each.id for each in client.runs(filter=f"schedule:{made[0].id}")] == [run.run_id]
    with pytest.raises(InvalidInput, match="no condition labl"):
        client.list_schedules(filter="labl:x")


def test_secrets(client: Client) -> None:
    name = f"S{uuid.uuid4().hex[:8]}"
    stored = client.set_secret(name, "the-5ecret-value")
    assert (stored.name, stored.owner) == (name, "system:default")
    target = HttpTarget(url=f"http://127.0.0.1:7999/{{{{secret.{name}}}}}")
    schedule = client.schedule(new_name(), "0 2 1 1 *", target)
    (found,) = [each for each in client.list_secrets() if each.name == name]
    assert found.schedules == ((schedule.id, schedule.name),)
    assert (found.created_at, found.schedule_count) == (stored.created_at, 1)
    assert "5ecret" not in repr(found)
    with pytest.raises(InvalidInput, match="there is no secret 'NOT_STORED'"):
        client.schedule(new_name(), "0 2 * * *", HttpTarget(url="http://h/{{secret.NOT_STORED}}"))
    with pytest.raises(Conflict, match=schedule.name):
        client.delete_secret(name)
    assert client.list_secrets(owner="user:nobody") == []
    assert client.delete_secret(name, force=True)
    assert not client.delete_secret(name)


async def test_secrets_asynchronously(keyed_server: Server) -> None:
    name = f"S{uuid.uuid4().hex[:8]}"
    async with AsyncClient(keyed_server.url, KEY) as client:
        stored = await client.set_secret(name, "the-5ecret-value", owner="user:ada")
        assert stored.owner == "user:ada"
        assert [each.name for each in await client.list_secrets(owner="user:ada")] == [name]
        assert await client.delete_secret(name, owner="user:ada")


def test_monitors(client: Client) -> None:
    made = client.create_monitor("client backup", "every 10m", grace="5m", tags=["db"])
    assert (made.status, made.tags, made.grace) == ("new", ("db",), timedelta(minutes=5))
    assert client.get_monitor(made.id).ping_url == made.ping_url
    assert made.id in [each.id for each in client.list_monitors(status="new")]
    assert client.pause_monitor(made.id).status == "paused"
    assert client.resume_monitor(made.id).status == "new"
    assert client.rotate_monitor(made.id).ping_url != made.ping_url
    assert client.monitor_pings(made.id) == []
    assert client.delete_monitor(made.id)
    assert not client.delete_monitor(made.id)


def test_plans_forecasts_and_feeds(client: Client) -> None:
    name = f"planned-{uuid.uuid4().hex[:8]}"
    client.schedule(name, "0 3 * * *", "noted", timezone="UTC")
    schedule = client.get_schedule(name)
    found = client.plan([{"delete": schedule.id}], days=2)
    assert [each.schedule for each in found.dropped] == [schedule.id] * 2
    assert (found.added, found.moved, found.collisions) == ((), (), ())
    assert client.get_schedule(name).version == schedule.version
    minutes = {each.at: each for each in client.forecast(days=2)}
    assert minutes[found.dropped[0].at].runs >= 1
    feed = client.create_feed(schedule=name)
    assert feed.url is not None
    assert feed.url.endswith(".ics")
    assert (feed.id, None) in {(each.id, each.url) for each in client.list_feeds()}
    assert client.delete_feed(feed.id)
    assert not client.delete_feed(feed.id)
    client.delete_schedule(name)


def test_silences(client: Client) -> None:
    schedule = client.schedule(new_name(), "0 2 1 1 *", HttpTarget(url="http://127.0.0.1:7999/"))
    until = datetime.now(UTC) + timedelta(hours=1)
    by_name = client.add_silence(schedule=schedule.name, until=until, reason="move")
    assert (by_name.schedule, by_name.reason, by_name.active) == (schedule.id, "move", True)
    assert abs(by_name.until - until) < timedelta(seconds=1)
    label = new_name()
    by_label = client.add_silence(labels={label: None}, until=until)
    assert by_label.labels == {label: None}
    listed = {each.id for each in client.silences()}
    assert {by_name.id, by_label.id} <= listed
    for each in (by_name, by_label):
        assert client.end_silence(each.id)
        assert not client.end_silence(each.id)


def test_limits(client: Client) -> None:
    name = new_name()
    made = client.set_limit(name, rate="10/s", burst=20, breaker=(5, timedelta(minutes=1)))
    assert (made.name, made.rate, made.burst, made.concurrency) == (name, "10/s", 20, None)
    assert made.breaker == (5, timedelta(minutes=1))
    replaced = client.set_limit(name, concurrency=2)
    assert (replaced.concurrency, replaced.rate, replaced.burst) == (2, "", None)
    assert replaced in client.list_limits()
    shared = client.set_limit(name, concurrency=9, shared=True)
    assert [each.owner for each in client.list_limits() if each.name == name] == [made.owner, ""]
    assert shared.concurrency == 9
    with pytest.raises(InvalidInput, match="concurrency, a rate or a breaker"):
        client.set_limit(name)
    with pytest.raises(InvalidInput, match="is not a rate"):
        client.set_limit(name, rate="fast")
    assert client.delete_limit(name) is True
    assert client.delete_limit(name) is False
    assert client.delete_limit(name, shared=True) is True


async def test_a_failure_is_acknowledged(keyed_server: Server, client: Client) -> None:
    failed = client.enqueue("broken")
    with pytest.raises(RunFailed):
        failed.result(timeout=30)
    client.acknowledge(failed.id, reason="looking into it")
    fine = client.enqueue("greet", {"name": "Ada"})
    fine.result(timeout=30)
    with pytest.raises(Conflict):
        client.acknowledge(fine.id)
    async with AsyncClient(keyed_server.url, KEY) as other:
        await other.acknowledge(failed.id)
        with pytest.raises(NotFound):
            await other.acknowledge("nothing")
