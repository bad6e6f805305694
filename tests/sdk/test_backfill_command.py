"""`chimes store backfill-schedules`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.forking import run_chimes

MODULE = """
from chimes import Chimes
app = Chimes(use_db_driven_scheduling=False)

@app.task
async def report() -> None: ...

app.schedule("hourly", "@hourly", report)
app.schedule("daily", "0 9 * * *", report)
app.schedule("kept", "0 9 * * *", report, mode="db")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(MODULE)
    return tmp_path


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = ["store", "backfill-schedules", *arguments, "--store", "sqlite:///shop.db"]
    return run_chimes(given, cwd=home)


def names(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {row["name"]: row["result"] for row in json.loads(done.stdout)}


def test_dry_run_canary_and_full_backfill(shop: Path) -> None:
    dry = run(shop, "--app", "shop:app", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    assert names(dry) == {"hourly": "new", "daily": "new"}
    assert "2 of 2 schedules would be written" in dry.stderr
    refused = run(shop, "--app", "shop:app")
    assert refused.returncode == 1
    assert "Nothing was written" in refused.stderr
    canary = run(shop, "--app", "shop:app", "--only", "daily", "--yes", "--json")
    assert names(canary) == {"daily": "created"}
    done = run(shop, "--app", "shop:app", "--yes", "--json")
    assert names(done) == {"hourly": "created", "daily": "exists"}
    again = run(shop, "--app", "shop:app", "--yes", "--json")
    assert names(again) == {"hourly": "exists", "daily": "exists"}
    assert "0 of 2 schedules would be written" in again.stderr


def test_missing_application_is_an_error(shop: Path) -> None:
    nothing = run(shop)
    assert nothing.returncode == 2
    assert "--app MODULE:NAME" in nothing.stderr
    unknown = run(shop, "--app", "shop:app", "--only", "dialy")
    assert unknown.returncode != 0
    assert "did you mean daily" in unknown.stderr
