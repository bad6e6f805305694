"""Tasks on the event loop and in threads: contexts, outcomes, timeouts, cancels, handlers."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Attempt, AttemptEnd, Completion, Outcome
from chimes.targets.base import Call
from chimes.targets.python import (
    Cancel,
    Context,
    PythonTask,
    Registry,
    Reject,
    Retry,
    Task,
    TaskError,
    current_context,
)
from chimes.targets.python import runner as threads
from chimes.targets.python.wire import LOG_LIMITS
from tests.builders import NOW
from tests.targets import python_tasks
from tests.targets.task_calls import ExecutedRun, a_call, a_registry, execute, running
from tests.targets.waiting import until

ROOT = Path(__file__).parents[2]
ALL = ["inline", "thread", "process"]

_here: ContextVar[str] = ContextVar("here", default="nothing")


def _marked(value: str) -> str:
    _here.set("read")
    return value


Marked = Annotated[str, BeforeValidator(_marked)]


async def execute_once(function: Callable[..., object], **given: Any) -> ExecutedRun:
    options = given.pop("options", {})
    async with running(a_registry(function, **options)) as runner:
        return await execute(runner, function.__name__, **given)


async def test_a_task_that_does_not_wait_ends_at_once() -> None:
    async def plain(n: int) -> int:
        return n + 1

    async def waiting(n: int) -> int:
        await asyncio.sleep(0)
        return n + 2

    async def broken() -> None:
        raise Retry

    async with running(a_registry(plain, waiting, broken)) as runner:
        ended = runner.begin(a_call("plain", n=1))
        assert isinstance(ended, Outcome)
        assert ended.result == {"value": 2}
        for name, given, value in (("waiting", {"n": 1}, {"value": 3}), ("broken", {}, None)):
            rest = runner.begin(a_call(name, **given))
            assert not isinstance(rest, Outcome)
            assert (await rest).result == value


# Contexts


@pytest.fixture
async def runner() -> AsyncIterator[PythonTask]:
    async with running(python_tasks.registry, app=python_tasks.PATH) as opened:
        yield opened


@pytest.mark.parametrize("where", ALL)
async def test_context_has_the_fields_of_the_run(runner: PythonTask, where: str) -> None:
    slot = datetime(2026, 5, 1, tzinfo=UTC)
    done = await execute(
        runner,
        f"facts_{where}",
        timeout=60,
        run={
            "id": RunId("run-x"),
            "schedule_id": ScheduleId("s-1"),
            "schedule_name": "nightly",
            "slot": slot,
            "parent_id": RunId("run-p"),
            "attempt": 2,
        },
    )
    facts = done.value
    assert 1 < facts.pop("remaining") <= 60
    assert facts == {
        "run_id": "run-x",
        "key": "run-x",
        "task": f"facts_{where}",
        "attempt": 2,
        "schedule": ["s-1", "nightly"],
        "slot": "2026-05-01T00:00:00Z",
        "parent": "run-p",
        "deadline": (NOW + timedelta(seconds=60)).isoformat().replace("+00:00", "Z"),
        "canceled": False,
    }
    assert done.lines == [("debug", "a detail"), ("warning", "careful with this")]


def test_current_context_outside_of_a_task_raises() -> None:
    with pytest.raises(LookupError):
        current_context()


async def test_concurrent_runs_have_separate_contexts() -> None:
    both = asyncio.Barrier(2)

    async def inline(n: int) -> int:
        await both.wait()
        current_context().logger.info("I am %s", n)
        return current_context().attempt

    async with running(a_registry(inline)) as runner:
        first, second = await asyncio.gather(
            execute(runner, "inline", n=1),
            execute(runner, "inline", n=2, run={"attempt": 7}),
        )
    assert (first.value, second.value) == (1, 7)
    assert (first.text, second.text) == ("I am 1", "I am 2")


async def test_context_variables_of_an_attempt_do_not_leak() -> None:
    """Several attempts run in the same asyncio task."""
    here: ContextVar[str] = ContextVar("here", default="nothing")

    async def sets(waits: bool) -> list[str]:
        found = [here.get()]
        here.set("mine")
        if waits:
            await asyncio.sleep(0)
        inside = await asyncio.create_task(_inside())
        return [*found, here.get(), *inside]

    async def _inside() -> list[str]:
        return [here.get(), current_context().run_id]

    async with running(a_registry(sets)) as runner:
        for waits in (False, True, False):
            done = await execute(runner, "sets", waits=waits, run={"id": RunId("run-x")})
            assert done.value == ["nothing", "mine", "mine", "run-x"]
    assert here.get() == "nothing"
    with pytest.raises(LookupError):
        current_context()


async def test_handler_sees_context_variables_of_its_task() -> None:
    found: list[str] = []

    async def fails(value: Marked) -> None:
        found.append(_here.get())
        _here.set("mine")
        raise Reject("no")

    async def handler(context: Context, error: TaskError) -> None:
        found.append(_here.get())

    async with running(a_registry(fails, on_failure=handler)) as runner:
        await execute(runner, "fails", value="x")
    assert found == ["read", "mine"]
    assert _here.get() == "nothing"


async def test_handler_shares_the_completion_of_its_task() -> None:
    """Task and handler share one completion, so the run cannot be completed twice."""
    made: list[FakeCompletion] = []

    class FakeCompletion:
        recorded: Completion | None = None

        def __init__(self, call: Call) -> None:
            self.results: list[object] = []
            made.append(self)

        async def complete(self, connection: object, result: object) -> None:
            self.results.append(result)

    async def fails(context: Context) -> None:
        await context.complete_in(None, "the task")
        raise Reject("after all")

    async def handler(context: Context, error: TaskError) -> None:
        await context.complete_in(None, "its handler")

    async def silent() -> None:
        pass

    registry = a_registry(fails, on_failure=handler)
    registry.add(Task(name="silent", function=silent))
    async with running(registry, completion_factory=FakeCompletion) as runner:
        await execute(runner, "silent")
        assert made == []
        await execute(runner, "fails")
    (one,) = made
    assert one.results == ["the task", "its handler"]


async def test_log_lines_from_many_threads_are_complete_and_limited() -> None:
    def chatter(context: Context) -> None:
        def speak() -> None:
            for number in range(LOG_LIMITS.lines // 8 + 10):
                context.logger.info("line %d", number)

        speakers = [threading.Thread(target=speak) for _ in range(8)]
        for speaker in speakers:
            speaker.start()
        for speaker in speakers:
            speaker.join()

    written_on = set()
    lines: list[str] = []

    def log(level: str, message: str) -> None:
        written_on.add(threading.get_ident())
        lines.append(message)

    async with running(a_registry(chatter)) as runner:
        await runner.execute(a_call("chatter", log))
    assert written_on == {threading.get_ident()}
    assert len(lines) == LOG_LIMITS.lines + 1
    assert lines[-1] == "output truncated: the attempt exceeded its log limit"


async def test_log_line_is_truncated_and_its_secrets_redacted() -> None:
    async def leaks(context: Context) -> None:
        context.logger.error("Authorization: Bearer abcdefgh12345")
        context.logger.info("x" * 100_000)
        context.logger.info("a\x00b")

    done = await execute_once(leaks)
    assert "abcdefgh12345" not in done.text
    assert len(done.lines[1][1]) == 8 * 1024
    assert done.lines[2] == ("info", "a\ufffdb")


# Results


@dataclass
class Invoice:
    total: Decimal


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (5, 5),
        ("ä", "ä"),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        (Invoice(Decimal("1.50")), {"total": "1.50"}),
        (NOW, NOW.isoformat().replace("+00:00", "Z")),
        ("a\x00\ud800", "a\ufffd\ufffd\ufffd\ufffd"),
    ],
)
async def test_results_are_stored_as_json(value: object, stored: object) -> None:
    async def give() -> object:
        return value

    done = await execute_once(give)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.outcome.result == {"value": stored}


async def forgotten() -> None: ...


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "bad_result"),
        (float("nan"), "bad_result"),
        ([float("inf")], "bad_result"),
        (10**5000, "bad_result"),
        ("x" * (1024 * 1024 - 1), "result_too_large"),
    ],
    ids=["object", "nan", "inf", "huge", "large"],
)
async def test_unstorable_results_fail(value: object, code: str) -> None:
    def give() -> object:
        return value

    outcome = (await execute_once(give)).outcome
    assert (outcome.end, outcome.code, outcome.retryable) == (AttemptEnd.FAILED, code, False)
    assert outcome.result is None


async def test_coroutine_as_result_fails() -> None:
    def give() -> object:
        return forgotten()

    outcome = (await execute_once(give)).outcome
    assert outcome.code == "bad_result"
    assert "async def" in outcome.error


# Exceptions


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("where", ["inline", "thread"])
@pytest.mark.parametrize(
    ("error", "end", "code", "retryable", "text"),
    [
        (ValueError("x"), AttemptEnd.FAILED, "exception", True, "ValueError: x"),
        (KeyError(), AttemptEnd.FAILED, "exception", True, "KeyError"),
        (TimeoutError("socket"), AttemptEnd.FAILED, "exception", True, "TimeoutError: socket"),
        (StopIteration(), AttemptEnd.FAILED, "exception", True, None),
        (SystemExit(3), AttemptEnd.FAILED, "exception", True, "SystemExit: 3"),
        (asyncio.CancelledError(), AttemptEnd.FAILED, "exception", True, "CancelledError"),
        (MemoryError(), AttemptEnd.FAILED, "exception", True, "MemoryError"),
        (Unspeakable(), AttemptEnd.FAILED, "exception", True, "Unspeakable: (the message"),
        (Reject("bad"), AttemptEnd.FAILED, "rejected", False, "Reject: bad"),
        (Cancel(), AttemptEnd.CANCELED, "canceled_by_task", False, ""),
    ],
    ids=repr,
)
async def test_exceptions_become_outcomes(
    where: str, error: BaseException, end: AttemptEnd, code: str, retryable: bool, text: str | None
) -> None:
    async def inline() -> None:
        raise error

    def thread() -> None:
        raise error

    outcome = (await execute_once(inline if where == "inline" else thread)).outcome
    assert (outcome.end, outcome.code, outcome.retryable) == (end, code, retryable)
    if text is not None:
        assert outcome.error.startswith(text)


async def test_traceback_starts_at_the_task_and_is_truncated() -> None:
    def deep(level: int) -> None:
        if level == 0:
            raise ValueError("token=sekret123 " + "y" * 20_000)
        deep(level - 1)

    def fails(password: str) -> None:
        deep(3)

    done = await execute_once(fails, password="unseen-value")
    ((level, message),) = done.lines
    assert level == "error"
    assert len(message) <= 8 * 1024
    assert len(done.outcome.error) <= 2000

    def plainly() -> None:
        raise ValueError("GET /x?token=sekret123 failed")

    done = await execute_once(plainly)
    assert "Traceback" in done.text
    assert "plainly" in done.text
    assert "sekret123" not in done.text + done.outcome.error
    files = re.findall(r'File "(.+?)"', done.text)
    assert set(files) == {__file__}


@pytest.mark.parametrize(
    ("after", "seconds"),
    [(90, 90), (1.5, 1.5), (timedelta(minutes=1), 60), ("2m", 120), (0, 0), (None, None)],
)
async def test_retry_exception_sets_the_delay(after: Any, seconds: float | None) -> None:
    async def again() -> None:
        raise Retry("busy", after=after)

    outcome = (await execute_once(again)).outcome
    assert outcome.retryable
    assert outcome.retry_in == (None if seconds is None else timedelta(seconds=seconds))


async def test_unknown_task_or_bad_arguments_fail_without_retry() -> None:
    def add(a: int) -> int:
        return a

    async with running(a_registry(add)) as runner:
        for name, args, code in (
            ("add", {"a": "1"}, "bad_arguments"),
            ("add", {}, "bad_arguments"),
            ("sub", {}, "unknown_task"),
        ):
            done = await execute(runner, name, **args)
            assert (done.outcome.code, done.outcome.retryable) == (code, False)
            assert done.lines == [("error", done.outcome.error)]


# Timeouts and cancels


async def test_a_coroutine_is_cancelled_at_its_deadline() -> None:
    seen: list[object] = []

    async def slow(context: Context) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append(context.canceled)
            raise

    done = await execute_once(slow, timeout=0.05)
    assert done.outcome.end is AttemptEnd.TIMEOUT
    assert done.outcome.retryable
    assert done.outcome.error == "timed out after 0.05s"
    assert seen == [True]


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_coroutine_that_ignores_its_timeout_still_times_out(how: str) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("anyway") from None
        return "anyway"

    assert (await execute_once(stubborn, timeout=0.05)).outcome.end is AttemptEnd.TIMEOUT


async def test_canceled_coroutine_sees_the_cancel() -> None:
    """Its context reports the cancel during cleanup."""
    started = asyncio.Event()
    seen: list[bool] = []

    async def slow(context: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            seen.append(context.canceled)

    async with running(a_registry(slow)) as runner:
        attempt = asyncio.create_task(runner.execute(a_call("slow")))
        await started.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
    assert seen == [True]


async def test_cancel_after_a_blocked_loop_is_a_timeout() -> None:
    """After a blocked loop the engine's cancel and the deadline arrive together."""

    async def blocks() -> None:
        asyncio.get_running_loop().call_later(0.15, attempt.cancel)
        time.sleep(0.3)  # noqa: ASYNC251 - what the test is about
        await asyncio.sleep(600)

    async with running(a_registry(blocks)) as runner:
        attempt = asyncio.create_task(runner.execute(a_call("blocks", timeout=0.1)))
        assert (await attempt).end is AttemptEnd.TIMEOUT


