"""No-op runs through a queue on Redis: Chimes, SAQ and arq in turns on one private server.

    python bench/redis_queue.py [--count 5000] [--rounds 3]

The queue is filled first. Time runs from the first poll of the worker to the last call; for Chimes
until the last result is stored, which is not required of the peers. The server keeps an append-only
file that is flushed every second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

BENCH = Path(__file__).parent
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]

from harness import Calls, Options  # noqa: E402
from suite.peers import Peer, peer_python  # noqa: E402
from suite.ports import free_port  # noqa: E402

PEERS = (
    Peer(name="SAQ", script="saq_peer.py", pins="saq"),
    Peer(name="arq", script="arq_peer.py", pins="arq"),
)
SECONDS = 60.0
BATCH = 100


async def chimes(options: Options) -> None:
    """Executes the jobs in one process, as the peers do: the node of an application."""
    from chimes import Chimes
    from chimes.model.run import RunStatus

    app = Chimes(options.url)
    calls = Calls(options.count)

    @app.task
    async def noop(number: int) -> None:
        calls.note(number)

    await app.open()
    for start in range(0, options.count, BATCH):
        numbers = range(start, min(start + BATCH, options.count))
        await asyncio.gather(*(noop.enqueue(number) for number in numbers))
    store = app.runtime().services.store
    calls.begin()
    await app.start()
    await calls.wait(options.seconds)
    # No event reports that the last result is stored.
    while (await store.counts()).runs.get(RunStatus.SUCCEEDED, 0) < len(calls.names):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    calls.last = time.perf_counter()
    calls.report()


def measure_rate(command: list[str], url: str, count: int) -> float:
    done = subprocess.run(
        [*command, "jobs", url, str(count), str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=SECONDS + 120,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["calls"] == result["distinct"], result
    return float(result["calls"]) / float(result["seconds"])


def measure(count: int, rounds: int) -> None:
    port = free_port()
    commands = {
        "Chimes": [sys.executable, str(BENCH / "redis_queue.py"), "--chimes"],
        **{
            peer.name: [str(peer_python(peer)), str(BENCH / "peers" / peer.script)]
            for peer in PEERS
        },
    }
    with tempfile.TemporaryDirectory() as directory:
        options = f"--port {port} --bind 127.0.0.1 --appendonly yes --save".split()
        server = subprocess.Popen(
            ["redis-server", *options, "", "--dir", directory, "--databases", "64"],
            stdout=subprocess.DEVNULL,
        )
        try:
            time.sleep(1)
            found: dict[str, list[float]] = {name: [] for name in commands}
            for number in range(rounds):
                for index, (name, command) in enumerate(commands.items()):
                    url = f"redis://127.0.0.1:{port}/{number * len(commands) + index}"
                    found[name].append(measure_rate(command, url, count))
        finally:
            server.terminate()
            server.wait(10)
    for name, rates in found.items():
        shown = " ".join(f"{rate:,.0f}" for rate in rates)
        print(f"{name:8} {median(rates):8,.0f} runs/s   ({shown})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--chimes"]:
        _, url, count, seconds = sys.argv[2:]
        asyncio.run(chimes(Options("jobs", url, int(count), float(seconds))))
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--count", type=int, default=5000)
        parser.add_argument("--rounds", type=int, default=3)
        options = parser.parse_args()
        measure(options.count, options.rounds)
