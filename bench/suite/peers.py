"""The peers: each in a virtual environment of its own, made on first use from its pins."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from suite.children import BENCH
from suite.postgres import Postgres

ENVIRONMENTS = BENCH / ".peers"
#: Filling its tables and ending is not rated but takes a while.
AROUND_SECONDS = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    name: str
    script: str
    pins: str
    memory: bool = False


PGQUEUER = Peer(name="PgQueuer", script="pgqueuer_peer.py", pins="pgqueuer")
PROCRASTINATE = Peer(name="Procrastinate", script="procrastinate_peer.py", pins="procrastinate")
APSCHEDULER3 = Peer(
    name="APScheduler 3, PostgreSQL", script="apscheduler3_peer.py", pins="apscheduler3"
)
APSCHEDULER3_MEMORY = Peer(
    name="APScheduler 3, memory", script="apscheduler3_peer.py", pins="apscheduler3", memory=True
)
APSCHEDULER4 = Peer(name="APScheduler 4 alpha", script="apscheduler4_peer.py", pins="apscheduler4")


class PeerFailed(Exception):
    """There is no figure for this round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    calls: int
    seconds: float
    #: Everything that was due has run; if not, the time was up.
    complete: bool

    @property
    def rate(self) -> float:
        return self.calls / self.seconds


def measured(peer: Peer, postgres: Postgres, what: str, count: int, seconds: float) -> Found:
    """`schedules` or `jobs`, on an empty database; an error if a job ran twice."""
    url = "memory" if peer.memory else postgres.fresh_database("peer")
    command = [str(python_of(peer)), str(BENCH / "peers" / peer.script)]
    try:
        done = subprocess.run(
            [*command, what, url, str(count), str(seconds)],
            capture_output=True,
            text=True,
            timeout=seconds + AROUND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(
            f"{peer.name} did not end within {seconds + AROUND_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        raise PeerFailed(f"{peer.name} failed:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["distinct"] != answer["calls"]:
        raise PeerFailed(f"{peer.name} ran a job twice: {answer}")
    if not answer["calls"]:
        raise PeerFailed(f"{peer.name} ran nothing in {seconds:.0f} s:\n{done.stderr[-2000:]}")
    return Found(
        calls=answer["calls"], seconds=answer["seconds"], complete=bool(answer["complete"])
    )


def python_of(peer: Peer) -> Path:
    folder = ENVIRONMENTS / peer.pins
    python = folder / "bin" / "python"
    pins = BENCH / "peers" / f"requirements-{peer.pins}.txt"
    stamp = folder / "pins.txt"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return python
    print(f"  installing {peer.pins} into bench/.peers ...", file=sys.stderr, flush=True)
    uv = str(Path(sys.executable).with_name("uv"))
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
    install = [uv, "pip", "install", "--quiet", "--prerelease", "allow"]
    install += ["--python", str(python), "-r", str(pins)]
    try:
        _run(install)
    except subprocess.CalledProcessError:
        # Where a proxy signs the traffic, only the machine's own certificates know it.
        _run([*install, "--system-certs"])
    stamp.write_text(pins.read_text())
    return python


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=600)
