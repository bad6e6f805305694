"""A real node on SQLite: idle with 100,000 schedules, and 1,000 due in the same second.

Starts `chimes serve` as a process on a throw-away file, calls only a receiver on loopback, and
prints what /proc says about the process. Absolute figures depend on the machine; run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

from chimes.clock import SystemClock
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule, planned
from chimes.model.target import HttpTarget
from chimes.store.sql import open_sqlite
from chimes.triggers import Cron, Once

CHIMES = str(Path(sys.executable).with_name("chimes"))
TICK = os.sysconf("SC_CLK_TCK")


def schedule(number: int, trigger: Cron | Once, url: str, now: datetime) -> Schedule:
    return planned(
        Schedule(
            id=ScheduleId(f"bench-{number:06d}"),
            name=f"bench {number}",
            trigger=trigger,
            target=HttpTarget(url=url, method="GET"),
            policy=Policy(),
            created_at=now,
            updated_at=now,
        ),
        now,
    )


async def fill(path: Path, schedules: list[Schedule]) -> float:
    store = open_sqlite(path, clock=SystemClock())
    await store.open()
    begun = time.perf_counter()
    for start in range(0, len(schedules), 1000):
        await store.load(schedules[start : start + 1000])
    took = time.perf_counter() - begun
    await store.close()
    return took


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def start(path: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"CHIMES_STORE": f"sqlite:///{path}", "CHIMES_PORT": "0"}
    environment |= {"LOG_LEVEL": "warning"}
    process = subprocess.Popen([CHIMES, "serve"], env=environment, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b"Press Ctrl-C" not in process.stderr.readline():
        assert process.poll() is None, "the node did not start"
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


async def idle(count: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "idle.db"
        now = SystemClock().now()
        triggers = [Cron(f"{n % 60} {n // 60 % 24} 1 1 *", timezone="UTC") for n in range(1440)]
        rows = [
            schedule(n, triggers[n % 1440], "http://127.0.0.1:9999/", now) for n in range(count)
        ]
        took = await fill(path, rows)
        process = start(path)
        await asyncio.sleep(5)
        before, memory = cpu_seconds(process.pid), resident_mib(process.pid)
        await asyncio.sleep(seconds)
        used = cpu_seconds(process.pid) - before
        print(f"idle with {count:,} schedules (loaded in {took:.1f} s), {seconds} s:")
        print(
            f"  CPU {used / seconds:.2%}, RSS {memory:.0f} -> {resident_mib(process.pid):.0f} MiB"
        )
        stop(process)


async def herd(count: int) -> None:
    arrived: list[float] = []
    done = asyncio.Event()

    async def receive(request: web.Request) -> web.Response:
        arrived.append(time.time())
        if len(arrived) == count:
            done.set()
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "herd.db"
        due = (datetime.now(UTC) + timedelta(seconds=8)).replace(microsecond=0)
        now = SystemClock().now()
        url = f"http://127.0.0.1:{port}/"
        await fill(path, [schedule(n, Once(due), url, now) for n in range(count)])
        process = start(path)
        async with asyncio.timeout(60):
            await done.wait()
        late = sorted(at - due.timestamp() for at in arrived)
        print(f"{count:,} due in the same second on SQLite, WORKERS 100, one node:")
        print(
            f"  first {late[0] * 1000:.0f} ms, median {statistics.median(late) * 1000:.0f} ms, "
            f"p99 {late[int(count * 0.99)] * 1000:.0f} ms, last {late[-1] * 1000:.0f} ms"
        )
        stop(process)
    await runner.cleanup()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--herd", type=int, default=1000)
    given = parser.parse_args()
    await idle(given.schedules, given.seconds)
    await herd(given.herd)


asyncio.run(main())
