"""`app.schedule(...)`: valid and invalid declarations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chimes import Chimes, Cron, Every, HttpTarget, Once
from chimes.errors import InvalidInput, InvalidTrigger
from chimes.model.policy import Misfire, OnLost, Overlap
from chimes.model.target import FlowTarget, TaskTarget
from chimes.sdk.declare import Mode
from chimes.triggers.calendars import parse_calendar
from tests.sdk.inspection import QUICK, stored
from tests.tables import each_row


def an_app() -> Chimes:
    app = Chimes("memory://", settings=QUICK)

    @app.task(priority=3, retries=2, timeout="1m")
    async def report(day: str = "today", pages: int = 1) -> None: ...

    @app.task(concurrency=2)
    async def limited() -> None: ...

    flow = app.flow("nightly", timeout="2h", priority=4)

    @flow.step()
    def collect(source: str = "") -> int:
        return 1

    return app


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("0 9 * * 1-5", Cron("0 9 * * 1-5")),
        ("@hourly", Cron("@hourly")),
        ("every 5m", Every("5m")),
        ("2030-01-01T09:00:00Z", Once("2030-01-01T09:00:00Z")),
        (Cron("0 9 * * *", timezone="Asia/Bangkok"), Cron("0 9 * * *", timezone="Asia/Bangkok")),
    ],
)
def test_trigger_of_a_declaration(text: object, trigger: object) -> None:
    app = an_app()
    app.schedule("x", text, "report")  # type: ignore[arg-type]
    assert app.declarations["x"].trigger == trigger


def test_time_zones_of_application_and_schedule() -> None:
    app = Chimes("memory://", timezone="Asia/Bangkok")

    @app.task
    async def report() -> None: ...

    app.schedule("bangkok", "0 9 * * *", report)
    app.schedule("new york", "0 9 * * *", report, timezone="America/New_York")
    app.schedule("own", Cron("0 9 * * *", timezone="UTC"), report)
    zones = [app.declarations[name].trigger.zone for name in app.declarations.names]
    assert zones == ["Asia/Bangkok", "America/New_York", "UTC"]
    with pytest.raises(InvalidTrigger, match="Mars"):
        Chimes(timezone="Mars/Base")


def test_bounds_of_a_trigger() -> None:
    app = an_app()
    app.schedule(
        "x",
        "every 10m",
        "report",
        jitter=timedelta(seconds=30),
        start_at="2030-01-01T00:00:00Z",
        end_at=datetime(2031, 1, 1, tzinfo=UTC),
        max_runs=7,
        exclude=[parse_calendar({"dates": ["2030-05-01"]}, "exclude")],
    )
    trigger = app.declarations["x"].trigger
    assert isinstance(trigger, Every)
    assert trigger.jitter == timedelta(seconds=30)
    assert trigger.start_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert trigger.end_at == datetime(2031, 1, 1, tzinfo=UTC)
    assert trigger.max_runs == 7
    assert len(trigger.exclude) == 1


async def test_target_of_a_declaration() -> None:
    app = an_app()
    report = app.registry.get("report")
    app.schedule("by name", "@daily", "report", args={"day": "Monday"})
    app.schedule("by kind", "@daily", "task:report")
    app.schedule("flow", "@daily", "nightly", input={"source": "a"})
    app.schedule("flow object", "@daily", app.flows["nightly"])
    app.schedule("url", "@daily", "https://example.com/hook")
    app.schedule("http", "@daily", HttpTarget(url="https://example.com/hook", method="GET"))
    app.schedule("plain", "@daily", {"kind": "http", "url": "https://example.com/hook"})
    app.schedule("elsewhere", "@daily", TaskTarget(name="of_another_app"))
    found = {name: app.declarations[name].target for name in app.declarations.names}
    assert found["by name"] == TaskTarget(name=report.name, args={"day": "Monday"})
    assert found["flow"] == FlowTarget(name="nightly", input={"source": "a"})
    assert found["url"] == found["plain"] == HttpTarget(url="https://example.com/hook")
    assert found["elsewhere"] == TaskTarget(name="of_another_app")


async def test_schedule_options_override_task_options() -> None:
    app = an_app()
    app.schedule("plain", "@daily", "report")
    app.schedule(
        "own",
        "@daily",
        "report",
        retries=7,
        timeout="9s",
        catch_up="all",
        misfire_grace="5m",
        overlap="queue",
        max_concurrent_runs=3,
        burst_allowed=True,
        on_lost="stop",
        priority=1,
        labels={"team": "ops"},
        owner="user:ann",
        enabled=False,
    )
    app.schedule("limited", "@daily", "limited")
    app.schedule("flow", "@daily", "nightly")
    async with app:
        await app.sync()
        plain, own = await stored(app, "plain"), await stored(app, "own")
        assert (plain.priority, plain.policy.max_retries) == (3, 2)
        assert plain.policy.timeout == timedelta(minutes=1)
        assert plain.policy.misfire is Misfire.ONE  # the default of Catbird
        policy = own.policy
        assert (policy.max_retries, policy.timeout) == (7, timedelta(seconds=9))
        assert (policy.misfire, policy.misfire_grace) == (Misfire.ALL, timedelta(minutes=5))
        assert (policy.overlap, policy.max_concurrent_runs) == (Overlap.QUEUE, 3)
        assert (policy.burst_allowed, policy.on_lost) == (True, OnLost.STOP)
        assert (own.priority, own.labels, str(own.owner)) == (1, {"team": "ops"}, "user:ann")
        assert own.enabled is False
        assert own.next_run_at is None
        limited = await stored(app, "limited")
        assert limited.policy.concurrency_key == "task:limited"
        assert limited.policy.overlap is Overlap.QUEUE
        flow = await stored(app, "flow")
        assert (flow.policy.timeout, flow.priority) == (timedelta(hours=2), 4)


@each_row(
    ("arguments", "options", "why"),
    [
        (("x", "61 * * * *", "report"), {}, "61"),
        (("x", "0 0 31 2 *", "report"), {}, "never fires"),
        (("x", "soon", "report"), {}, "exactly when"),
        (("x", 5, "report"), {}, "expected a trigger"),
        (("", "@daily", "report"), {}, "name is required"),
        (("x", "@daily", "reprot"), {}, "did you mean report"),
        (("x", "@daily", "task:nightly"), {}, "no task 'nightly'"),
        (("x", "@daily", "flow:nigthly"), {}, "did you mean nightly"),
        (("x", "@daily", 42), {}, "not int"),
        (("x", "@daily", "ftp://example.com"), {}, "no task or flow"),
        (("x", "@daily", {"kind": "http"}), {}, "url"),
        (("x", "@daily", "report"), {"args": {"dya": 1}}, "dya"),
        (("x", "@daily", "report"), {"args": {"pages": "two"}}, "pages"),
        (("x", "@daily", "report"), {"input": {}}, "input is for a flow"),
        (("x", "@daily", "nightly"), {"args": {}}, "args are for a task"),
        (("x", "@daily", "nightly"), {"input": {"source": object()}}, "JSON"),
        (("x", "@daily", "report"), {"mode": "paper"}, "mode must be one of db, memory"),
        (
            ("x", "@daily", "report"),
            {"catch_up": "most"},
            "catch_up must be one of skip, one, latest, all",
        ),
        (("x", "@daily", "report"), {"overlap": "queu"}, "overlap"),
        (("x", "@daily", "report"), {"timeout": "forever"}, "timeout"),
        (("x", "@daily", "report"), {"retries": -1}, "max_retries"),
        (("x", "@daily", "report"), {"priority": 10_000}, "priority"),
        (("x", "@daily", "report"), {"timezone": "Mars/Base"}, "Mars"),
        (("x", "@daily", "report"), {"jitter": "32d"}, "jitter"),
        (("x", "@daily", "report"), {"max_concurrent_runs": 0}, "max_concurrent_runs"),
        (("x", "@daily", "report"), {"owner": "ann"}, "user:NAME"),
        (("x", "@daily", "report"), {"depends_within": "1h"}, "depends_on"),
        (("x", "@daily", "report"), {"depends_on": "x"}, "depend on itself"),
        (("x", "@daily", "report"), {"mode": "memory", "max_runs": 3}, "mode='db'"),
        (("x", "@daily", "limited"), {"max_concurrent_runs": 3}, "concurrency of its own"),
    ],
)
def test_invalid_declarations(
    arguments: tuple[object, ...], options: dict[str, object], why: str
) -> None:
    app = an_app()
    with pytest.raises(InvalidInput) as error:
        app.schedule(*arguments, **options)  # type: ignore[arg-type]
    text = f"{error.value.message} {error.value.field} {error.value.hint}"
    assert why in text
    assert app.declarations.names == ()


def test_duplicate_name_is_rejected() -> None:
    app = an_app()
    app.schedule("x", "@daily", "report")
    with pytest.raises(InvalidInput, match="two schedules are named 'x'"):
        app.schedule(" x ", "@hourly", "report")


def test_catbird_method_names() -> None:
    app = an_app()
    app.with_scheduled_task("report", "@hourly")
    app.with_scheduled_flow("nightly", "0 2 * * 0")
    with pytest.raises(InvalidInput, match="no task 'nightly'"):
        app.with_scheduled_task("nightly", "@hourly")
    assert app.declarations["report"].target == TaskTarget(name="report")
    assert app.declarations["nightly"].target == FlowTarget(name="nightly")
    assert app.declarations["report"].mode is None
    other = an_app()
    other.with_db_driven_schedule("nightly", "@hourly")
    assert other.declarations["nightly"].mode is Mode.DB
    assert other.declarations["nightly"].target == FlowTarget(name="nightly")