async def test_sync_function_with_inline_isolation_runs_on_the_loop() -> None:
    def where() -> int:
        return threading.get_ident()

    done = await execute_once(where, options={"isolation": "inline"})
    assert done.value == threading.get_ident()
    assert (await execute_once(where)).value != threading.get_ident()


@pytest.mark.parametrize("why", ["timeout", "cancel"])
async def test_thread_sees_timeout_and_cancel(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE_SECONDS", 30.0)  # a busy machine may stall for a second
    started, ended = threading.Event(), threading.Event()

    def polls(context: Context) -> None:
        started.set()
        try:
            while not context.wait_canceled(60):
                pass
            context.check_canceled()
        finally:
            ended.set()

    async with running(a_registry(polls)) as runner:
        call = a_call("polls", timeout=0.2 if why == "timeout" else 60)
        attempt = asyncio.create_task(runner.execute(call))
        await until(started.is_set)
        if why == "cancel":
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        else:
            assert (await attempt).end is AttemptEnd.TIMEOUT
        assert ended.is_set()
        # `ended` is set shortly before the thread exits.
        await until(lambda: runner.abandoned_threads == 0)


async def test_function_that_checks_its_expired_deadline_times_out() -> None:
    def looks(context: Context) -> None:
        while context.remaining():
            pass
        context.check_canceled()

    done = await execute_once(looks, timeout=0.05, options={"isolation": "inline"})
    assert done.outcome.end is AttemptEnd.TIMEOUT


async def test_stuck_threads_are_counted_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "GRACE_SECONDS", 0.01)
    free = threading.Event()

    def stuck() -> None:
        free.wait(60)

    def fine() -> str:
        return "fine"

    async with running(a_registry(stuck, fine), threads=2) as runner:
        for _ in range(5):
            assert (await execute(runner, "stuck", timeout=0.01)).outcome.code == "timeout"
        assert runner.abandoned_threads == 5
        assert (await execute(runner, "fine")).value == "fine"
        assert "did not end" in caplog.text
        free.set()
        await until(lambda: runner.abandoned_threads == 0)


