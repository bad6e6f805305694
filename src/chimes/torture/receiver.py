"""The receiver of all callbacks of a torture run: a process without faults.

    main(), with a file as argument     prints its port, then serves until its stdin ends

Every request is on disk before the response. The last part of a path is the schedule's id, the
first one the behaviour: /hook/ID, /slow/MILLISECONDS/ID, /flaky/ID (500 for the first attempt),
/fail/ID (always 500).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from aiohttp import web


class Ledger:
    """An append-only file with group commit."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._pending: list[tuple[bytes, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()

    async def write(self, line: bytes) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((line, written))
        self._arrived.set()
        await written

    async def serve(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._pending = self._pending, []
            await asyncio.to_thread(self._sync, b"".join(line for line, _ in batch))
            for _, written in batch:
                if not written.done():
                    written.set_result(None)

    def _sync(self, data: bytes) -> None:
        self._file.write(data)
        os.fdatasync(self._file.fileno())


async def handle(request: web.Request, ledger: Ledger) -> web.Response:
    arrived = time.time_ns() // 1000
    headers = request.headers
    body = await request.json()
    entry = {
        "t": arrived,
        "began": body["began"],
        "run_id": headers["X-Ksana-Run-Id"],
        "schedule_id": headers["X-Chimes-Schedule-Id"],
        "slot": headers["X-Chimes-Slot"],
        "fence": int(headers["X-Chimes-Fence"]),
        "attempt": int(headers["X-Chimes-Attempt"]),
        "node": headers.get("X-Chimes-Node", ""),
        "path": request.path,
    }
    await ledger.write(json.dumps(entry).encode() + b"\n")
    match request.path.split("/")[1:]:
        case ["slow", milliseconds, _]:
            await asyncio.sleep(int(milliseconds) / 1000)
        case ["flaky", _] if entry["attempt"] == 1:
            return web.Response(status=500, text="not yet")
        case ["fail", _]:
            return web.Response(status=500, text="never")
    return web.Response(text="ok")


async def serve(path: Path) -> None:
    ledger = Ledger(path)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", lambda request: handle(request, ledger))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    writing = asyncio.create_task(ledger.serve())
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    writing.cancel()
    await runner.cleanup()


def main() -> None:
    asyncio.run(serve(Path(sys.argv[1])))
