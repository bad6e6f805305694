"""http: callbacks per second of the HTTP target, compared with the bare client.

Both send the same request to the same receiver, a separate process, over the same number of
connections. Rates by CPU time are shown as well, because they do not depend on other load.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

import aiohttp
from suite.bench import Bench
from suite.report import Line, line
from suite.rounds import ratio

from chimes.egress import EgressRules
from chimes.model.ids import RunId, ScheduleId
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Origin, Run, RunDefinition
from chimes.model.target import HttpTarget
from chimes.targets.base import Call
from chimes.targets.http import HttpCallback
from chimes.targets.http.request import build_request

ROW = "HTTP callbacks"
CALLS, IN_FLIGHT = 3_000, 100
LEAST = 0.9
BARE, PLAIN = "bare aiohttp client", "Chimes"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
BODY = '{"job_id": "job-1", "what": "tidy up", "items": [1, 2, 3]}'
FILLED_BODY = '{"job_id": "<filled-by-service>", "run_id": "<filled-by-service>", "n": {{attempt}}}'
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
NOW = datetime(2030, 1, 1, tzinfo=UTC)

Send = Callable[[int], Awaitable[None]]
#: Calls per second of wall time, and per second of this process's CPU time.
Rates = tuple[float, float]


class Sink(asyncio.Protocol):
    """A minimal HTTP receiver: reads Content-Length bytes of body and answers 200."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, separator, body = self.data.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        if len(body) >= length:
            self.data = body[length:]
            self.transport.write(ANSWER)


def serve(parent: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0, backlog=1000)
        parent.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def rate(send: Send, calls: int, in_flight: int) -> Rates:
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            await send(number)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return calls / (time.perf_counter() - began), calls / (time.process_time() - used)


def make_call(target: HttpTarget, number: int) -> Call:
    run = Run(
        id=RunId(f"run-{number}"),
        definition=RunDefinition(
            schedule_id=ScheduleId("job-1"),
            schedule_name="tidy up",
            target=target,
            policy=Policy(timeout=timedelta(seconds=30)),
        ),
        slot=NOW,
        origin=Origin.SCHEDULE,
        attempt=1,
        fence=1,
        created_at=NOW,
        planned_at=NOW,
        available_at=NOW,
    )
    return Call(run=run, triggered_at=NOW, log=lambda level, message: None)


def _own_headers(head: bytes) -> dict[str, str]:
    """The headers that an HTTP client does not add by itself."""
    lines = head.decode().split("\r\n")[1:-2]
    pairs = (line.split(": ", 1) for line in lines)
    return {name: value for name, value in pairs if name not in ("Host", "Content-Length")}


def bare_sender(session: aiohttp.ClientSession, url: str) -> Send:
    """Sends the request of the HTTP target without anything else."""
    target = HttpTarget(url=url, body=BODY)
    same = build_request(make_call(target, 0), target, user_agent="bench", node_id="")
    headers = _own_headers(same.head)

    async def send(number: int) -> None:
        async with session.post(url, data=same.body, headers=headers) as response:
            await response.read()

    return send


async def bare_rates(url: str, calls: int, in_flight: int) -> Rates:
    """The bare client."""
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        return await rate(bare_sender(session, url), calls, in_flight)


async def _rates(port: int, rounds: int, calls: int, in_flight: int) -> dict[str, list[Rates]]:
    url = f"http://127.0.0.1:{port}/hook"
    targets = {
        PLAIN: HttpTarget(url=url, body=BODY),
        "Chimes, placeholders": HttpTarget(url=url + "?r={{run_id}}", body=FILLED_BODY),
        "Chimes, signed": HttpTarget(url=url, body=BODY, signing_secrets=(SECRET,)),
    }
    callback = HttpCallback(egress=EgressRules(), user_agent="bench", max_connections=in_flight)
    await callback.open()

    def target_sender(target: HttpTarget) -> Send:
        # A worker gets its runs from the store; building them is not measured.
        calls_to_make = [make_call(target, number) for number in range(calls)]

        async def send(number: int) -> None:
            outcome = await callback.execute(calls_to_make[number])
            assert outcome.end is AttemptEnd.SUCCEEDED

        return send

    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        sends: dict[str, Send] = {BARE: bare_sender(session, url)}
        sends |= {name: target_sender(target) for name, target in targets.items()}
        rates: dict[str, list[Rates]] = {name: [] for name in sends}
        # A garbage collection over the calls of all rounds would slow an arbitrary round.
        gc.collect()
        gc.freeze()
        for send in sends.values():
            await rate(send, in_flight * 2, in_flight)
        for number in range(rounds):
            order = list(sends)[number % len(sends) :] + list(sends)[: number % len(sends)]
            for name in order:
                rates[name].append(await rate(sends[name], calls, in_flight))
    await callback.close()
    return rates


def measure(bench: Bench) -> list[Line]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        calls = CALLS * 3 if bench.long else CALLS
        found = asyncio.run(_rates(ours.recv(), bench.rounds, calls, IN_FLIGHT))
    finally:
        process.terminate()
        process.join()
    wall = {name: [rate for rate, _ in rates] for name, rates in found.items()}
    cpu = {name: [rate for _, rate in rates] for name, rates in found.items()}
    lines = [line(ROW, BARE, "calls/s", wall[BARE], how=f"{IN_FLIGHT} in flight, keep-alive")]
    for name in list(found)[1:]:
        share = ratio(wall[name], wall[BARE])
        lines.append(
            line(
                *(ROW, name, "calls/s", wall[name]),
                goal=f"≥ {LEAST} × the bare client",
                ratio=share,
                met=share >= LEAST,
                how=f"{ratio(cpu[name], cpu[BARE]):.2f} × by CPU time",
            )
        )
    return lines
