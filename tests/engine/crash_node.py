"""A node process for crash tests: `crash_node.py DATABASE EFFECTS`.

Each call of its target appends a line `run fence` to the file EFFECTS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta

from chimes.config import Settings
from chimes.engine import Engine
from chimes.model.run import AttemptEnd, Outcome
from chimes.store.sql import open_sqlite
from chimes.targets.base import Call

SETTINGS = Settings(
    workers=5,
    # Long enough for a node on a busy machine to keep it.
    lease=timedelta(seconds=3),
    poll_interval=timedelta(seconds=0.2),
    shutdown_grace=timedelta(seconds=3),
    telegram_allowed_chats=("7",),
)


class Effects:
    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        os.write(self._file, f"{call.run.id} {call.run.fence}\n".encode())
        return Outcome(end=AttemptEnd.SUCCEEDED)


async def main(database: str, effects: str) -> None:
    store = open_sqlite(database)
    await store.open()
    engine = Engine(store, {"http": Effects(effects)}, settings=SETTINGS)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await engine.start()
    print("ready", flush=True)
    await stop.wait()
    await engine.drain()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
