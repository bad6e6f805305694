"""A program that uses the public names with their types; mypy checks it (`make check`).

Lines with `type: ignore` are wrong on purpose: mypy reports a comment that is not needed.
"""

# ruff: noqa: F841 (variables state the expected types)

from __future__ import annotations

from datetime import timedelta

from chimes import Chimes, Context, Flow, RunHandle, ScheduleInfo

app = Chimes("memory://")


@app.task
async def plain(number: int) -> str:
    return str(number)


@app.task(name="other", retries=3, timeout=timedelta(seconds=5), isolation="process")
def sync(text: str, context: Context) -> int:
    return len(text)


flow: Flow = app.flow("f")


@flow.step(after=[])
def one(n: int) -> int:
    return n


app.schedule("x", "@daily", plain, mode="db", args={"number": 1}, catch_up="all")


async def main() -> None:
    text: str = await plain(1)
    handle: RunHandle = await plain.enqueue(1)
    other: RunHandle = await sync.options(delay="5m").enqueue("x")
    started: RunHandle = await flow.start({"n": 1})
    listed: list[ScheduleInfo] = await app.list_schedules()
    triggered: RunHandle = await app.trigger_schedule("x")
    number: int = one(1)
    wrong: int = await plain(1)  # type: ignore[assignment]
    app.schedule("y", "@daily", plain, mode="paper")  # type: ignore[arg-type]
    app.task(retires=1)  # type: ignore[call-overload]
