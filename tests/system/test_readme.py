"""The commands of the README, the tutorial and the quick starts, executed as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.receiver import Receiver

ROOT = Path(__file__).parents[2]
#: Lines that are not executed: the test has its own server and receiver.
NOT_OURS = ("make ", "python3 -m http.server", "kill %1")
#: Pages whose shell blocks leave no schedule behind; the quick ones run with every test.
QUICK = ("README.md", "docs/tutorial/first-alert.md")
LONG = (
    "docs/tutorial/first-schedule.md",
    "docs/concepts/time-zones.md",
    "docs/migrate/quartz.md",
    pytest.param("docs/th/index.md", marks=pytest.mark.long),
    pytest.param("docs/zh/index.md", marks=pytest.mark.long),
)
#: Pages whose Python blocks are one program.
PYTHON = (
    "README.md",
    "docs/tutorial/first-task.md",
    "docs/tutorial/first-flow.md",
    "docs/th/index.md",
    "docs/zh/index.md",
)


def blocks(page: str, kind: str) -> list[str]:
    found = re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found, page
    return found


@pytest.mark.parametrize("page", PYTHON)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    text = "\n".join(blocks(page, "python"))
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60, cwd=tmp_path)


@pytest.mark.parametrize("pages", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_shell_blocks_run(
    pages: tuple[str, ...], tmp_path: Path, start: Start, receiver: Receiver
) -> None:
    """In order, against a node and a receiver on free ports instead of 7100 and 8000."""
    node = start(f"sqlite:///{tmp_path / 'readme.db'}")
    environment = os.environ | {"CHIMES_URL": f"http://127.0.0.1:{node.port}"}
    seen: set[str] = set()
    for page in pages:
        for text in blocks(page, "sh"):
            script = "\n".join(line for line in text.splitlines() if not line.startswith(NOT_OURS))
            chimes = str(Path(sys.executable).with_name("chimes"))
            script = script.replace(".venv/bin/chimes", chimes)
            script = script.replace("127.0.0.1:7100", f"127.0.0.1:{node.port}")
            script = script.replace("http://127.0.0.1:8000/", receiver.url("/"))
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                env=environment,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, f"{page}\n{script}\n{done.stdout}\n{done.stderr}"
            assert '"status":4' not in done.stdout, done.stdout
            seen |= {schedule["name"] for schedule in node.get("/api/v1/schedules")["items"]}
        assert node.get("/api/v1/schedules")["items"] == [], page
    assert "first" in seen


@pytest.mark.parametrize("target", ["setup", "serve", "test", "check"])
def test_commands_named_in_the_readme_exist(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
