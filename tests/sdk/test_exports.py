"""Public names exist, are typed, and are imported lazily."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import chimes
from tests.tables import each_row


@each_row("name", chimes.__all__)
def test_all_exports_exist(name: str) -> None:
    assert getattr(chimes, name) is not None
    assert name in dir(chimes)


def test_list_of_exports() -> None:
    """A change of this list is a change of the public API."""
    assert sorted(chimes.__all__) == sorted(
        [
            "ActionTarget", "AgentTarget", "Calendar", "Cancel", "Chimes", "ChimesError", "Context",
            "Cron", "Every", "Flow", "HttpTarget", "MessageTarget", "Once", "Recipient", "Reject",
            "Retry",
            "RunCanceled", "RunFailed", "RunHandle", "RunLost", "RunNotCarriedOut", "RunTimedOut",
            "ScheduleInfo", "Task", "TaskError", "__version__", "current_context",
        ]
    )  # fmt: skip
    assert chimes.__all__ == sorted(chimes.__all__)


def test_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="Chime'"):
        _ = chimes.Chime


HEAVY = ("asyncio", "sqlalchemy", "pydantic", "fastapi", "uvicorn", "aiohttp", "yaml", "click")


def loaded_after(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_loads_nothing_else() -> None:
    assert not loaded_after("import chimes") & {*HEAVY}


def test_building_an_application_imports_no_server() -> None:
    used = loaded_after("from chimes import Chimes; Chimes('memory://')")
    assert not used & {"fastapi", "uvicorn", "aiohttp", "sqlalchemy", "click"}


TYPED = """
from datetime import timedelta
from chimes import Chimes, Context, RunHandle, ScheduleInfo, Task, Flow

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
    wrong: int = await plain(1)
    app.schedule("y", "@daily", plain, mode="paper")
    app.task(retires=1)
"""


#: Cache of mypy, shared between test runs.
_MYPY_CACHE = Path(__file__).parents[2] / ".mypy_cache" / "programs"


def test_public_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(_MYPY_CACHE),
            "--follow-imports=silent", str(program),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=tmp_path,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    wrong = {number for number, line in enumerate(TYPED.splitlines(), 1) if _is_wrong(line)}
    assert {int(line.split(":")[1]) for line in lines} == wrong, done.stdout + done.stderr


def _is_wrong(line: str) -> bool:
    return any(each in line for each in ("wrong: int", 'mode="paper"', "retires=1"))
