"""`@app.task`, enqueue and handles."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from chimes import Chimes, Context, Reject, Retry, RunCanceled, RunFailed, RunTimedOut, TaskError
from chimes.errors import AlreadyExists, ChimesError, InvalidInput, NotFound
from chimes.model.run import RunStatus
from tests.sdk.inspection import QUICK, runs_of


def an_app(url: str = "memory://") -> Chimes:
    return Chimes(url, settings=QUICK)


async def test_task_can_be_called_as_a_function() -> None:
    app = an_app()

    @app.task
    async def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    @app.task(name="other", retries=2)
    def plain(text: str, context: Context) -> str:
        return text

    assert await double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert double.__name__ == "double"
    assert list(inspect.signature(plain).parameters) == ["text", "context"]
    assert app.registry.names == ("double", "other")
    assert set(app.capabilities) == {"task:double", "task:other"}


async def test_results_on_every_store(url: str) -> None:
    app = an_app(url)

    @app.task
    async def add(first: int, second: int = 10) -> int:
        return first + second

    @app.task
    def shout(context: Context, text: str) -> dict[str, object]:
        context.logger.info("about to shout")
        return {"said": text.upper(), "attempt": context.attempt}

    await app.start()
    try:
        assert await (await add.enqueue(1)).result("10s") == 11
        assert await (await add.enqueue(1, second=2)).result(10) == 3
        assert await (await app.enqueue("add", {"first": 5})).result() == 15
        handle = await shout.enqueue("hey")
        assert await handle.result(timedelta(seconds=10)) == {"said": "HEY", "attempt": 1}
        assert await handle.status() is RunStatus.SUCCEEDED
        assert [entry.message for entry in await handle.logs()] == ["about to shout"]
        assert await handle.cancel() is False
        assert await app.run_handle(handle.id).result() == {"said": "HEY", "attempt": 1}
    finally:
        await app.stop()


@dataclass
class Invoice:
    number: int
    due: datetime


async def test_results_have_the_return_type_of_the_function() -> None:
    app = an_app()
    due = datetime(2030, 1, 2, tzinfo=UTC)

    @app.task
    async def bill(context: Context, number: int) -> Invoice:
        return Invoice(number, due)

    @app.task
    def pair() -> tuple[int, timedelta]:
        return 1, timedelta(seconds=90)

    @app.task
    def mistyped() -> list[int]:
        return ["x"]  # type: ignore[list-item]

    @app.task
    def unresolved() -> Missing:  # type: ignore[name-defined]  # noqa: F821
        return {"a": [1]}

    await app.start()
    try:
        handle = await bill.enqueue(7)
        assert await handle.result("10s") == Invoice(7, due)
        # A handle from an id alone knows the stored value only.
        stored = {"number": 7, "due": "2030-01-02T00:00:00Z"}
        assert await app.run_handle(handle.id).result("10s") == stored
        assert await (await pair.enqueue()).result("10s") == (1, timedelta(seconds=90))
        assert await (await mistyped.enqueue()).result("10s") == ["x"]
        assert await (await unresolved.enqueue()).result("10s") == {"a": [1]}
    finally:
        await app.stop()


async def test_result_of_another_process_is_returned(shared_url: str) -> None:
    """Two applications share only the store, like two processes."""
    here, there = an_app(shared_url), an_app(shared_url)
    for app in (here, there):

        @app.task
        async def add(first: int, second: int) -> int:
            return first + second

    async with here:
        handle = await here.enqueue("add", {"first": 1, "second": 2})
        with pytest.raises(TimeoutError):
            await handle.result(0.05)
        await there.start()
        try:
            assert await handle.result("15s") == 3
        finally:
            await there.stop()


async def test_task_declared_while_the_node_runs_is_executed() -> None:
    app = Chimes("memory://")
    await app.start()
    try:

        @app.task
        async def late() -> str:
            return "carried out"

        handle = await late.enqueue()
        assert await handle.result(10) == "carried out"
    finally:
        await app.stop()


async def test_failures_are_raised_with_their_reason() -> None:
    app = an_app()
    failures: list[tuple[str, str]] = []

    def note(context: Context, error: TaskError) -> None:
        failures.append((context.run_id, error.message))

    @app.task(on_failure=note, retries=1, retry_backoff=0.01)
    async def broken() -> None:
        raise ValueError("no paper left")

    @app.task(retries=5)
    async def rejected() -> None:
        raise Reject("never")

    @app.task(timeout=0.2)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task(retries=1)
    async def second_time(context: Context) -> int:
        if context.attempt == 1:
            raise Retry("not yet", after=0.01)
        return context.attempt

    await app.start()
    try:
        handle = await broken.enqueue()
        with pytest.raises(RunFailed, match="no paper left") as failed:
            await handle.result("10s")
        assert failed.value.run_id == handle.id
        assert failed.value.status == "failed"
        assert "no paper left" in failed.value.error
        assert [run_id for run_id, _ in failures] == [handle.id]
        assert (await handle.run()).attempt == 2
        with pytest.raises(RunFailed, match="never"):
            await (await rejected.enqueue()).result("10s")
        with pytest.raises(RunTimedOut):
            await (await slow.enqueue()).result("10s")
        assert await (await second_time.enqueue()).result("10s") == 2
    finally:
        await app.stop()


async def test_cancel_before_and_during_execution() -> None:
    app = an_app()
    begun = asyncio.Event()

    @app.task
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(60)

    async with app:
        early = await wait.options(delay="1h").enqueue()
        assert await early.cancel() is True
        with pytest.raises(RunCanceled):
            await early.result(1)
        await app.start()
        handle = await wait.enqueue()
        await begun.wait()
        assert await handle.cancel() is True
        with pytest.raises(RunCanceled):
            await handle.result("10s")
        await app.stop()


async def test_enqueue_options_are_stored(url: str) -> None:
    app = an_app(url)

    @app.task(priority=5)
    async def work(number: int = 0) -> int:
        return number

    async with app:
        later = datetime.now(UTC) + timedelta(hours=2)
        run = await (await work.options(at=later).enqueue()).run()
        assert run.available_at == run.planned_at == later
        assert run.priority == 5
        run = await (await work.options(delay="90m", priority=9, owner="user:ann").enqueue()).run()
        assert timedelta(minutes=89) < run.available_at - run.created_at <= timedelta(minutes=90)
        assert (run.priority, str(run.owner), run.namespace) == (9, "user:ann", "default")
        run = await (await work.options(at="2020-01-01T00:00:00Z").enqueue()).run()
        assert run.available_at == run.created_at


async def test_key_deduplicates_runs(url: str) -> None:
    app = an_app(url)

    @app.task
    async def work(number: int) -> int:
        return number

    @app.task
    async def other(number: int) -> int:
        return number

    async with app:
        handles = await asyncio.gather(
            *(work.options(key="order-7").enqueue(number) for number in range(5))
        )
        assert len({handle.id for handle in handles}) == 1
        assert len(await runs_of(app)) == 1
        assert await other.options(key="order-7").enqueue(1) != handles[0]
        assert await work.options(key="order-8").enqueue(1) != handles[0]


async def test_concurrency_of_a_task_limits_its_runs(url: str) -> None:
    app = an_app(url)
    now_running = most = 0
    two = asyncio.Event()

    @app.task(concurrency=2)
    async def work() -> None:
        nonlocal now_running, most
        now_running += 1
        most = max(most, now_running)
        if now_running == 2:
            two.set()
        await asyncio.wait_for(two.wait(), 20)
        now_running -= 1

    await app.start()
    try:
        handles = [await work.enqueue() for _ in range(8)]
        for handle in handles:
            await handle.result("20s")
    finally:
        await app.stop()
    assert most == 2


async def test_worker_claims_only_its_queues() -> None:
    app = an_app()

    @app.task(queue="mail")
    async def send() -> str:
        return "sent"

    @app.task
    async def usual() -> str:
        return "done"

    await app.start(queues=["mail"])
    try:
        waiting = await usual.enqueue()
        assert await (await send.enqueue()).result("10s") == "sent"
        assert await waiting.status() is RunStatus.QUEUED
    finally:
        await app.stop()


@pytest.mark.parametrize(
    ("args", "named", "why"),
    [
        ((), {}, "missing"),
        (("one",), {}, "must be int"),
        ((1, 2), {}, "takes 1 argument "),
        ((1,), {"number": 1}, "twice"),
        ((1,), {"numbr": 1}, "numbr"),
        ((object(),), {}, "JSON"),
    ],
)
async def test_invalid_arguments(
    args: tuple[object, ...], named: dict[str, object], why: str
) -> None:
    app = an_app()

    @app.task
    async def work(number: int) -> int:
        return number

    async with app:
        with pytest.raises(InvalidInput, match=why):
            await work.enqueue(*args, **named)
        assert await runs_of(app) == []


async def test_invalid_task_options() -> None:
    app = an_app()

    @app.task
    async def work() -> None: ...

    async def another() -> None: ...

    with pytest.raises(AlreadyExists, match="'work'"):
        app.task(work.__wrapped__)
    for options, why in (
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"isolation": "moon"}, "isolation"),
        ({"on_lost": "cry"}, "on_lost must be one of retry, stop"),
        ({"backoff": "linear"}, "backoff"),
        ({"priority": 5000}, "priority"),
        ({"name": "a b"}, "name"),
        ({"concurrency": 0}, "concurrency"),
    ):
        with pytest.raises(InvalidInput, match=why):
            app.task(**options)(another)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'<lambda>' cannot be the name of a task"):
        app.task(lambda: None)
    with pytest.raises(TypeError, match="retires"):
        app.task(retires=1)(another)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="either delay or at"):
        work.options(delay="1s", at="2030-01-01T00:00:00Z")
    with pytest.raises(InvalidInput, match="time with a zone"):
        work.options(at=datetime(2030, 1, 1))  # noqa: DTZ001 - tests a naive time


async def test_enqueue_needs_an_open_application() -> None:
    app = an_app()

    @app.task
    async def work() -> None: ...

    with pytest.raises(ChimesError, match="not open"):
        await work.enqueue()
    async with app, app:
        handle = await work.enqueue()
    with pytest.raises(ChimesError, match="not open"):
        await handle.status()


async def test_unknown_task() -> None:
    async with an_app() as app:
        with pytest.raises(InvalidInput, match="no running node offers"):
            await app.enqueue("nothing")
        with pytest.raises(NotFound):
            await app.run_handle("00000000-0000-7000-8000-000000000000").status()


async def test_task_of_another_application_is_enqueued_by_name(shared_url: str) -> None:
    here, there = an_app(shared_url), an_app(shared_url)

    @there.task
    async def work(number: int) -> int:
        return number + 1

    await there.start()
    try:
        async with here:
            assert await (await here.enqueue("work", {"number": 1})).result("10s") == 2
    finally:
        await there.stop()


async def test_stop_waits_for_running_tasks() -> None:
    app = an_app()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with app:
        await app.start()
        handle = await work.enqueue()
        await begun.wait()
        stopping = asyncio.create_task(app.stop())
        await asyncio.sleep(0)  # let it start
        assert not stopping.done()
        go_on.set()
        await stopping
        assert await handle.result(1) == "done"
        assert app.node is None
