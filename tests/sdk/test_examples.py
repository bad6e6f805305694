"""Every example runs and prints the expected output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAID = {
    "tasks": [
        "invoice for order 42",
        "3",
        "failed: ValueError: no paper left",
        "words @every 1s True",
        "invoices 0 9 * * 1-5 True",
        "invoice for order 1",
    ],
    "flow": ["{'report': 'south: 2100.00', 'celebrate': None}"],
    "transactional": ["order 7 is confirmed", "orders: [7]"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID[path.stem]


def test_guide_links_every_example() -> None:
    guide = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"examples/(\w+)\.py", guide))
    assert named == {path.stem for path in EXAMPLES} == set(SAID)
