"""The peers: each runs in a virtual environment that is created on first use from its pins."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from suite.children import BENCH
from suite.postgres import Postgres

ENVIRONMENTS = BENCH / ".peers"
#: Allowance for setup and shutdown, which are not rated.
SETUP_SECONDS = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    name: str
    script: str
    pins: str
    memory: bool = False


PGQUEUER = Peer(name="PgQueuer", script="pgqueuer_peer.py", pins="pgqueuer")
PROCRASTINATE = Peer(name="Procrastinate", script="procrastinate_peer.py", pins="procrastinate")
AWA = Peer(name="awa", script="awa_peer.py", pins="awa")
APSCHEDULER3 = Peer(
    name="APScheduler 3, PostgreSQL", script="apscheduler3_peer.py", pins="apscheduler3"
)
APSCHEDULER3_MEMORY = Peer(
    name="APScheduler 3, memory", script="apscheduler3_peer.py", pins="apscheduler3", memory=True
)
APSCHEDULER4 = Peer(name="APScheduler 4 alpha", script="apscheduler4_peer.py", pins="apscheduler4")


class PeerError(Exception):
    """The peer gave no figure for this round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerResult:
    calls: int
    seconds: float
    #: Whether all jobs ran within the time limit.
    complete: bool

    @property
    def rate(self) -> float:
        return self.calls / self.seconds


def measure_peer(
    peer: Peer, postgres: Postgres, what: str, count: int, seconds: float
) -> PeerResult:
    """Measures `schedules` or `jobs` on an empty database. PeerError if a job ran twice."""
    url = "memory" if peer.memory else postgres.fresh_database("peer")
    command = [str(peer_python(peer)), str(BENCH / "peers" / peer.script)]
    try:
        done = subprocess.run(
            [*command, what, url, str(count), str(seconds)],
            capture_output=True,
            text=True,
            timeout=seconds + SETUP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(
            f"{peer.name} did not exit within {seconds + SETUP_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        raise PeerError(f"{peer.name} failed:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    if result["distinct"] != result["calls"]:
        raise PeerError(f"{peer.name} ran a job twice: {result}")
    if not result["calls"]:
        raise PeerError(f"{peer.name} ran nothing in {seconds:.0f} s:\n{done.stderr[-2000:]}")
    return PeerResult(
        calls=result["calls"], seconds=result["seconds"], complete=bool(result["complete"])
    )


def peer_python(peer: Peer) -> Path:
    folder = ENVIRONMENTS / peer.pins
    python = folder / "bin" / "python"
    pins = BENCH / "peers" / f"requirements-{peer.pins}.txt"
    stamp = folder / "pins.txt"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return python
    print(f"  installing {peer.pins} into bench/.peers ...", file=sys.stderr, flush=True)
    uv = str(Path(sys.executable).with_name("uv"))
    _run_command([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
    install = [uv, "pip", "install", "--quiet", "--prerelease", "allow"]
    install += ["--python", str(python), "-r", str(pins)]
    try:
        _run_command(install)
    except subprocess.CalledProcessError:
        # Behind a proxy that re-signs TLS only the system certificates are valid.
        _run_command([*install, "--system-certs"])
    stamp.write_text(pins.read_text())
    return python


def _run_command(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=600)
