"""A node process that dies between sending and recording the result."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.engine import Engine
from chimes.model import replace
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Digest, Period, Recipient
from chimes.model.run import RunStatus
from chimes.notifications.inbox import Inbox
from chimes.store.port import Store
from chimes.store.sql import open_sqlite
from tests.builders import ALICE
from tests.engine.crash_node import SETTINGS
from tests.engine.deliver_node import Agent, telegram
from tests.engine.rig import Rig, eventually
from tests.engine.test_digests import add_with_deliveries, ended_run
from tests.notifications.bot_api import BotApi, bot_api

ROOT = Path(__file__).parents[2]
CHAT = Recipient(channel=Channel.TELEGRAM, to="7")
INBOX = Recipient(channel=Channel.INBOX)


@asynccontextmanager
async def killed_node(database: Path, api: BotApi, failpoints: str) -> AsyncIterator[int]:
    """Yields the exit code after the node was killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.engine.deliver_node",
        str(database),
        api.url,
        env=os.environ
        | {
            "CHIMES_TEST": "1",
            "CHIMES_FAILPOINTS": failpoints,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        },
    )
    try:
        yield await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def another_node(store: Store, api: BotApi) -> AsyncIterator[None]:
    engine = Engine(
        store, {"http": Agent()}, settings=SETTINGS, senders=[Inbox(), telegram(api.url)]
    )
    await engine.start()
    try:
        yield
    finally:
        await engine.drain(timedelta(0))


# The delivery is sent again: one row, one inbox item, and the run is unchanged.
@pytest.mark.parametrize(
    ("failpoint", "messages"), [("deliver.after_send", 2), ("deliver.before_send", 1)]
)
@pytest.mark.parametrize("recipient", [CHAT, INBOX], ids=["telegram", "inbox"])
async def test_a_kill_around_sending_repeats_the_message_and_loses_nothing(
    tmp_path: Path, recipient: Recipient, failpoint: str, messages: int
) -> None:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    try:
        rig = Rig(store, "sqlite")
        schedule = await rig.due_now(policy=Policy(delivery=(recipient,)), owner=ALICE)
        async with bot_api() as api:
            async with killed_node(tmp_path / "chimes.db", api, f"{failpoint}:kill") as code:
                assert code == -signal.SIGKILL
            (run,) = await rig.runs(schedule)
            assert run.status is RunStatus.SUCCEEDED
            (left,) = (await store.list_deliveries(DeliveryQuery())).items
            assert (left.state, left.attempts) == (DeliveryState.PENDING, 1)
            async with another_node(store, api):
                (done,) = await eventually(lambda: _delivered(store), lambda found: found)
            assert (done.id, done.attempts) == (left.id, 2)
            assert await rig.run(run.id) == run
            assert len((await store.list_deliveries(DeliveryQuery())).items) == 1
            items = (await store.list_inbox(InboxQuery())).items
            if recipient is CHAT:
                # Both contain the run's id.
                assert len(api.texts) == messages
                assert all(run.id in text for text in api.texts)
                assert items == ()
            else:
                assert len(items) == 1
    finally:
        await store.close()


async def _delivered(store: Store) -> tuple[Delivery, ...]:
    query = DeliveryQuery(states=(DeliveryState.DELIVERED,))
    return (await store.list_deliveries(query)).items


# The next node sends the same digest, and its members are completed once.
async def test_a_kill_after_sending_a_digest_repeats_the_whole_digest(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    try:
        recipient = replace(CHAT, digest=Digest(every=Period.DAY, zone="UTC"))
        before = await store.now() - timedelta(days=2)
        rows = await add_with_deliveries(
            store, *(ended_run(number, before, recipient=recipient) for number in range(3))
        )
        (digest,) = [each for each in rows if each.run_id is None]
        failpoint = "deliver.after_send:kill"
        async with bot_api() as api:
            async with killed_node(tmp_path / "chimes.db", api, failpoint) as code:
                assert code == -signal.SIGKILL
            assert await _delivered(store) == ()
            async with another_node(store, api):
                done = await eventually(lambda: _delivered(store), lambda found: len(found) == 4)
            assert {each.receipt for each in done if each.id != digest.id} == {digest.id}
            # A slow node may send it once more.
            first, *repeated = api.texts
            assert repeated
            assert set(repeated) == {first}
            assert first.startswith("Digest: 3 runs")
    finally:
        await store.close()