async def test_second_cancel_abandons_the_thread_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second cancel comes from the engine and skips the grace period."""
    monkeypatch.setattr(threads, "GRACE_SECONDS", 600.0)
    free, started = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        free.wait(60)

    async with running(a_registry(stuck)) as runner:
        attempt = asyncio.create_task(runner.execute(a_call("stuck")))
        await until(started.is_set)
        attempt.cancel()
        asyncio.get_running_loop().call_soon(attempt.cancel)
        with pytest.raises(asyncio.CancelledError):
            await attempt
        assert runner.abandoned_threads == 1
        free.set()


async def test_stuck_threads_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(threads, "ABANDONED_PER_THREAD", 3)
    free = threading.Event()

    def stuck() -> None:
        free.wait(60)

    async with running(a_registry(stuck), threads=1) as runner:
        codes = [(await execute(runner, "stuck", timeout=0.01)).outcome for _ in range(4)]
        free.set()
    assert [each.code for each in codes] == ["timeout"] * 3 + ["threads_exhausted"]
    assert codes[-1].retryable


async def test_concurrent_threads_are_limited() -> None:
    at_work: list[int] = []
    most: list[int] = []
    lock = threading.Lock()
    both = threading.Barrier(2)

    def work() -> None:
        with lock:
            at_work.append(1)
            most.append(len(at_work))
        both.wait(60)
        with lock:
            at_work.pop()

    async with running(a_registry(work), threads=2) as runner:
        done = await asyncio.gather(*(execute(runner, "work") for _ in range(6)))
    assert all(each.outcome.end is AttemptEnd.SUCCEEDED for each in done)
    assert max(most) == 2


async def test_waiting_for_a_free_thread_times_out() -> None:
    free = threading.Event()

    def work() -> None:
        free.wait(60)

    async with running(a_registry(work), threads=1) as runner:
        first = asyncio.create_task(execute(runner, "work"))
        await asyncio.sleep(0)  # lets it take the thread
        second = await execute(runner, "work", timeout=0.05)
        free.set()
        assert (await first).outcome.end is AttemptEnd.SUCCEEDED
    assert second.outcome.code == "timeout"
    assert "no thread was free" in second.text


STUCK_NODE = """
import asyncio, time
from tests.targets.task_calls import a_registry, execute, running

