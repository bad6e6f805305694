"""Output of tasks goes to the log of the run and to the streams of the process."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from chimes.targets.python.invocation import capture_prints
from tests.targets.task_calls import a_registry, execute, running


async def prints_inline() -> None:
    print("one")
    await asyncio.sleep(0)
    print("two, ", end="")
    print("three", file=sys.stderr)
    print("and more")
    print("no end", end="")


def in_thread() -> None:
    print("one\ntwo")
    print("wrong", file=sys.stderr, end="")


async def test_printed_lines_are_logged_in_their_run(capsys: pytest.CaptureFixture[str]) -> None:
    with capture_prints():
        async with running(a_registry(prints_inline, in_thread)) as runner:
            inline, thread = await asyncio.gather(
                execute(runner, "prints_inline"), execute(runner, "in_thread")
            )
    assert inline.lines == [
        ("info", "one"),
        ("error", "three"),
        ("info", "two, and more"),
        ("info", "no end"),
    ]
    assert thread.lines == [("info", "one"), ("info", "two"), ("error", "wrong")]
    out, err = capsys.readouterr()
    assert all(each in out for each in ("one\n", "two, ", "and more\n", "no end"))
    assert all(each in err for each in ("three\n", "wrong"))


async def test_output_outside_of_tasks_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr

    def starts_a_thread() -> None:
        other = threading.Thread(target=print, args=("from a thread of its own",))
        other.start()
        other.join()

    with capture_prints():
        print("nobody's")
        sys.stdout.writelines(["a\n", "b\n"])
        assert sys.stdout.encoding == before[0].encoding
        async with running(a_registry(starts_a_thread)) as runner:
            done = await execute(runner, "starts_a_thread")
    assert done.lines == []
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "nobody's\na\nb\nfrom a thread of its own\n"


async def test_output_without_line_end_is_truncated() -> None:
    def floods() -> None:
        for _ in range(100):
            sys.stdout.write("x" * 10_000)

    with capture_prints():
        async with running(a_registry(floods)) as runner:
            done = await execute(runner, "floods")
    ((level, line),) = done.lines
    assert level == "info"
    assert 0 < len(line) <= 8 * 1024
