"""Public names exist and are imported lazily. `public_types.py` checks their types."""

from __future__ import annotations

import subprocess
import sys

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
            "ActionTarget", "AgentTarget", "AnyOf", "BusinessDay", "Calendar", "Cancel", "Chimes",
            "ChimesError", "RRule", "Sun", "trigger_from_dict",
            "CommandTarget", "Context", "Cron", "Every", "Flow", "HttpTarget", "MessageTarget",
            "OnFile", "OnRunEnd", "OnSql", "Once", "Recipient", "Reject", "Retry",
            "RunCanceled", "RunFailed", "RunHandle", "RunLost", "RunNotCarriedOut", "RunTimedOut",
            "ScheduleInfo", "Task", "TaskError", "Webhook", "__version__", "current_context",
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
