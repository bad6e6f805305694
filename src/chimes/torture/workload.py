"""Clients that create, edit, pause, resume, delete and trigger schedules over HTTP on any node.

Every call is recorded as `invoke`, then `ok` (confirmed), `fail` (refused) or `info` (unknown). The
schedule of an unknown change is read later and recorded as `read`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp

from chimes.torture.nodes import Node
from chimes.torture.oracle import SECOND, text_of

ENDED = "succeeded,failed,timeout,canceled,skipped,missed,unknown"
#: Timeouts of an API call, under faults and after them.
CALL_SECONDS = 4.0
SLOW_CALL_SECONDS = 30.0
#: Schedules are created until there are this many times as many as at the start.
MAX_GROWTH = 1.2
Note = Callable[..., None]


class Workload:
    def __init__(
        self,
        seed: int,
        nodes: Sequence[Node],
        receiver: int,
        note: Note,
        *,
        schedules: int,
        calls: float,
        slow: int = 0,
    ) -> None:
        """`calls` is the rate per second after set-up. `slow`: milliseconds that every callback
        takes, instead of the usual mix."""
        self._rng = random.Random(seed)  # noqa: S311
        self._slow = slow
        self._nodes = nodes
        self._receiver = receiver
        self._note = note
        self._count = schedules
        self._calls = calls
        self._made = 0
        self._keys = 0
        #: Schedules that are not deleted and not being changed.
        self._idle: list[str] = []
        self._paused: set[str] = set()
        self._doubtful: set[str] = set()
        self._http: aiohttp.ClientSession | None = None
        self._patience = aiohttp.ClientTimeout(total=CALL_SECONDS)

    async def __aenter__(self) -> Workload:
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._http is not None
        await self._http.close()

    # --- phases -------------------------------------------------------------------------------
    async def set_up(self) -> None:
        gate = asyncio.Semaphore(8)

        async def one() -> None:
            async with gate:
                await self._create()

        await asyncio.gather(*(one() for _ in range(self._count)))

    async def run(self) -> None:
        """Runs several clients, because a call may hang for seconds, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            clients = 4
            for _ in range(clients):
                group.create_task(self._client(clients / self._calls))

    async def _client(self, pause: float) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / pause))
            await self._one_call()

    async def wind_down(self, within: float) -> list[str]:
        """Pauses all schedules and returns those that could not be paused. It gives up after this
        many seconds without progress: a slow machine may need minutes for all of them."""
        deadline = time.monotonic() + within
        gate = asyncio.Semaphore(8)
        self._patience = aiohttp.ClientTimeout(total=SLOW_CALL_SECONDS)

        async def settled(schedule_id: str) -> bool:
            async with gate:
                return await self._pause(schedule_id)

        left = sorted({*self._idle, *self._doubtful})
        while left and time.monotonic() < deadline:
            done = await asyncio.gather(*(settled(each) for each in left))
            if any(done):
                deadline = time.monotonic() + within
            left = [each for each, ok in zip(left, done, strict=True) if not ok]
        return left

    async def backlog(self) -> int | None:
        """Number of runs that have not ended; None without an answer."""
        answer = await self._request("GET", "/api/v1/system")
        if answer is None or answer[0] != 200:
            return None
        runs: dict[str, int] = answer[1]["runs"]
        return runs.get("queued", 0) + runs.get("running", 0)

    # --- calls --------------------------------------------------------------------------------
    async def _one_call(self) -> None:
        verb = self._rng.choices(
            ("trigger", "edit", "rename", "pause", "create", "delete", "look_up"),
            (4, 3, 2, 3, 3, 1, 2),
        )[0]
        if verb == "create" and len(self._idle) < MAX_GROWTH * self._count:
            await self._create()
            return
        if verb == "look_up":
            if self._doubtful:
                await self._look_up(self._rng.choice(sorted(self._doubtful)))
            return
        if not self._idle:
            return
        schedule_id = self._idle.pop(self._rng.randrange(len(self._idle)))
        with self._doubtful_if_left(schedule_id):
            await self._call(verb, schedule_id)

    async def _call(self, verb: str, schedule_id: str) -> None:
        match verb:
            case "trigger":
                await self._trigger(schedule_id)
            case "edit":
                await self._change(schedule_id, "edit", "PATCH", "", {"trigger": self._timing()})
            case "rename":
                name = f"renamed {self._rng.randrange(1000)}"
                await self._change(schedule_id, "rename", "PATCH", "", {"name": name})
            case "pause" if schedule_id in self._paused:
                await self._change(schedule_id, "resume", "POST", "/resume", None)
            case "pause":
                await self._change(schedule_id, "pause", "POST", "/pause", None)
            case _:  # also instead of a creation
                await self._change(schedule_id, "delete", "DELETE", "", None)

    async def _create(self) -> None:
        self._made += 1
        schedule_id = f"s{self._made:05}"
        with self._doubtful_if_left(schedule_id):
            await self._change(schedule_id, "create", "POST", None, self._draft(schedule_id))

    @contextlib.contextmanager
    def _doubtful_if_left(self, schedule_id: str) -> Iterator[None]:
        """Marks the schedule of a call that is interrupted at the end, so that it is paused too."""
        try:
            yield
        except asyncio.CancelledError:
            self._doubtful.add(schedule_id)
            raise

    async def _change(
        self, schedule_id: str, op: str, method: str, tail: str | None, body: Any
    ) -> None:
        path = "/api/v1/schedules" if tail is None else f"/api/v1/schedules/{schedule_id}{tail}"
        key = self._key()
        self._note("invoke", op=op, id=schedule_id, key=key)
        answer = await self._request(method, path, body, key)
        if answer is None or answer[0] >= 500 or answer[0] in (408, 409):
            self._note("info", op=op, id=schedule_id, key=key, answer=answer and answer[0])
            self._doubtful.add(schedule_id)
            return
        status, found = answer
        if status == 204:
            self._note("ok", op=op, id=schedule_id, key=key)
            return
        if status >= 400:
            self._note("fail", op=op, id=schedule_id, key=key, answer=found)
            if status != 404 and op != "create":
                self._idle.append(schedule_id)
            return
        asked = body.get("trigger") if isinstance(body, dict) else None
        self._note("ok", op=op, id=schedule_id, key=key, schedule=_facts(found), asked=asked)
        self._known(found)

    async def _trigger(self, schedule_id: str) -> None:
        """Repeats a request with the same idempotency key on any node: one run."""
        key = self._key()
        for _ in range(3):
            self._note("invoke", op="trigger", id=schedule_id, key=key)
            answer = await self._request("POST", f"/api/v1/schedules/{schedule_id}/run", None, key)
            if answer is not None and answer[0] == 202:
                run_id = answer[1]["id"]
                self._note("ok", op="trigger", id=schedule_id, key=key, run_id=run_id)
                break
            outcome = "info" if answer is None or answer[0] in (408, 409, 500, 503) else "fail"
            self._note(outcome, op="trigger", id=schedule_id, key=key, answer=answer and answer[0])
            if outcome == "fail":
                break
        self._idle.append(schedule_id)

    async def _look_up(self, schedule_id: str) -> None:
        answer = await self._request("GET", f"/api/v1/schedules/{schedule_id}")
        if answer is None or answer[0] not in (200, 404):
            return
        self._doubtful.discard(schedule_id)
        if answer[0] == 200:
            self._note("read", id=schedule_id, schedule=_facts(answer[1]))
            self._known(answer[1])

    async def _pause(self, schedule_id: str) -> bool:
        """Pauses a schedule; False if it must be tried again."""
        key = self._key()
        path = f"/api/v1/schedules/{schedule_id}/pause"
        self._note("invoke", op="pause", id=schedule_id, key=key)
        answer = await self._request("POST", path, {"note": "the end"}, key)
        if answer is not None and answer[0] == 200:
            self._note("ok", op="pause", id=schedule_id, key=key, schedule=_facts(answer[1]))
            return True
        status = answer and answer[0]
        gone = status == 404
        self._note("fail" if gone else "info", op="pause", id=schedule_id, key=key, answer=status)
        return gone

    async def _watch(self) -> None:
        """Records ended runs, which must not change."""
        while True:
            await asyncio.sleep(0.5)
            answer = await self._request("GET", f"/api/v1/runs?status={ENDED}&limit=200")
            if answer is not None and answer[0] == 200:
                runs = [[run["id"], run["status"], run["fence"]] for run in answer[1]["items"]]
                self._note("seen", runs=runs)

    def _known(self, found: dict[str, Any]) -> None:
        schedule_id = found["id"]
        if schedule_id not in self._idle:
            self._idle.append(schedule_id)
        if found["enabled"]:
            self._paused.discard(schedule_id)
        else:
            self._paused.add(schedule_id)

    async def _request(
        self, method: str, path: str, body: Any = None, key: str = ""
    ) -> tuple[int, Any] | None:
        """Returns status and body, or None without an answer."""
        assert self._http is not None
        ports = [node.port for node in self._nodes if node.port]
        if not ports:
            await asyncio.sleep(0.1)  # no node is running
            return None
        url = f"http://127.0.0.1:{self._rng.choice(ports)}{path}"
        headers = {"Idempotency-Key": key} if key and method == "POST" else {}
        try:
            async with self._http.request(
                method, url, json=body, headers=headers, timeout=self._patience
            ) as answer:
                text = await answer.text()
                return answer.status, (await answer.json() if text else None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    # --- requests -----------------------------------------------------------------------------
    def _key(self) -> str:
        self._keys += 1
        return f"k{self._keys}"

    def _draft(self, schedule_id: str) -> dict[str, Any]:
        """60 % intervals, 20 % cron, 10 % once, 10 % special."""
        trigger = self._timing()
        behaviour = "hook"
        policy: dict[str, Any] = {"overlap": "allow"}
        lot = self._rng.random()
        if self._slow:
            behaviour = f"slow/{self._slow}"
        elif lot < 0.1:
            ahead = time.time_ns() // 1000 + self._rng.randint(2, 12) * SECOND
            trigger = {"kind": "once", "at": text_of(ahead)}
        elif lot < 0.2:
            behaviour, policy = self._rng.choice(
                (
                    ("slow/700", {"overlap": "skip"}),
                    ("slow/400", {"overlap": "queue"}),
                    ("slow/1500", {"overlap": "allow"}),
                    ("slow/600", {"overlap": "allow", "on_lost": "stop"}),
                    ("flaky", {"overlap": "allow", "max_retries": 2, "retry_backoff": "200ms"}),
                    ("fail", {"overlap": "allow", "max_retries": 1, "retry_backoff": "100ms"}),
                    ("slow/9000", {"overlap": "skip", "timeout": "1s"}),
                )
            )
        return {
            "id": schedule_id,
            "name": f"torture {schedule_id}",
            "trigger": trigger,
            "target": {
                "kind": "http",
                "url": f"http://127.0.0.1:{self._receiver}/{behaviour}/{schedule_id}",
                "body": '{"began":"{{triggered_at}}"}',
            },
            "policy": {"misfire": "all", "timeout": "10s", "max_retries": 0, **policy},
        }

    def _timing(self) -> dict[str, Any]:
        if self._rng.random() < 0.25:
            seconds = self._rng.choice(("*/2", "*/3", "*/5", "1-59/4", "0,7,20,33,46", "*"))
            return {"kind": "cron", "expression": f"{seconds} * * * * *", "timezone": "UTC"}
        every = self._rng.choice((1000, 1500, 2000, 2500, 3000, 4000, 5000))
        anchor = time.time_ns() // 1000 - self._rng.randrange(10 * SECOND)
        return {"kind": "every", "every": f"{every}ms", "anchor": text_of(anchor)}


def _facts(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("id", "version", "updated_at", "enabled", "trigger")}
