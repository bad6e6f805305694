"""A sample application that uses the public names with their types.

mypy checks it with `make check`, pyright with `test_types.py`. Lines with `type: ignore` are wrong
on purpose: both report a comment that is not needed.
"""

# ruff: noqa: F841 (variables state the expected types)

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from chimes import Chimes, Context, Flow, RunHandle, ScheduleInfo, Task

app = Chimes("memory://")


@dataclass
class Invoice:
    number: int
    lines: list[str]


@app.task
async def plain(number: int, *, label: str = "") -> str:
    return f"{label}{number}"


@app.task(name="other", retries=3, timeout=timedelta(seconds=5), isolation="process")
def sync(context: Context, text: str) -> int:
    return len(text)


@app.task(queue="mail")
async def write(context: Context, number: int) -> Invoice:
    return Invoice(number, [])


@app.task
def clean() -> None:
    pass


@app.task
def late(number: int, context: Context | None = None) -> int:
    return number


@app.task
def loose(payload: Any, times: int = 1) -> int:
    return times


class ReportInput(TypedDict):
    count: int


class ReportResult(TypedDict):
    total: int


flow: Flow = app.flow("f")
untyped = app.flow("g")
report: Flow[ReportInput, ReportResult] = app.flow("report")


@flow.step(after=[])
def one(n: int) -> int:
    return n


@report.step
def total(count: int) -> int:
    return sum(range(count))


app.schedule("x", "@daily", plain, mode="db", args={"number": 1}, catch_up="all")


async def run_any(task: Task[[int], str]) -> str:
    return await (await task.enqueue(1)).result()


async def main() -> None:
    assert_type(await plain(1), str)
    called: Coroutine[Any, Any, str] = plain(1)
    assert_type(sync(Context.__new__(Context), "x"), int)
    assert_type(one(1), int)

    assert_type(await plain.enqueue(1, label="x"), RunHandle[str])
    assert_type(await (await plain.enqueue(number=1)).result(timeout="5s"), str)
    assert_type(await (await sync.enqueue("x")).result(), int)
    assert_type(await (await sync.options(delay="5m", priority=3).enqueue(text="x")).result(), int)
    assert_type(await (await write.enqueue(7)).result(), Invoice)
    assert_type(await write.options(key="7").enqueue(number=7), RunHandle[Invoice])
    assert_type(await late.enqueue(1), RunHandle[int])
    await (await clean.enqueue()).result()
    await loose.enqueue(payload={"a": 1}, times=2)
    await loose.enqueue([1])
    handle: RunHandle = await plain.enqueue(1)
    assert_type(await app.run_handle(handle.id).result(), object)
    by_name: RunHandle = await app.enqueue("plain", {"number": 1})

    started: RunHandle = await flow.start({"n": 1})
    assert_type(await (await untyped.start()).result(), dict[str, object])
    assert_type(await (await report.start({"count": 4})).result(), ReportResult)

    listed: list[ScheduleInfo] = await app.list_schedules()
    triggered: RunHandle = await app.trigger_schedule("x")


async def wrong() -> None:
    number: int = await plain(1)  # type: ignore[assignment]
    app.schedule("y", "@daily", plain, mode="paper")  # type: ignore[arg-type]
    app.task(retires=1)  # type: ignore[call-overload]

    await plain.enqueue("1")  # type: ignore[arg-type]
    await plain.enqueue()  # type: ignore[call-arg]
    await plain.enqueue(1, lable="x")  # type: ignore[call-arg]
    await plain.enqueue(1, delay="5m")  # type: ignore[call-arg]
    await plain.options(delay="5m").enqueue("1")  # type: ignore[arg-type]
    plain.options(dealy="5m")  # type: ignore[call-arg]
    await sync.enqueue(1)  # type: ignore[arg-type]
    await sync.options(key="a").enqueue()  # type: ignore[call-arg]
    await clean.enqueue(1)  # type: ignore[call-arg]
    text: str = await (await sync.enqueue("x")).result()  # type: ignore[assignment]
    handle: RunHandle[int] = await plain.enqueue(1)  # type: ignore[assignment]
    await run_any(write)  # type: ignore[arg-type]

    await report.start({"count": "4"})  # type: ignore[arg-type]
    await report.start({"cuont": 4})  # type: ignore[arg-type]
    (await (await report.start({"count": 4})).result())["totals"]  # type: ignore[typeddict-item]
