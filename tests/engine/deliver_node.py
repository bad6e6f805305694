"""A node process that delivers to Telegram: `deliver_node.py DATABASE API_URL`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from chimes.egress import EgressRules
from chimes.engine import Engine, deliverer
from chimes.model.run import AttemptEnd, Outcome
from chimes.notifications.attachments import AttachmentFetcher
from chimes.notifications.inbox import Inbox
from chimes.notifications.telegram import Telegram
from chimes.store.sql import open_sqlite
from chimes.targets.base import Call
from tests.engine.crash_node import SETTINGS
from tests.notifications.bot_api import TOKEN


class Agent:
    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"text": "**all** is well"})


def telegram(api_url: str) -> Telegram:
    fetcher = AttachmentFetcher(egress=EgressRules(open_mode=False), user_agent="test")
    return Telegram(token=TOKEN, api_url=api_url, fetcher=fetcher)


async def main(database: str, api_url: str) -> None:
    # Short, so that the next node takes over soon.
    deliverer.LEASE = timedelta(seconds=1)
    store = open_sqlite(database)
    await store.open()
    engine = Engine(
        store, {"http": Agent()}, settings=SETTINGS, senders=[Inbox(), telegram(api_url)]
    )
    await engine.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
