"""Events of the engine: metrics and log lines."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import get_args

import pytest

from chimes.engine import Engine, events
from chimes.engine.events import (
    AttemptAbandoned,
    AuditNotPruned,
    AuditPruned,
    BreakerClosed,
    BreakerOpened,
    CompletionFenced,
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    DrainEnded,
    DrainStarted,
    DutyFailed,
    DutyRecovered,
    EventLogger,
    FallbackEnded,
    FallbackStarted,
    MessagesPruned,
    NodeDraining,
    NodeHeartbeat,
    NodeJoined,
    NodeLost,
    NodeResumed,
    PauseEnded,
    RunDeferred,
    RunEnded,
    RunReleased,
    RunRescued,
    RunRetrying,
    RunsPruned,
    RunStarted,
    ScheduleBroken,
    SchedulesFired,
    SenderRaised,
    SlotsAlreadyTaken,
    StoreClockJumped,
    StoreRegressed,
    TargetRaised,
    TargetStuck,
    UnusedPruned,
)
from chimes.engine.metrics import Metrics
from chimes.errors import StoreUnavailable
from chimes.log import JsonFormatter
from chimes.model.ids import NodeId
from chimes.model.limit import Limit
from chimes.model.notification import DeliveryState
from chimes.model.planning import FirePlan
from chimes.model.policy import Misfire, Policy
from chimes.model.run import AttemptEnd, Outcome, RunStatus, claim
from chimes.model.target import AgentTarget
from chimes.redaction import Redactor
from tests.builders import NOW, a_completion, a_delivery, a_run, a_schedule
from tests.engine.rig import FAILURE, SUCCESS, Rig, until

NODE = NodeId("node-1")
SCHEDULE = a_schedule(name="nightly")
LIMIT = Limit(name="api", owner=None, concurrency=1, created_at=NOW, updated_at=NOW)
RUN = claim(a_run(SCHEDULE), NODE, NOW)
DONE = a_run(SCHEDULE, status=RunStatus.SUCCEEDED)

EVERY_EVENT: list[events.Event] = [
    SchedulesFired(
        plans=(FirePlan(schedule=SCHEDULE, runs=()),),
        runs=(
            RUN,
            a_run(SCHEDULE, status=RunStatus.MISSED, missed_count=7),
            a_run(SCHEDULE, status=RunStatus.SKIPPED),
        ),
        seconds=0.01,
    ),
    ScheduleBroken(schedule=SCHEDULE),
    RunStarted(run=RUN, lag=0.002),
    RunEnded(run=DONE, seconds=0.25),
    RunRetrying(run=RUN, seconds=0.1),
    CompletionFenced(run=RUN, completion=a_completion(RUN, NOW)),
    AttemptAbandoned(run=RUN, why="ownership lost"),
    RunReleased(run=RUN),
    RunDeferred(run=RUN, seconds=1.0),
    BreakerOpened(limit=LIMIT, failures=5),
    BreakerClosed(limit=LIMIT),
    TargetStuck(run=RUN),
    TargetRaised(run=RUN, error=ZeroDivisionError("by nought")),
    RunRescued(run=a_run(SCHEDULE, status=RunStatus.UNKNOWN)),
    PauseEnded(schedule=SCHEDULE),
    RunsPruned(count=12),
    DeliveryEnded(delivery=a_delivery(state=DeliveryState.DELIVERED), seconds=0.5),
    DeliveryEnded(delivery=a_delivery(state=DeliveryState.DEAD), seconds=0.5),
    DeliveryRetrying(delivery=a_delivery(), seconds=0.5),
    DeliveryFenced(delivery=a_delivery()),
    SenderRaised(delivery=a_delivery(), error=ZeroDivisionError("by nought")),
    MessagesPruned(count=3),
    UnusedPruned(count=7),
    AuditPruned(count=9),
    AuditNotPruned(why="entry 3 was changed"),
    NodeJoined(node_id=NODE),
    NodeLost(node_id=NODE, why="no heartbeat"),
    NodeHeartbeat(node_id=NODE, clock_skew=-600.0),
    NodeDraining(node_id=NODE, running=2),
    NodeResumed(node_id=NODE),
    StoreRegressed(why="the store went back"),
    StoreClockJumped(seconds=600.0),
    StoreClockJumped(seconds=-600.0),
    DutyFailed(duty="scheduler", error=StoreUnavailable("gone"), first=True),
    DutyFailed(duty="scheduler", error=StoreUnavailable("gone"), first=False),
    DutyFailed(duty="scheduler", error=KeyError("bug"), first=False),
    DutyRecovered(duty="scheduler"),
    FallbackStarted(error=KeyError("no table")),
    SlotsAlreadyTaken(count=2),
    DrainStarted(node_id=NODE, running=3, grace=timedelta(seconds=30)),
    DrainEnded(node_id=NODE, given_up=1),
    FallbackEnded(),
]


def value(metrics: Metrics, name: str) -> float:
    found = metrics.registry.get_sample_value(f"chimes_{name}")
    assert found is not None, name
    return found


def test_examples_cover_all_event_types() -> None:
    assert {type(event) for event in EVERY_EVENT} == set(get_args(events.Event))


def test_every_event_is_counted() -> None:
    metrics = Metrics()
    for event in EVERY_EVENT:
        metrics(event)
    counted = {
        "scheduled": 1,
        "missed": 7,
        "skipped": 1,
        "dispatched": 1,
        "success": 1,
        "failed": 1,
        "retries": 1,
        "fenced": 1,
        "dropped": 1,
        "rescued": 1,
        "stuck": 1,
        "broken": 1,
        "pauses_ended": 1,
        "pruned": 12,
        "leases_lost": 1,
        "store_errors": 2,
        "engine_errors": 1,
        "duplicates": 2,
        "db_clock_jumped": 1,
        "store_regressed": 1,
        "db_clock_regressed": 1,
        "dead_letters": 1,
    }
    assert {name: value(metrics, f"{name}_total") for name in counted} == counted
    for outcome in ("delivered", "dead", "retried", "fenced"):
        labels = {"channel": "inbox", "outcome": outcome}
        total = metrics.registry.get_sample_value("chimes_deliveries_total", labels)
        assert total == 1, outcome
    assert value(metrics, "delivery_seconds_sum") == pytest.approx(1.5)
    assert value(metrics, "clock_skew_seconds") == -600
    assert value(metrics, "lag_seconds_count") == 1
    assert value(metrics, "run_seconds_sum") == pytest.approx(0.35)
    assert value(metrics, "fire_batch_seconds_count") == 1
    assert b"chimes_lag_seconds_bucket" in metrics.text()


def test_agent_usage_is_counted() -> None:
    metrics = Metrics()
    usage = {"prompt_tokens": 10, "completion_tokens": 32, "total_tokens": 42}
    prompt = AgentTarget(prompt="say something")
    for result in ({"usage": usage, "cost": 0.25}, {"usage": None, "cost": None}, None):
        run = a_run(SCHEDULE, target=prompt, status=RunStatus.SUCCEEDED, result=result)
        metrics(RunEnded(run=run, seconds=0.1))
    for direction, tokens in (("prompt", 10), ("completion", 32)):
        labels = {"direction": direction}
        assert metrics.registry.get_sample_value("chimes_agent_tokens_total", labels) == tokens
    assert value(metrics, "agent_cost_total") == 0.25


def test_the_fallback_gauge_is_set_during_a_fallback() -> None:
    metrics = Metrics()
    metrics(FallbackStarted(error=KeyError("no table")))
    assert value(metrics, "fallback") == 1
    metrics(FallbackEnded())
    assert value(metrics, "fallback") == 0


def test_metrics_contain_no_schedule_names() -> None:
    metrics = Metrics()
    for event in EVERY_EVENT:
        metrics(event)
    assert b"nightly" not in metrics.text()


async def test_metrics_of_a_real_engine_are_consistent(rig: Rig) -> None:
    metrics = Metrics()
    rig.runner.script = [
        SUCCESS,
        FAILURE,
        SUCCESS,
        Outcome(end=AttemptEnd.FAILED, error="no"),
    ]
    engine = Engine(
        rig.store,
        {"http": rig.runner},
        settings=rig.settings,
        listeners=[metrics, rig.events.append],
    )
    await engine.start()
    rig.engines.append(engine)
    for done in range(1, 4):
        await rig.due_now(policy=Policy(max_retries=1, retry_backoff=timedelta(seconds=0.01)))
        await until(lambda done=done: len(rig.emitted(RunEnded)) == done)
    past = await rig.now() - timedelta(hours=1)
    missed = await rig.every(7200, past, policy=Policy(misfire=Misfire.SKIP))
    await until(lambda: value(metrics, "missed_total"))
    assert (await rig.runs(missed))[0].status is RunStatus.MISSED
    names = ("scheduled", "dispatched", "success", "failed", "retries", "missed")
    totals = {name: value(metrics, f"{name}_total") for name in names}
    assert totals == {
        "scheduled": 3,
        "dispatched": 4,
        "success": 2,
        "failed": 1,
        "retries": 1,
        "missed": 1,
    }
    assert value(metrics, "running") == 0
    assert value(metrics, "lag_seconds_count") == 3


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="chimes.engine")
    return caplog


def test_fields_of_log_lines_about_runs_and_schedules(
    lines: pytest.LogCaptureFixture,
) -> None:
    reports = EventLogger()
    reports(RunEnded(run=DONE, seconds=0.25))
    reports(SchedulesFired(plans=(FirePlan(schedule=SCHEDULE, runs=()),), runs=(), seconds=0.01))
    ended, fired = (
        json.loads(JsonFormatter(Redactor(())).format(record)) for record in lines.records
    )
    assert ended["event"] == "run ended"
    assert ended["job_id"] == SCHEDULE.id
    assert ended["name"] == "nightly"
    assert (ended["status"], ended["latency_ms"], ended["error"]) == ("succeeded", 250.0, "")
    assert fired["name"] == "nightly"
    assert SCHEDULE.next_run_at is not None
    assert fired["next_run_at"] == SCHEDULE.next_run_at.isoformat()


def test_every_event_is_logged_or_intentionally_not(lines: pytest.LogCaptureFixture) -> None:
    reports = EventLogger()
    for event in EVERY_EVENT:
        reports(event)
    logged = [(record.levelname, record.getMessage()) for record in lines.records]
    assert ("WARNING", "fenced") in logged
    assert ("ERROR", "schedule cannot be planned and was set aside") in logged
    assert ("WARNING", "slot missed") in logged
    assert ("ERROR", "target raised") in logged
    assert ("ERROR", "delivery given up: dead letter") in logged
    assert ("INFO", "old messages deleted") in logged
    # An outage is logged once, a bug each time with its traceback.
    assert logged.count(("WARNING", "scheduler: the store does not answer")) == 1
    (bug,) = [r for r in lines.records if r.getMessage() == "scheduler failed"]
    assert bug.exc_info is not None
    # Silent: a continuing outage, and slots that another node took. Three lines: one pass.
    assert len(logged) == len(EVERY_EVENT) - 2 + 2


def test_clock_skew_is_logged_once(
    lines: pytest.LogCaptureFixture,
) -> None:
    reports = EventLogger()
    for skew in (0.1, 5.0, 6.0, 0.0, -9.0):
        reports(NodeHeartbeat(node_id=NODE, clock_skew=skew))
    assert [record.__dict__["clock_skew_s"] for record in lines.records] == [5.0, -9.0]


def test_a_listener_may_select_event_types() -> None:
    class Picky:
        event_types = (events.NodeJoined, events.NodeLost)

        def __init__(self) -> None:
            self.received: list[events.Event] = []

        def __call__(self, event: events.Event) -> None:
            self.received.append(event)

    picky, everything = Picky(), list[events.Event]()
    telling = events.Events([picky, everything.append])
    for _ in range(2):
        for event in EVERY_EVENT:
            telling.emit(event)
    assert everything == EVERY_EVENT * 2
    assert (
        picky.received == [each for each in EVERY_EVENT if isinstance(each, Picky.event_types)] * 2
    )


def test_a_listener_may_have_handlers_by_type() -> None:
    class Handling:
        def __init__(self) -> None:
            self.received: list[events.Event] = []
            self.ended: list[events.Event] = []
            self.handlers = {events.RunEnded: self.ended.append}

        def __call__(self, event: events.Event) -> None:
            self.received.append(event)

    handling = Handling()
    telling = events.Events([handling])
    for event in EVERY_EVENT:
        telling.emit(event)
    ended = [each for each in EVERY_EVENT if isinstance(each, events.RunEnded)]
    assert ended
    assert handling.ended == ended
    assert handling.received == [each for each in EVERY_EVENT if each not in ended]
