"""Messages in the JSON file and their archive."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model.definition import AgentTarget, Channel, NotifyOn, Policy
from chimes.model.ids import DeliveryId, InboxId, RunId
from chimes.model.listing import InboxQuery
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.schedule import apply_edit
from chimes.store.json_values import to_text
from chimes.store.jsonfile import JsonFileStore
from chimes.store.jsonfile import files as disk
from chimes.store.jsonfile.state import DELIVERED, ITEMS, SLACK
from chimes.store.port import Item
from tests.builders import (
    CHAT,
    HOOK,
    HOUR,
    INBOX,
    NOW,
    SECOND,
    a_delivery,
    a_run,
    a_schedule,
    an_item,
)
from tests.store.jsonfiles import crash, document, dumped, opened

ARCHIVE = "messages-203001.jsonl"


def delivered(number: int) -> Delivery:
    at = NOW + number * SECOND
    return a_delivery(
        id=DeliveryId(f"d-{number:05d}"),
        state=DeliveryState.DELIVERED,
        created_at=at,
        finished_at=at,
    )


def an_old_item(number: int, **given: Any) -> InboxItem:
    return an_item(
        id=InboxId(f"i-{number:05d}"), created_at=NOW + number * SECOND, text="long", **given
    )


SENT = [delivered(number) for number in range(DELIVERED + SLACK + 1)]
READ = [an_old_item(number) for number in range(ITEMS + SLACK + 1)]


async def fill(store: JsonFileStore, *items: Item) -> None:
    """The second change is the one that archives what the first made durable."""
    await store.load(items)
    await store.load([])


def archived(directory: Path) -> list[str]:
    rows = [json.loads(line) for line in (directory / ARCHIVE).read_bytes().splitlines()]
    return [next(iter(row.values()))["id"] for row in rows]


async def everything(store: JsonFileStore) -> set[Item]:
    return set(await dumped(store))


async def test_old_messages_leave_the_file_and_are_still_there(tmp_path: Path) -> None:
    waiting = a_delivery(created_at=NOW - HOUR)
    dead = a_delivery(state=DeliveryState.DEAD, created_at=NOW - HOUR, finished_at=NOW - HOUR)
    async with opened(tmp_path) as store:
        await fill(store, waiting, dead, *SENT, *READ)
        part = document(tmp_path)["chimes"]
        kept = {row["id"] for row in part["deliveries"]}
        assert kept == {waiting.id, dead.id, *(each.id for each in SENT[-DELIVERED:])}
        assert {row["id"] for row in part["inbox"]} == {item.id for item in READ[-ITEMS:]}
        old = [*(each.id for each in SENT[:-DELIVERED]), *(item.id for item in READ[:-ITEMS])]
        assert archived(tmp_path) == old
        assert part["filed_deliveries"] == [each.id for each in SENT[:-DELIVERED]]
        assert part["filed_inbox"] == [{"id": item.id} for item in READ[:-ITEMS]]
        before = await everything(store)
        assert before == {waiting, dead, *SENT, *READ}
    async with opened(tmp_path) as store:
        assert await everything(store) == before
        assert (await store.status()).degraded == ""


async def test_an_archived_item_is_read_and_starred(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, *READ)
        first = await store.change_inbox(
            READ[0].id, lambda item, now: replace(item, read_at=now, starred=True)
        )
        part = document(tmp_path)["chimes"]
        assert part["filed_inbox"][0] == {
            "id": first.id,
            "read_at": to_text(NOW),
            "starred": True,
        }
        # Another text goes back into the file.
        second = await store.change_inbox(
            READ[1].id, lambda item, now: replace(item, title="other")
        )
        part = document(tmp_path)["chimes"]
        assert second.id in {row["id"] for row in part["inbox"]}
    async with opened(tmp_path) as store:
        assert {first, second} < await everything(store)
        assert len((await store.list_inbox(InboxQuery(limit=None))).items) == len(READ)


async def test_what_is_forgotten_stays_forgotten(tmp_path: Path) -> None:
    starred = replace(READ[0], starred=True)
    async with opened(tmp_path) as store:
        await fill(store, starred, *READ[1:], *SENT)
        end = NOW + HOUR
        await store.prune_messages(before=end, limit=10_000)
        assert await everything(store) == {starred}
    async with opened(tmp_path) as store:
        assert await everything(store) == {starred}
        # Much waste in few lines of use is thrown away at last; one is left.
        await store.change_inbox(starred.id, lambda item, now: replace(item, starred=False))
        await store.prune_messages(before=end, limit=10_000)
        assert not (tmp_path / ARCHIVE).exists()
        # The same id is another message then.
        assert await store.add_inbox(starred) == starred
    async with opened(tmp_path) as store:
        assert await everything(store) == {starred}


async def test_an_archive_that_is_gone_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, *READ)
    (tmp_path / ARCHIVE).unlink()
    async with opened(tmp_path) as store:
        assert await everything(store) == set(READ[-ITEMS:])
        assert f"{SLACK + 1} archived messages" in (await store.status()).degraded


# between the archive and the file without them
async def test_a_crash_before_the_file_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.load(READ)

        def full(*_given: object, **_named: object) -> Path:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(disk, "prepare", full)
            with pytest.raises(StoreUnavailable):
                await store.load([a_run(id=RunId("lost"))])
        assert (tmp_path / ARCHIVE).exists()
        assert await everything(store) == set(READ)
        await store.load([])
        assert await everything(store) == set(READ)
        crash(store)
    async with opened(tmp_path) as store:
        assert await everything(store) == set(READ)
        assert (await store.status()).degraded == ""


# the shape of a job stays, also for a prompt and whom it tells
async def test_an_agent_job_and_its_recipients(tmp_path: Path) -> None:
    target = AgentTarget(prompt="สรุปข่าว", model="small", max_tokens=500)
    schedule = a_schedule(target=target, policy=Policy(delivery=(INBOX, CHAT, HOOK)))
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
        job = document(tmp_path)["jobs"][0]
        assert (job["type"], job["agent"]) == (
            "agent",
            {"prompt": "สรุปข่าว", "model": "small", "max_tokens": 500},
        )
        assert [each["channel"] for each in job["chimes"]["policy"]["delivery"]] == [
            "inbox",
            "telegram",
            "webhook",
        ]
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) == schedule
        # One that says less says less in the file, too.
        short = AgentTarget(prompt="x")
        after = await store.change_schedule(
            schedule.id, lambda s, now: apply_edit(s, replace(s, target=short), now, "me")
        )
        assert document(tmp_path)["jobs"][0]["agent"] == {"prompt": "x"}
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) == after


@pytest.mark.parametrize(
    ("edit", "error"),
    [({"prompt": "another"}, ""), ({"prompt": ""}, "prompt"), ({"max_tokens": "x"}, "max_tokens")],
)
async def test_a_prompt_that_was_edited_by_hand(
    tmp_path: Path, edit: dict[str, object], error: str
) -> None:
    schedule = a_schedule(target=AgentTarget(prompt="one"), policy=Policy(delivery=(INBOX,)))
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
    data = document(tmp_path)
    data["jobs"][0]["agent"] |= edit
    (tmp_path / "jobs.json").write_text(json.dumps(data))
    async with opened(tmp_path) as store:
        after = await store.get_schedule(schedule.id)
        assert after is not None
        if error:
            assert not after.enabled
            assert error in after.last_error
        else:
            assert after.target == AgentTarget(prompt="another")
            assert (after.policy.delivery, after.version) == ((INBOX,), schedule.version + 1)


# a job that was taken out by hand tells of the runs that end with it
async def test_a_job_that_was_taken_out_tells_of_its_waiting_runs(tmp_path: Path) -> None:
    schedule = a_schedule(policy=Policy(delivery=(INBOX,)))
    run = a_run(schedule)
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
        await store.add_runs([run])
    data = document(tmp_path)
    data["jobs"] = []
    (tmp_path / "jobs.json").write_text(json.dumps(data))
    async with opened(tmp_path) as store:
        (row,) = await store.claim_deliveries(
            Channel, limit=9, lease=timedelta(minutes=1), overdue=HOUR
        )
        assert (row.run_id, row.notify_on) == (run.id, NotifyOn.ALWAYS)
