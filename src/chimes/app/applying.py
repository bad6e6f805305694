"""`chimes apply` without a server: what a file says, straight into the store."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

from chimes.app.composition import build_services, build_store
from chimes.app.source_file import SourceFile
from chimes.app.source_schedules import PairDefaults, SourceSchedules
from chimes.clock import SystemClock
from chimes.config import LoadedSettings, store_location
from chimes.service.sources import SourceChange
from chimes.targets.sync.checking import check_callables


def checked_file(loaded: LoadedSettings) -> SourceFile:
    """Raises ConfigError for a file that no node would take."""
    file = SourceFile(loaded, SystemClock())
    asyncio.run(check_callables(file.known.now))
    return file


async def apply_to_store(
    loaded: LoadedSettings, file: SourceFile, *, dry_run: bool
) -> tuple[list[SourceChange], list[str]]:
    """What became of the schedules, and the ids of nodes that are alive."""
    clock = SystemClock()
    store = build_store(store_location(loaded.settings), clock)
    await store.open()
    try:
        services = await build_services(
            loaded.settings,
            store,
            clock,
            offers=lambda: PairDefaults(file.known),
            sources=file.known,
        )
        schedules = SourceSchedules(services, loaded.settings)
        sources = file.known.now
        changes = await (schedules.plan(sources) if dry_run else schedules.write(sources))
        now = await store.now()
        alive = [str(node.id) for node in await store.nodes() if node.lease_until > now]
        return changes, alive
    finally:
        await store.close()


def told_to_read_again(node_ids: Iterable[str]) -> list[str]:
    """Sends SIGHUP to those nodes that are processes of this machine and of this user; which."""
    told: list[str] = []
    for node_id in node_ids:
        host, _, rest = node_id.rpartition("-")[0].rpartition("-")
        if host == socket.gethostname() and rest.isdecimal() and _is_ours(int(rest)):
            os.kill(int(rest), signal.SIGHUP)
            told.append(node_id)
    return told


def _is_ours(pid: int) -> bool:
    """Numbers of processes are used again: only what looks like a node is sent anything."""
    place = Path(f"/proc/{pid}")
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
        owner = place.stat().st_uid
    except OSError:
        return False
    served = any(word in (b"serve", b"worker") for word in words)
    return owner == os.geteuid() and served and any(b"chimes" in word for word in words)
