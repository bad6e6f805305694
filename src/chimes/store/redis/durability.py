"""Whether a server keeps what it has acknowledged (F42), by its own settings."""

from __future__ import annotations

from dataclasses import dataclass

from chimes.errors import StoreError, StoreUnavailable, StoreUnsafe
from chimes.store.redis.connections import Connections
from chimes.wording import say

ASKED = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory-policy",
)
#: Scripts that say what they may do, and are refused whole when memory is short.
OLDEST = (7, 0)


@dataclass(frozen=True, slots=True)
class Durability:
    #: Why it must not be used; empty: nothing.
    refused: str = ""
    #: What may be lost although it is used.
    note: str = ""


def judged(settings: dict[str, str]) -> Durability:
    policy = settings.get("maxmemory-policy", "")
    if policy and policy != "noeviction":
        return Durability(
            refused=say(
                "maxmemory-policy is {policy}: it may throw away schedules and runs; set it to"
                " noeviction",
                policy=policy,
            )
        )
    if settings.get("appendonly") != "yes":
        saves = settings.get("save", "")
        return Durability(
            refused=say(
                "appendonly is off, only snapshots are kept (save {saves}); set appendonly yes",
                saves=saves,
            )
            if saves
            else say("appendonly is off, nothing is kept on disk; set appendonly yes")
        )
    fsync = settings.get("appendfsync", "")
    if fsync in ("always", "everysec") and settings.get("no-appendfsync-on-rewrite") == "yes":
        # Redis leaves the fsync out then, whatever appendfsync says.
        return Durability(
            note=say(
                "no-appendfsync-on-rewrite is yes: a crash of the machine while Redis saves or"
                " rewrites its file may undo what it acknowledged meanwhile; set it to no"
            )
        )
    if fsync == "everysec":
        return Durability(
            note=say("appendfsync is everysec: a crash may undo about the last second")
        )
    if fsync != "always":
        return Durability(
            note=say(
                "appendfsync is {fsync}: a crash may undo what the system has not written yet",
                fsync=fsync,
            )
        )
    return Durability()


async def checked(connections: Connections, *, allow_volatile: bool) -> str:
    """What to say about the server's durability; raises StoreUnsafe where it must not be used."""
    where = say("Redis at {address}", address=connections.address.shown)
    await _check_version(connections, where)
    try:
        answer = await connections.command("CONFIG", "GET", *ASKED)
    except StoreUnavailable as error:
        if _unreachable(error):
            raise
        found = Durability(
            refused=say(
                "its settings cannot be read (CONFIG GET is not allowed), so nobody knows"
                " whether it keeps what it acknowledges"
            )
        )
    else:
        found = judged(_settings(answer))
    if found.refused and not allow_volatile:
        raise StoreUnsafe(
            say(
                "{where} would lose data: {why}; or start with --allow-volatile"
                " (CHIMES_ALLOW_VOLATILE=true) to use it all the same",
                where=where,
                why=found.refused,
            )
        )
    return found.refused or found.note


def _unreachable(error: StoreError) -> bool:
    said = str(error)
    return not any(word in said for word in ("lacks a right", "unknown command", "NOPERM"))


async def version_of(connections: Connections) -> str:
    return " ".join(("Redis", (await _about(connections)).get("redis_version", ""))).strip()


async def memory_of(connections: Connections) -> int | None:
    """Bytes that the server uses, if it lets us ask."""
    try:
        used = (await _about(connections, "memory")).get("used_memory", "")
    except StoreError:
        return None
    return int(used) if used.isdecimal() else None


async def _about(connections: Connections, section: str = "server") -> dict[str, str]:
    answer = await connections.command("INFO", section)
    lines = answer.decode().splitlines() if isinstance(answer, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _check_version(connections: Connections, where: str) -> None:
    found = await _about(connections)
    if found.get("redis_mode") == "cluster":
        raise StoreUnsafe(
            say("{where} is a cluster: its keys cannot be changed together", where=where)
        )
    version = found.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        raise StoreUnsafe(
            say(
                "{where} is Redis {version}; Chimes needs 7.0 or newer",
                where=where,
                version=version,
            )
        )


def _settings(answer: object) -> dict[str, str]:
    words = [word.decode() for word in answer] if isinstance(answer, list) else []
    return dict(zip(words[::2], words[1::2], strict=False))
