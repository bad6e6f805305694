"""The commands of the README, executed as written."""

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
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", README, re.DOTALL)
#: Lines that are not executed: the test has its own receiver.
NOT_OURS = ("python3 -m http.server", "kill %1")
QUICK_START = [text for kind, text in BLOCKS if kind == "sh" and "make serve" not in text]


def test_python_blocks_run() -> None:
    for kind, text in BLOCKS:
        if kind == "python":
            subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


def test_shell_blocks_run(tmp_path: Path, start: Start, receiver: Receiver) -> None:
    """In order, against a node and a receiver on free ports instead of 7100 and 8000."""
    assert len(QUICK_START) >= 3
    node = start(f"sqlite:///{tmp_path / 'readme.db'}")
    environment = os.environ | {"CHIMES_URL": f"http://127.0.0.1:{node.port}"}
    seen: list[set[str]] = []
    for text in QUICK_START:
        script = "\n".join(line for line in text.splitlines() if not line.startswith(NOT_OURS))
        script = script.replace(".venv/bin/chimes", str(Path(sys.executable).with_name("chimes")))
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
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        assert '"status":4' not in done.stdout, done.stdout
        names = {schedule["name"] for schedule in node.get("/api/v1/schedules")["items"]}
        seen.append(names)
    assert {"first", "morning report"} in seen
    assert seen[-1] == set()


@pytest.mark.parametrize("target", ["setup", "serve", "test", "check"])
def test_commands_named_in_the_readme_exist(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
