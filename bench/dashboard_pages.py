"""Cost of the dashboard's pages with 10,000 schedules and 1,000,000 runs.

    python bench/dashboard_pages.py                       both databases, about ten minutes
    python bench/dashboard_pages.py --store sqlite --runs 200000
    python bench/dashboard_pages.py --kept FILE_OR_URL    keeps the data and reuses it
    python bench/dashboard_pages.py --only /ui/runs       pages whose address starts so

Uses the data of `dashboard_store.py` and the whole HTTP application in this process, with the
requests of a browser. Prints for each page: best and median time to the last byte, CPU time of this
process and the database server, and compressed size alone and with styles and scripts. Exits with 1
if the best time and the CPU time of a page both exceed the budget, or if a page is too large. The
CPU time of a database server on another machine (`--kept`) is not included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from urllib.parse import urlsplit

from dashboard_store import BUDGET, NOW, OWNERS, fill_postgres, fill_sqlite, schedules
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message
from suite.postgres import Postgres

from chimes.config import Settings
from chimes.model.audit import AuditEntry
from chimes.model.ids import InboxId, RunId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.notification import InboxItem
from chimes.model.run import LogEntry, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.validation import check_target
from chimes.runtime.serve import tune_garbage_collector
from chimes.services.access import AccessService
from chimes.services.runs import RunService
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.sql import SqlStore, open_postgres, open_sqlite
from chimes.testing import SettableClock
from chimes.web.requests import WebContext
from chimes.web.server import build_app, dashboard_router

PORT = 7100
#: Compressed HTML, styles and scripts of the largest page.
MAX_BYTES = 120 * 1024
#: Requests per page before measuring: each connection prepares its statements first.
WARM_UP = 5
MESSAGES, CHANGES, LINES = 500, 2_000, 200
_ASSET = re.compile(r'(?:src|href)="(/ui/static/[^"]+\.(?:js|css))"')
CpuClock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    body: bytes
    compressed: bool

    @property
    def text(self) -> str:
        return (gzip.decompress(self.body) if self.compressed else self.body).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    store: str
    page: str
    best_ms: float
    median_ms: float
    cpu_ms: float
    page_kb: float
    with_assets_kb: float

    @property
    def slow(self) -> bool:
        return min(self.best_ms, self.cpu_ms) > BUDGET

    @property
    def large(self) -> bool:
        return self.with_assets_kb * 1024 > MAX_BYTES


async def get(app: ASGIApp, address: str) -> Response:
    """Calls the application as an ASGI server does. RuntimeError for any status but 200."""
    parts = urlsplit(address)
    headers = {
        "host": f"localhost:{PORT}",
        "accept": "text/html,application/xhtml+xml",
        "accept-encoding": "gzip",
        "accept-language": "en",
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", PORT),
        "state": {},
    }
    pieces: list[bytes] = []
    start: Message = {}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    body = b"".join(pieces)
    if start["status"] != 200:
        raise RuntimeError(f"{address}: {start['status']} {body[:300]!r}")
    compressed = (b"content-encoding", b"gzip") in start["headers"]
    return Response(body=body, compressed=compressed)


def build_dashboard(store: SqlStore, clock: SettableClock) -> ASGIApp:
    context = WebContext(
        schedules=ScheduleService(store, ScheduleRules(store, check_target=check_target)),
        runs=RunService(store),
        access=AccessService(store, clock),
        store=store,
        settings=Settings(),
        clock=clock,
        metrics=CollectorRegistry(),
        version="0",
        port=PORT,
        not_ready=lambda: "",
    )
    return build_app(context, compat=[dashboard_router(context)])


def inbox_and_audit(every: list[Schedule]) -> Iterator[InboxItem | AuditEntry]:
    """Inbox messages and audit entries."""
    for n in range(MESSAGES):
        schedule = every[n % len(every)]
        yield InboxItem(
            id=InboxId(f"message-{n:06d}"),
            owner=OWNERS[n % len(OWNERS)],
            run_id=None,
            title=f"{schedule.name} has failed",
            text="It could not connect.\n\n* one\n* two\n",
            schedule_id=schedule.id,
            schedule_name=schedule.name,
            created_at=NOW - timedelta(minutes=n),
        )
    for n in range(CHANGES):
        schedule = every[n % len(every)]
        yield AuditEntry(
            at=NOW - timedelta(minutes=CHANGES - n),
            actor="system",
            interface="api",
            verb="schedule.edited",
            object_kind="schedule",
            object_id=schedule.id,
            owner=str(schedule.owner),
        )


async def add_details(store: SqlStore, every: list[Schedule]) -> None:
    """Adds what the bulk inserts leave out, and rolls the runs up as maintenance does."""
    for item in inbox_and_audit(every):
        if isinstance(item, InboxItem):
            await store.add_inbox(item)
        else:
            await store.append_audit(item)
    lines = [LogEntry(at=NOW, message=f"line {n} of the log") for n in range(LINES)]
    await store.append_logs(RunId("active-1"), 1, lines)
    while await store.roll_up(limit=5000) == 5000:
        pass


async def addresses(store: SqlStore) -> list[str]:
    some = (await store.list_schedules(ScheduleQuery(limit=4))).items[3]
    failed = await store.list_runs(RunQuery(statuses=(RunStatus.FAILED,), limit=1))
    schedule, run = f"/ui/schedules/{some.id}", f"/ui/runs/{failed.items[0].id}"
    return [
        "/ui/",
        "/ui/schedules",
        "/ui/schedules?q=status%3Afailed",
        "/ui/schedules?q=label%3Ateam%3Dteam-3+next%3A%3C1h",
        "/ui/schedules?view=cards",
        "/ui/schedules?view=month",
        "/ui/schedules/new",
        schedule,
        f"{schedule}/runs",
        f"{schedule}/log",
        "/ui/runs",
        "/ui/runs?q=status%3Afailed",
        f"/ui/runs?q=schedule%3A{some.id}",
        run,
        f"{run}?tab=error",
        "/ui/runs/active-1",
        "/ui/inbox",
        "/ui/system",
        "/ui/system?span=7d",
        "/ui/system/audit",
    ]


async def weight(app: ASGIApp, page: Response) -> tuple[float, float]:
    """Compressed KB of the page alone, and with its styles and scripts."""
    found = {address: await get(app, address) for address in _ASSET.findall(page.text)}
    with_assets = len(page.body) + sum(len(each.body) for each in found.values())
    return len(page.body) / 1024, with_assets / 1024


async def measure(
    name: str, store: SqlStore, clock: SettableClock, options: Options, cpu_clock: CpuClock
) -> list[Row]:
    app, rows = build_dashboard(store, clock), []
    # The settings of a node.
    tune_garbage_collector()
    print(f"{name}\n  {'':48} {'best':>7} {'median':>7} {'cpu':>7} ms {'KB':>6} {'all':>6}")
    pages = [page for page in await addresses(store) if page.startswith(options.only)]
    for page in pages:
        for _ in range(WARM_UP):
            response = await get(app, page)
        took, spent = [], cpu_clock()
        for _ in range(options.rounds):
            begun = perf_counter()
            response = await get(app, page)
            took.append((perf_counter() - begun) * 1000)
        spent = (cpu_clock() - spent) / options.rounds * 1000
        alone, with_assets = await weight(app, response)
        row = Row(
            store=name,
            page=page,
            best_ms=round(min(took), 1),
            median_ms=round(median(took), 1),
            cpu_ms=round(spent, 1),
            page_kb=round(alone, 1),
            with_assets_kb=round(with_assets, 1),
        )
        rows.append(row)
        print(format_row(row), flush=True)
    return rows


def format_row(row: Row) -> str:
    times = f"{row.best_ms:7.1f} {row.median_ms:7.1f} {row.cpu_ms:7.1f}   "
    note = f"{'  too slow' if row.slow else ''}{'  too large' if row.large else ''}"
    name = re.sub(r"[0-9a-f-]{32,}", "…", row.page)
    return f"  {name:48} {times} {row.page_kb:6.1f} {row.with_assets_kb:6.1f}{note}"


class Options(argparse.Namespace):
    store: str | None
    kept: str
    only: str
    runs: int
    schedules: int
    rounds: int
    json: Path | None


async def on_sqlite(path: Path, options: Options) -> list[Row]:
    clock = SettableClock(NOW)
    store = open_sqlite(path, clock=clock)
    await store.open()
    if not await store.count_schedules(ScheduleQuery()):
        await store.close()
        every = list(schedules(options.schedules))
        await asyncio.to_thread(fill_sqlite, path, every, options.runs)
        store = open_sqlite(path, clock=clock)
        await store.open()
        await add_details(store, every)
    try:
        return await measure("SQLite", store, clock, options, process_time)
    finally:
        await store.close()


async def on_postgres(url: str, options: Options, server_cpu: CpuClock) -> list[Row]:
    clock = SettableClock(NOW)
    store = open_postgres(url, clock=clock)
    await store.open()
    try:
        if not await store.count_schedules(ScheduleQuery()):
            every = list(schedules(options.schedules))
            await fill_postgres(url, every, options.runs)
            await add_details(store, every)
        return await measure(
            "PostgreSQL", store, clock, options, lambda: process_time() + server_cpu()
        )
    finally:
        await store.close()


async def server_of(url: str) -> str:
    """Pid of the database server if it runs on this machine, otherwise an empty string."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await asyncio.to_thread(parent_of, connection.get_server_pid())
    finally:
        await connection.close()


