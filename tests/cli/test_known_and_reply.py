"""`chimes known`, `chimes reply`, on a store without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from chimes.cli.command import CONFLICT, NOT_FOUND, USAGE
from chimes.model.ids import RunId
from chimes.model.run import RunStatus
from chimes.model.target import AgentTarget
from chimes.store.sql import open_sqlite
from tests.builders import NOW, a_run, a_schedule
from tests.cli.conftest import Cli

BROKEN = a_schedule(name="Broken", last_error="boom")
FINE = a_schedule(name="Fine")
FAILED = a_run(
    id=RunId("run-failed"),
    schedule_id=BROKEN.id,
    status=RunStatus.FAILED,
    error="boom",
    finished_at=NOW,
)
ANSWER = a_run(
    id=RunId("run-answer"),
    target=AgentTarget(prompt="What is six times seven?"),
    status=RunStatus.SUCCEEDED,
    result={"text": "42"},
)


@pytest.fixture
def store(tmp_path: Path) -> str:
    async def fill() -> None:
        kept = open_sqlite(tmp_path / "chimes.db")
        await kept.open()
        await kept.load([BROKEN, FINE, FAILED, ANSWER])
        await kept.close()

    asyncio.run(fill())
    return f"sqlite:///{tmp_path / 'chimes.db'}"


def test_mark_and_unmark_a_known_failure(cli: Cli, store: str) -> None:
    done = cli("known", "Broken", "--reason", "bank closed", CHIMES_STORE=store)
    assert done.code == 0, done.err
    (row,) = done.rows
    assert row[:3] == [FAILED.id, BROKEN.id, "bank closed"]
    forgotten = cli("known", "Broken", "--forget", CHIMES_STORE=store)
    assert (forgotten.code, forgotten.out) == (0, "")
    assert "Failures of Broken need attention again." in forgotten.err
    verbs = [row[2] for row in cli("audit", CHIMES_STORE=store).rows]
    assert verbs[:2] == ["unmark_known", "mark_known"]


def test_schedule_without_failure_cannot_be_marked(cli: Cli, store: str) -> None:
    done = cli("known", "Fine", CHIMES_STORE=store)
    assert done.code == NOT_FOUND
    assert "Fine has not failed" in done.err
    both = cli("known", "Broken", "--forget", "--reason", "x", CHIMES_STORE=store)
    assert both.code == USAGE


def test_reply_to_an_agent(cli: Cli, store: str, tmp_path: Path) -> None:
    file = tmp_path / "said.txt"
    file.write_text("And twice?")
    done = cli("reply", "run-answer", f"@{file}", "--json", CHIMES_STORE=store)
    assert done.code == 0, done.err
    made = json.loads(done.out)
    found = made[0] if isinstance(made, list) else made.get("items", [made])[0]
    assert found["target"]["prompt"].endswith("And twice?")
    refused = cli("reply", "run-failed", "x", CHIMES_STORE=store)
    assert refused.code != 0
    assert "only an ended run of an agent can be replied to" in refused.err


def test_acknowledge_marks_a_failure(cli: Cli, store: str) -> None:
    done = cli("acknowledge", "run-failed", "--reason", "looking into it", CHIMES_STORE=store)
    assert done.code == 0, done.err
    (row,) = done.rows
    assert row[:3] == [FAILED.id, BROKEN.id, "looking into it"]
    for command in (("acknowledge", "run-failed"), ("known", "Broken")):
        assert cli(*command, "-q", CHIMES_STORE=store).out.split() == [FAILED.id]
    refused = cli("acknowledge", "run-answer", CHIMES_STORE=store)
    assert refused.code == CONFLICT, refused.err
    assert cli("acknowledge", "run-nothing", CHIMES_STORE=store).code == NOT_FOUND
    assert cli("audit", CHIMES_STORE=store).rows[0][2] == "mark_known"
    assert cli("known", "Broken", "--forget", CHIMES_STORE=store).code == 0
