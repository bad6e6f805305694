"""`chimes torture` as users call it: short runs on every store, planted bugs, refusals."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chimes.cli.command import CONFLICT, INCONCLUSIVE, OK, UNREACHABLE, USAGE
from tests.forking import run_chimes
from tests.servers.kinds import REDIS
from tests.servers.redis_places import empty_redis_url
from tests.servers.server import wait_for
from tests.system.servers import sql
from tests.system.torture.__main__ import FILES, SERVERS, target

#: Generous: the machine runs other tests as well.
DEADLINE = 600


def torture(
    directory: Path, *options: str, timeout: float = DEADLINE
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    report = directory / "report.json"
    report.unlink(missing_ok=True)
    done = run_chimes(
        ["torture", *options, "--report", str(report)], cwd=directory, timeout=timeout
    )
    return done, json.loads(report.read_text()) if report.exists() else {}


# --- refusals -------------------------------------------------------------------------------------
def refused(directory: Path, url: str) -> str:
    done, report = torture(directory, "--store", url)
    assert done.returncode == CONFLICT, done.stderr
    assert not report
    assert "is not empty" in done.stderr
    return done.stderr


def test_database_with_data_is_refused_and_unchanged(tmp_path: Path) -> None:
    database = tmp_path / "mine.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    before = database.read_bytes()
    refused(tmp_path, f"sqlite:///{database}")
    assert database.read_bytes() == before
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "jobs.json").write_text("{}")
    assert "jobs.json" in refused(tmp_path, f"json:///{tmp_path / 'data'}")


def test_server_with_data_is_refused(tmp_path: Path, postgres_url: str, mariadb_url: str) -> None:
    for url in (postgres_url, mariadb_url):
        sql(url, "CREATE TABLE mine (id INTEGER)", "INSERT INTO mine VALUES (1)")
        assert "1 tables" in refused(tmp_path, url)
        assert [tuple(row) for row in sql(url, "SELECT id FROM mine")] == [(1,)]


def test_redis_with_data_is_refused(tmp_path: Path) -> None:
    url = empty_redis_url()
    server, _, number = url.partition("?")[0].rpartition("/")
    port = int(server.rpartition(":")[2])
    wait_for(REDIS.admin(port, (f"SELECT {number}", "SET mine 1")))
    assert "keys)" in refused(tmp_path, f"{server}/{number}")


def test_impossible_requests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    file = f"sqlite:///{tmp_path / 'x.db'}"
    for options, code, says in (
        ([], USAGE, "--store is missing"),
        (["--store", f"json:///{tmp_path / 'j'}", "--nodes", "2"], USAGE, "one node"),
        (["--store", "memory://"], 6, "memory store"),
        (["--store", "postgresql://a,b/d"], 6, "one host"),
        (["--store", "postgresql://127.0.0.1:1/d"], UNREACHABLE, "127.0.0.1"),
        (["--store", file, "--work-dir", str(tmp_path / "kept")], USAGE, "is not empty"),
    ):
        done, report = torture(tmp_path, *options)
        assert (done.returncode, report) == (code, {}), done.stderr
        assert says in done.stderr


# --- runs -----------------------------------------------------------------------------------------
@pytest.fixture(params=[*SERVERS, *FILES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    with target(request.param, tmp_path) as options:
        yield request.param, options


@pytest.mark.long
@pytest.mark.timeout(4 * DEADLINE)
def test_short_run_on_each_store(store: tuple[str, list[str]], tmp_path: Path) -> None:
    name, options = store
    more = () if name == "json" else ("--nodes", "3")
    for seed in ("7", "8", "9"):
        done, report = torture(
            tmp_path, *options, *more, "--minutes", "0.5", "--seed", seed, "--drop"
        )
        assert done.returncode in (OK, INCONCLUSIVE), done.stderr + json.dumps(report, indent=1)
        if done.returncode == OK:
            break
        # On a busy machine a fault may come too late to have an effect: try again. The database
        # is empty, because of --drop.
    assert report["result"] == "pass", report["inconclusive_because"]
    assert (report["lost"], report["doubled"], report["results_changed"]) == (0, 0, 0)
    assert report["runs"] >= report["slots"] > 0
    assert sum(report["faults_by_class"].values()) == report["faults"] >= 5


@pytest.mark.long
@pytest.mark.timeout(5 * DEADLINE)
@pytest.mark.parametrize("name", ["sqlite", "pg"])
def test_planted_bugs_are_found(name: str, tmp_path: Path) -> None:
    with target(name, tmp_path) as options:
        done, report = torture(tmp_path, *options, "--self-test", timeout=4 * DEADLINE)
    assert done.returncode == OK, done.stderr
    found = {bug["planted_bug"] for bug in report["bugs"] if bug["found"]}
    special = "node_clock" if name == "sqlite" else "dropped_completions"
    assert found == {"no_fence", "not_atomic", "no_trust_window", special}


@pytest.mark.long
def test_run_without_effects_is_inconclusive(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('[{"at": 0.5, "kind": "stop_short", "node": 0, "seconds": 0.2}]')
    file = f"sqlite:///{tmp_path / 'x.db'}"
    options = ("--minutes", "0.05", "--nodes", "2", "--schedules", "10", "--plan", str(plan))
    done, report = torture(tmp_path, "--store", file, *options)
    assert done.returncode == INCONCLUSIVE, done.stderr
    assert report["result"] == "inconclusive"
    assert any(reason.startswith("takeovers") for reason in report["inconclusive_because"])
    # Without --drop the data stays, and a second run is refused.
    refused(tmp_path, file)
