"""A Python client that openapi-python-client generates: typed, and complete for a round trip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.test_typescript import PACKAGE, node, receiver
from tests.system.node import Node
from tests.system.receiver import Receiver

__all__ = ["node", "receiver"]
GENERATOR = "openapi-python-client==0.29.1"
BIN = Path(sys.executable).parent
PROGRAM = """
import sys, time
from chimes_api import Client
from chimes_api.api.runs import get_run, get_run_logs
from chimes_api.api.schedules import create_schedule, list_schedules, run_schedule
from chimes_api.models import (
    CronTrigger, EveryTrigger, HttpTargetIn, LogPage, Problem, Run, RunStatus, Schedule,
    ScheduleIn, SchedulePage,
)

client = Client(base_url=sys.argv[1])
made = create_schedule.sync(client=client, body=ScheduleIn(
    name="generated",
    trigger=CronTrigger(kind="cron", expression="0 9 1 1 *", timezone="Asia/Bangkok"),
    target=HttpTargetIn(url=sys.argv[2], kind="http"),
))
assert isinstance(made, Schedule), made
assert isinstance(made.trigger, CronTrigger)
page = list_schedules.sync(client=client, name="generated")
assert isinstance(page, SchedulePage)
assert [each.id for each in page.items] == [made.id]
run = run_schedule.sync(made.id, client=client)
assert isinstance(run, Run), run
for _ in range(600):
    found = get_run.sync(run.id, client=client)
    assert isinstance(found, Run)
    if found.finished_at is not None:
        assert found.status == RunStatus.SUCCEEDED, found
        break
    time.sleep(0.1)
else:
    raise SystemExit("the run has not ended")
logs = get_run_logs.sync(run.id, client=client)
assert isinstance(logs, LogPage), logs
assert any("POST" in line.message for line in logs.items)
wrong = create_schedule.sync(client=client, body=ScheduleIn(
    name="wrong", trigger=EveryTrigger(kind="every", every="soon"),
    target=HttpTargetIn(url=sys.argv[2], kind="http"),
))
assert isinstance(wrong, Problem), wrong
assert wrong.errors
print("done")
"""


def _run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},  # the generator calls ruff
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_generated_client_is_typed_and_works(
    tmp_path: Path, node: Node, receiver: Receiver
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    _run(BIN / "uv", "venv", tmp_path / "venv", "--python", sys.executable, cwd=tmp_path)
    packages = (GENERATOR, "httpx", "attrs", "python-dateutil", "types-python-dateutil")
    _run(BIN / "uv", "pip", "install", "--quiet", "--python", python, *packages, cwd=tmp_path)
    generated = tmp_path / "chimes_api"
    output = _run(
        *(tmp_path / "venv" / "bin" / "openapi-python-client", "generate", "--meta", "none"),
        *("--path", PACKAGE / "openapi.json", "--output-path", generated, "--fail-on-warning"),
        cwd=tmp_path,
    )
    assert "Warning" not in output, output
    unnamed = [each.stem for each in (generated / "models").glob("*.py")]
    assert [each for each in unnamed if re.search(r"type_\d|model_?\d", each)] == []
    (tmp_path / "program.py").write_text(PROGRAM)
    # The generated transport has errors of its own under these types of httpx.
    typed = ("--follow-imports", "silent", "--python-executable", python)
    _run(BIN / "mypy", *typed, "chimes_api/models", "chimes_api/api", cwd=tmp_path)
    _run(BIN / "mypy", *typed, "--strict", "program.py", cwd=tmp_path)
    url = f"http://127.0.0.1:{node.port}"
    assert "done" in _run(python, "program.py", url, receiver.url("/hook"), cwd=tmp_path)