def stuck():
    time.sleep(600)

async def main():
    async with running(a_registry(stuck)) as runner:
        print((await execute(runner, "stuck", timeout=0.05)).outcome.code)

asyncio.run(main())
"""


async def test_stuck_thread_does_not_prevent_exit() -> None:
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUCK_NODE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    async with asyncio.timeout(60):
        output, _ = await node.communicate()
    assert (output.strip(), node.returncode) == (b"timeout", 0)


# on_failure


class RecordingHandler:
    """A failure handler that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.threads: list[int] = []

    def __call__(self, context: Context, error: TaskError) -> None:
        assert current_context() is context
        context.logger.info("handled")
        self.threads.append(threading.get_ident())
        self.calls.append((context.run_id, error.code, str(error)))


async def broken() -> None:
    raise ValueError("x")


async def rejects() -> None:
    raise Reject("never")


async def cancels() -> None:
    raise Cancel


async def hangs() -> None:
    await asyncio.sleep(600)


async def works() -> None: ...


FAILED_BEFORE = Attempt(
    number=1,
    fence=1,
    node="node-1",  # type: ignore[arg-type]
    started_at=NOW,
    finished_at=NOW,
    end=AttemptEnd.FAILED,
)


@pytest.mark.parametrize(
    ("function", "retries", "attempts", "code"),
    [
        (broken, 0, (), "exception"),
        (broken, 1, (), None),
        (broken, 1, (FAILED_BEFORE,), "exception"),
        (rejects, 5, (), "rejected"),
        (hangs, 0, (), "timeout"),
        (hangs, 1, (), None),
        (cancels, 0, (), None),
        (works, 0, (), None),
    ],
)
async def test_failure_handler_is_called_on_final_failure_only(
    function: Callable[..., object], retries: int, attempts: tuple[Attempt, ...], code: str | None
) -> None:
    handler = RecordingHandler()
    done = await execute_once(
        function,
        timeout=0.1,
        retries=retries,
        run={"id": RunId("run-h"), "attempts": attempts, "attempt": len(attempts) + 1},
        options={"on_failure": handler},
    )
    expected = [] if code is None else [("run-h", code, done.outcome.error)]
    assert handler.calls == expected
    assert (("info", "handled") in done.lines) is (code is not None)
    # A sync handler of an async task must not block the loop.
    assert threading.get_ident() not in handler.threads