def parent_of(backend: int) -> str:
    stat = Path(f"/proc/{backend}/stat")
    text = stat.read_text() if stat.exists() else ""
    return text.rpartition(")")[2].split()[1] if "(postgres)" in text else ""


def children_cpu_seconds(parent: str) -> float:
    """CPU seconds of the children of a process so far."""
    nanoseconds = 0
    for stat in Path("/proc").glob("[0-9]*/stat") if parent else ():
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == parent:
                nanoseconds += int(stat.with_name("schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def measure_all(options: Options) -> Iterator[Row]:
    if options.kept.startswith("postgresql://"):
        server = asyncio.run(server_of(options.kept))
        yield from asyncio.run(
            on_postgres(options.kept, options, lambda: children_cpu_seconds(server))
        )
        return
    if options.kept:
        yield from asyncio.run(on_sqlite(Path(options.kept), options))
        return
    if options.store != "postgresql":
        with tempfile.TemporaryDirectory(prefix="chimes-pages-") as folder:
            yield from asyncio.run(on_sqlite(Path(folder) / "chimes.db", options))
    if options.store != "sqlite":
        with Postgres() as server:
            url = server.fresh_database("dashboard")
            yield from asyncio.run(on_postgres(url, options, server.cpu_seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), help="measure only this store")
    parser.add_argument("--kept", default="", help="file or postgresql:// URL that keeps the data")
    parser.add_argument("--only", default="", help="pages whose address starts so")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(namespace=Options())
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = list(measure_all(options))
    if options.json is not None:
        sizes = {"runs": options.runs, "schedules": options.schedules, "rounds": options.rounds}
        conditions = sizes | {"cpus": os.cpu_count(), "load": os.getloadavg()}
        text = json.dumps(conditions | {"pages": [asdict(row) for row in rows]}, indent=1)
        options.json.write_text(text + "\n")
    return 1 if any(row.slow or row.large for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
