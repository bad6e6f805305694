"""Deliveries and inbox items in the JSON file and its archive; recipients in jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.ids import DeliveryId, InboxId, RunId
from chimes.model.listing import InboxQuery
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.schedule import apply_edit
from chimes.model.target import AgentTarget
from chimes.store.codec.values import to_text
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


DELIVERIES = [delivered(number) for number in range(DELIVERED + SLACK + 1)]
INBOX_ITEMS = [an_old_item(number) for number in range(ITEMS + SLACK + 1)]


async def fill(store: JsonFileStore, *items: Item) -> None:
    """The second change archives what the first made durable."""
    await store.load(items)
    await store.load([])


def archived(directory: Path) -> list[str]:
    rows = [json.loads(line) for line in (directory / ARCHIVE).read_bytes().splitlines()]
    return [next(iter(row.values()))["id"] for row in rows]


async def all_items(store: JsonFileStore) -> set[Item]:
    return set(await dumped(store))


async def test_old_messages_are_archived_and_still_readable(tmp_path: Path) -> None:
    waiting = a_delivery(created_at=NOW - HOUR)
    dead = a_delivery(state=DeliveryState.DEAD, created_at=NOW - HOUR, finished_at=NOW - HOUR)
    async with opened(tmp_path) as store:
        await fill(store, waiting, dead, *DELIVERIES, *INBOX_ITEMS)
        part = document(tmp_path)["chimes"]
        kept = {row["id"] for row in part["deliveries"]}
        assert kept == {waiting.id, dead.id, *(each.id for each in DELIVERIES[-DELIVERED:])}
        assert {row["id"] for row in part["inbox"]} == {item.id for item in INBOX_ITEMS[-ITEMS:]}
        old = [
            *(each.id for each in DELIVERIES[:-DELIVERED]),
            *(item.id for item in INBOX_ITEMS[:-ITEMS]),
        ]
        assert archived(tmp_path) == old
        assert part["filed_deliveries"] == [each.id for each in DELIVERIES[:-DELIVERED]]
        assert part["filed_inbox"] == [{"id": item.id} for item in INBOX_ITEMS[:-ITEMS]]
        before = await all_items(store)
        assert before == {waiting, dead, *DELIVERIES, *INBOX_ITEMS}
    async with opened(tmp_path) as store:
        assert await all_items(store) == before
        assert (await store.status()).degraded == ""


async def test_archived_item_can_be_marked_read_and_starred(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, *INBOX_ITEMS)
        first = await store.change_inbox(
            INBOX_ITEMS[0].id, lambda item, now: replace(item, read_at=now, starred=True)
        )
        part = document(tmp_path)["chimes"]
        assert part["filed_inbox"][0] == {
            "id": first.id,
            "read_at": to_text(NOW),
            "starred": True,
        }
        # An item with a changed text moves back into the file.
        second = await store.change_inbox(
            INBOX_ITEMS[1].id, lambda item, now: replace(item, title="other")
        )
        part = document(tmp_path)["chimes"]
        assert second.id in {row["id"] for row in part["inbox"]}
    async with opened(tmp_path) as store:
        assert {first, second} < await all_items(store)
        assert len((await store.list_inbox(InboxQuery(limit=None))).items) == len(INBOX_ITEMS)


async def test_pruned_archived_messages_stay_deleted(tmp_path: Path) -> None:
    starred = replace(INBOX_ITEMS[0], starred=True)
    async with opened(tmp_path) as store:
        await fill(store, starred, *INBOX_ITEMS[1:], *DELIVERIES)
        end = NOW + HOUR
        await store.prune_messages(before=end, limit=10_000)
        assert await all_items(store) == {starred}
    async with opened(tmp_path) as store:
        assert await all_items(store) == {starred}
        # The archive is removed with its last item.
        await store.change_inbox(starred.id, lambda item, now: replace(item, starred=False))
        await store.prune_messages(before=end, limit=10_000)
        assert not (tmp_path / ARCHIVE).exists()
        # The id can be used again.
        assert await store.add_inbox(starred) == starred
    async with opened(tmp_path) as store:
        assert await all_items(store) == {starred}


async def test_missing_archive_is_reported(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, *INBOX_ITEMS)
    (tmp_path / ARCHIVE).unlink()
    async with opened(tmp_path) as store:
        assert await all_items(store) == set(INBOX_ITEMS[-ITEMS:])
        assert f"{SLACK + 1} archived messages" in (await store.status()).degraded


async def test_failed_write_after_archiving_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.load(INBOX_ITEMS)

        def full(*_given: object, **_named: object) -> Path:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(disk, "prepare", full)
            with pytest.raises(StoreUnavailable):
                await store.load([a_run(id=RunId("lost"))])
        assert (tmp_path / ARCHIVE).exists()
        assert await all_items(store) == set(INBOX_ITEMS)
        await store.load([])
        assert await all_items(store) == set(INBOX_ITEMS)
        crash(store)
    async with opened(tmp_path) as store:
        assert await all_items(store) == set(INBOX_ITEMS)
        assert (await store.status()).degraded == ""


async def test_agent_job_and_its_recipients_round_trip(tmp_path: Path) -> None:
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
        # Optional fields without a value are omitted.
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
async def test_manual_edit_of_a_prompt_is_applied_or_rejected(
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


# The job is removed by a manual edit.
async def test_removed_job_writes_deliveries_of_its_queued_runs(tmp_path: Path) -> None:
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