async def test_failure_handler_is_called_for_bad_arguments() -> None:
    handler = RecordingHandler()
    await execute_once(works, options={"on_failure": handler}, nonsense=1)
    assert [code for _, code, _ in handler.calls] == ["bad_arguments"]


async def test_error_in_the_failure_handler_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def bad_handler(context: Context, error: TaskError) -> None:
        raise KeyError("handler")

    done = await execute_once(broken, options={"on_failure": bad_handler})
    assert done.outcome.error == "ValueError: x"
    assert done.lines[-1] == ("error", "on_failure failed: KeyError: 'handler'")
    assert "on_failure handler failed" in caplog.text


async def test_cancel_during_the_failure_handler_keeps_the_outcome() -> None:
    begun, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(context: Context, error: TaskError) -> None:
        begun.set()
        await go.wait()
        ended.set()

    registry = Registry()
    registry.add(Task(name="broken", function=broken, on_failure=handler))
    runner = PythonTask(registry)
    await runner.open()
    attempt = asyncio.create_task(runner.execute(a_call("broken")))
    await begun.wait()
    attempt.cancel()
    outcome = await attempt
    assert (outcome.end, outcome.error) == (AttemptEnd.FAILED, "ValueError: x")
    assert not ended.is_set()
    go.set()
    await runner.close()
    assert ended.is_set(), "close() waits for handlers"
