"""Chimes nodes with a steady load, the receiver of their calls, and the counts at the end."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import asyncpg
from aiohttp import web

from tests.ha.network import Network
from tests.ha.processes import Process
from tests.system.node import wait_until

CHIMES = str(Path(sys.executable).with_name("chimes"))
RECEIVER_PORT = 7000
FIRST_PORT = 7101
#: Each schedule has one slot per second.
SCHEDULES = 200
STEP = 1_000_000
#: Attempts of a request.
ATTEMPTS = 100
TERMINAL = ("succeeded", "failed", "timeout", "canceled", "unknown", "missed", "skipped")
#: A call that is later than this is late because of the fault.
LATE_SECONDS = 2.0
#: What the tested configuration sets; everything else is the default.
SETTINGS = {"CHIMES_LEASE": "60s"}


@dataclass(frozen=True, slots=True)
class Call:
    at: float
    run_id: str
    schedule_id: str
    slot: int
    attempt: int


class Receiver:
    """Records every call; each answer is different, so that results can be told apart."""

    def __init__(self, executor: Executor) -> None:
        self.calls: list[Call] = []
        self._numbers = itertools.count(1)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._done = executor.submit(asyncio.run, self._serve())
        assert self._ready.wait(60), "the receiver has not started"

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", RECEIVER_PORT, backlog=1024).start()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        headers = request.headers
        self.calls.append(
            Call(
                time.time(),
                headers["X-Chimes-Run-Id"],
                headers["X-Chimes-Schedule-Id"],
                _micros(headers["X-Chimes-Slot"]),
                int(headers["X-Chimes-Attempt"]),
            )
        )
        return web.Response(text=f"call {next(self._numbers)}")

    def close(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._done.result(60)


@dataclass(frozen=True)
class Row:
    run_id: str
    schedule_id: str
    slot: int
    status: str
    attempt: int
    end: tuple[str, int, str]
    missed_count: int


class Load:
    """Nodes on one host, with 200 slots a second."""

    def __init__(
        self, network: Network, host: str, store: str, directory: Path, nodes: int
    ) -> None:
        self._threads: ThreadPoolExecutor = network.threads(host, 6)
        self.receiver = Receiver(self._threads)
        self._directory = directory
        self.nodes = [
            Process(
                [*network.inside(host), CHIMES, "serve"],
                directory / f"node{number}.log",
                user=None,
                cwd=directory,
            )
            for number in range(nodes)
        ]
        self._store = store
        #: The first slot of each schedule.
        self.first: dict[str, int] = {}
        self.paused = 0.0

    def __enter__(self) -> Self:
        try:
            for number, node in enumerate(self.nodes):
                node.start(
                    CHIMES_STORE=self._store,
                    CHIMES_PORT=str(FIRST_PORT + number),
                    CHIMES_LOG_FORMAT="json",
                    **SETTINGS,
                )
                wait_until(lambda number=number: self.is_ready(number), "readiness", 120)
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if error is not None:
            error.add_note("\n".join(self.troubles()))
        for node in self.nodes:
            node.end()
        self.receiver.close()
        self._threads.shutdown()

    def is_ready(self, number: int) -> bool:
        return self._threads.submit(self._request, number, "GET", "/ready", None).result()[0] == 200

    def _post(self, path: str, body: object) -> Any:
        """Repeats the request with the same idempotency key while the store does not answer."""
        key = secrets.token_hex(8)
        for number in itertools.count():
            status, answer = self._request(number % len(self.nodes), "POST", path, body, key)
            if status < 300 and status:
                return answer
            # 409: the first request has not ended yet.
            assert status in (0, 409, 503), (status, answer)
            assert number < ATTEMPTS, (status, answer)
            time.sleep(0.5)  # as Retry-After would demand
        raise AssertionError

    def _request(
        self, number: int, method: str, path: str, body: object, key: str = ""
    ) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{FIRST_PORT + number}{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def create_schedules(self) -> None:
        bodies = [
            {
                "name": f"tick {number}",
                "trigger": {"kind": "every", "every": "1s"},
                "target": {"kind": "http", "url": f"http://127.0.0.1:{RECEIVER_PORT}/tick"},
                "policy": {"overlap": "allow", "misfire": "all", "max_retries": 0},
            }
            for number in range(SCHEDULES)
        ]
        for answer in self._threads.map(lambda body: self._post("/api/v1/schedules", body), bodies):
            self.first[answer["id"]] = _micros(answer["next_run_at"])

    def pause_schedules(self) -> None:
        self.paused = time.time()

        list(
            self._threads.map(
                lambda each: self._post(f"/api/v1/schedules/{each}/pause", {}), self.first
            )
        )

    def wait_for_calls(self, count: int, within: float = 120.0) -> None:
        wanted = len(self.receiver.calls) + count
        wait_until(lambda: len(self.receiver.calls) >= wanted, f"{count} calls", within)

    def wait_until_on_time(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.is_on_time():
                return True
            time.sleep(0.1)
        return False

    def is_on_time(self) -> bool:
        recent = self.receiver.calls[-SCHEDULES:]
        return bool(recent) and max(each.at - each.slot / STEP for each in recent) < LATE_SECONDS

    def log_lines(self) -> Iterator[dict[str, Any]]:
        for node in self.nodes:
            for line in node.log.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    yield json.loads(line)

    def events(self) -> Counter[str]:
        return Counter(line.get("event", "") for line in self.log_lines())

    def troubles(self) -> list[str]:
        """The last warnings and errors of the nodes."""
        found = [json.dumps(each) for each in self.log_lines() if each.get("level") != "info"]
        return found[-40:]


class Observer:
    """Notes the results of runs that anybody could have seen, once a second."""

    def __init__(self, executor: Executor, store: str) -> None:
        self.seen: dict[str, tuple[str, int, str]] = {}
        self._store = store
        self._stop = threading.Event()
        self._done = executor.submit(asyncio.run, self._watch())

    async def _watch(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InternalClientError):
                for row in await read_rows(self._store, "WHERE finished_at > {now} - 10000000"):
                    if row.status in TERMINAL:
                        self.seen[row.run_id] = row.end
            await asyncio.sleep(1)

    def close(self) -> None:
        self._stop.set()
        self._done.result(60)


async def read_rows(store: str, where: str = "") -> list[Row]:
    connection = await asyncpg.connect(store, timeout=4, ssl=False)
    try:
        rows = await connection.fetch(
            "SELECT r.id, d.schedule_id, r.slot, r.status, r.attempt, r.fence, r.result,"
            " r.missed_count FROM runs r JOIN definitions d ON d.key = r.definition "
            + where.format(now="(extract(epoch FROM now()) * 1000000)::bigint"),
            timeout=30,
        )
    finally:
        await connection.close(timeout=4)
    return [
        Row(
            run_id=row["id"],
            schedule_id=row["schedule_id"],
            slot=row["slot"],
            status=row["status"],
            attempt=row["attempt"],
            end=(row["status"], row["fence"], row["result"] or ""),
            missed_count=row["missed_count"] or 0,
        )
        for row in rows
    ]


@dataclass(kw_only=True)
class Counts:
    mode: str = ""
    fault: str = ""
    schedules: int = SCHEDULES
    nodes: int = 0
    seconds: float = 0.0
    slots: int = 0
    runs: int = 0
    #: Slots without a record.
    lost: int = 0
    #: Slots that did not run, with the reason on record.
    missed: int = 0
    #: Slots with several runs, or called under several run ids.
    doubled: int = 0
    #: Runs that have not ended, or that succeeded without a call.
    unended: int = 0
    hollow: int = 0
    #: Ended runs whose result was another one later, or that were gone.
    results_changed: int = 0
    calls: int = 0
    #: Calls of a run beyond its first.
    repeated: int = 0
    #: Of them: the next attempt of a run whose node had lost its lease.
    repeated_after_lost_lease: int = 0
    #: Of them: the same attempt again, because the store had lost the first one.
    repeated_after_lost_commits: int = 0
    #: Nodes that detected lost commits, and leases lost.
    regressions: int = 0
    leases_lost: int = 0
    #: Seconds from the fault until another server accepts writes, until the next call, and until
    #: calls are on time again; None: the machine was too busy for that.
    leader_after: float = 0.0
    calls_after: float = 0.0
    on_time_after: float | None = 0.0

    @property
    def unexplained(self) -> int:
        explained = self.repeated_after_lost_lease + self.repeated_after_lost_commits
        return self.repeated - explained

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"repeated_unexplained": self.unexplained}


@dataclass(kw_only=True)
class Records:
    """What a run left behind."""

    first: dict[str, int]
    paused: float
    rows: list[Row]
    calls: list[Call]
    seen: dict[str, tuple[str, int, str]] = field(default_factory=dict)


def count(records: Records, *, may_lose_commits: bool) -> Counts:
    """A repetition of the same attempt is explained by lost commits only if they may be lost."""
    by_slot: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in records.rows:
        by_slot[row.schedule_id, row.slot].append(row)
    found = Counts(runs=len(records.rows), calls=len(records.calls))
    for schedule_id, first in records.first.items():
        slots = set(_slots(first, by_slot, schedule_id, records.paused))
        found.slots += len(slots)
        found.lost += sum((schedule_id, slot) not in by_slot for slot in slots)
    found.missed = sum(row.status in ("missed", "skipped") for row in records.rows)
    ids: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    by_run: defaultdict[str, list[Call]] = defaultdict(list)
    for call in records.calls:
        ids[call.schedule_id, call.slot].add(call.run_id)
        by_run[call.run_id].append(call)
    several = {slot for slot, rows in by_slot.items() if len(rows) > 1}
    found.doubled = len(several | {slot for slot, each in ids.items() if len(each) > 1})
    rows = {row.run_id: row for row in records.rows}
    found.unended = sum(row.status not in TERMINAL for row in records.rows)
    found.hollow = sum(
        row.status == "succeeded" and row.run_id not in by_run for row in rows.values()
    )
    found.results_changed = sum(
        run_id not in rows or rows[run_id].end != end for run_id, end in records.seen.items()
    )
    for run_id, calls in by_run.items():
        attempts = Counter(call.attempt for call in calls)
        again = sum(number - 1 for number in attempts.values())
        on_record = run_id in rows and rows[run_id].attempt >= max(attempts)
        found.repeated += len(calls) - 1
        found.repeated_after_lost_lease += (len(attempts) - 1) if on_record else 0
        found.repeated_after_lost_commits += again if may_lose_commits else 0
    return found


def _slots(
    first: int, by_slot: Iterable[tuple[str, int]], schedule_id: str, paused: float
) -> Iterable[int]:
    """Every slot until the schedule was paused: at least those due when the pause was requested."""
    last = max((slot for each, slot in by_slot if each == schedule_id), default=first)
    due = first + (int(paused * STEP) - first) // STEP * STEP
    return range(first, max(last, due) + 1, STEP)


def after_fault(counts: Counts, calls: list[Call], fault: float, leader: float) -> None:
    """Fills in the times: `fault` and `leader` are when it began and when there was a leader."""
    counts.leader_after = round(leader - fault, 1)
    next_call = min((call.at for call in calls if call.at >= leader), default=leader)
    counts.calls_after = round(next_call - fault, 1)
    late = [
        call.at for call in calls if call.at > fault and call.at - call.slot / STEP > LATE_SECONDS
    ]
    counts.on_time_after = round(max(late, default=fault) - fault, 1)


def _micros(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * STEP)
