"""`chimes inbox`, `chimes deliveries`, on a store without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from chimes.cli.command import NOT_FOUND
from chimes.model.ids import DeliveryId, InboxId, RunId
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.store.port import Item
from chimes.store.sql import open_sqlite
from tests.builders import ALICE, NOW, a_delivery, a_run, an_item
from tests.cli.conftest import Cli

RUN = a_run(id=RunId("run-abc"), status=RunStatus.SUCCEEDED)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with two messages, a dead letter and a delivered one."""
    items: Sequence[Item] = [
        RUN,
        an_item(id=InboxId("item-one"), title="First \x1b[31m", text="**one**\n\x07line"),
        an_item(id=InboxId("item-two"), title="Second", read_at=NOW),
        a_delivery(
            id=DeliveryId("letter-dead"),
            run_id=RUN.id,
            state=DeliveryState.DEAD,
            attempts=8,
            error="HTTP 500",
            finished_at=NOW,
        ),
        a_delivery(id=DeliveryId("letter-sent"), state=DeliveryState.DELIVERED, finished_at=NOW),
    ]

    async def fill() -> None:
        kept = open_sqlite(tmp_path / "chimes.db")
        await kept.open()
        await kept.load(items)
        await kept.close()

    asyncio.run(fill())
    return f"sqlite:///{tmp_path / 'chimes.db'}"


def test_the_inbox_is_listed_read_and_marked(cli: Cli, store: str) -> None:
    owner = ("--owner", str(ALICE))

    def inbox(*arguments: str) -> list[list[str]]:
        done = cli("inbox", *owner, *arguments, CHIMES_STORE=store)
        assert done.code == 0, done.err
        return done.rows

    assert {row[0]: row[1] for row in inbox()} == {"item-one": "unread", "item-two": "read"}
    assert [row[0] for row in inbox("--unread")] == ["item-one"]
    shown = cli("inbox", *owner, "item-o", CHIMES_STORE=store)
    assert shown.out == "First \\x1b[31m\n**one**\n\\x07line\n"
    assert inbox("--unread") == []
    assert inbox("--archived") == []
    # The inbox of another owner is not read or marked unless --owner is given.
    assert cli("inbox", CHIMES_STORE=store).rows == []
    assert cli("inbox", *owner, "--read-all", CHIMES_STORE=store).out == "0 marked as read\n"
    marked = cli("inbox", "--read", "item-two", "--json", CHIMES_STORE=store)
    assert json.loads(marked.out)[0]["read"] is True
    assert cli("inbox", "nothing-like-it", CHIMES_STORE=store).code == NOT_FOUND


def test_dead_letters_are_listed_and_retried(cli: Cli, store: str) -> None:
    listed = cli("deliveries", "--dead", CHIMES_STORE=store)
    assert [row[:3] for row in listed.rows] == [["letter-dead", "dead", "inbox"]]
    assert "HTTP 500" in listed.out
    assert cli("deliveries", "run-abc", "-q", CHIMES_STORE=store).out == "letter-dead\n"
    assert len(cli("deliveries", CHIMES_STORE=store).rows) == 2
    again = cli("deliveries", "retry", "letter-d", CHIMES_STORE=store)
    assert again.rows[0][:2] == ["letter-dead", "pending"]
    assert cli("deliveries", "--dead", CHIMES_STORE=store).out == ""
    refused = cli("deliveries", "retry", "letter-sent", CHIMES_STORE=store)
    assert (refused.code != 0, "already delivered" in refused.err) == (True, True)


def test_all_dead_letters_are_retried(cli: Cli, store: str) -> None:
    none = cli("deliveries", "retry", "--dead", "--channel", "email", "-q", CHIMES_STORE=store)
    assert (none.code, none.out) == (0, "")
    again = cli("deliveries", "retry", "--dead", CHIMES_STORE=store)
    assert [row[:2] for row in again.rows] == [["letter-dead", "pending"]]
    assert cli("deliveries", "--dead", CHIMES_STORE=store).out == ""


@pytest.mark.parametrize("arguments", [("retry",), ("one", "two")])
def test_ambiguous_arguments_are_usage_errors(
    cli: Cli, store: str, arguments: tuple[str, ...]
) -> None:
    assert cli("deliveries", *arguments, CHIMES_STORE=store).code == 2


def test_invalid_recipient_of_a_test_message_is_rejected(cli: Cli, store: str) -> None:
    done = cli("deliveries", "test", "email:nobody", CHIMES_STORE=store)
    assert done.code != 0
    assert "an address such as ada@example.com" in done.err
    done = cli("deliveries", "test", "pigeon:7", CHIMES_STORE=store)
    assert done.code != 0
    done = cli("deliveries", "letter-dead", "x", CHIMES_STORE=store)
    assert "test RECIPIENT" in done.err
