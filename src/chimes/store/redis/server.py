"""Identity, durability and inspection of the Redis server.

A store gets an id when it is set up. Every script checks it, so that the next call notices an
emptied or replaced server. A marker file in the data directory keeps the id across restarts, to
tell a server that lost its data from a new one. Without the file an empty server is set up; with
it, another store is accepted only after `chimes store init --force`. A conversion of the layout
gives the store a new id, which refuses connected processes of the old layout; the former id stays
as its origin, and the marker file has that one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from chimes.clock import Clock
from chimes.errors import SchemaMismatch, StoreError, StoreLost, StoreUnavailable, StoreUnsafe
from chimes.i18n import _
from chimes.store.redis.connection import Address, Connections, parse_address
from chimes.store.redis.scripts import FOUNDING
from chimes.store.redis.wire import texts, unpack

_log = logging.getLogger(__name__)

#: Version of the layout of keys and records.
LAYOUT = "2"
#: Layouts that `chimes store migrate` converts: the former one, and one whose conversion was
#: interrupted.
CONVERTIBLE = ("1", "1-2")


@dataclass(frozen=True, slots=True)
class Identity:
    id: str
    layout: str
    #: Set up with --force: replaces the previous store.
    forced: bool
    #: The id in marker files: the one that it had before a conversion, else `id`.
    origin: str


class Marker:
    """The file with the id of the store that was used. None: no file."""

    def __init__(self, path: Path | None, address: Address) -> None:
        self._path = path
        self._location = address.shown

    def known(self) -> str:
        if self._path is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._path.read_text("utf-8"))
            if isinstance(found, dict):
                return str(found.get(self._location, ""))
        return ""

    def keep(self, store_id: str) -> None:
        if self._path is None or self.known() == store_id:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            found: dict[str, str] = {}
            with contextlib.suppress(OSError, ValueError):
                found = dict(json.loads(self._path.read_text("utf-8")))
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(found | {self._location: store_id}), "utf-8")
            draft.replace(self._path)
        except OSError as error:
            _log.warning("cannot write the store marker file: %s", error)


async def open_store(connections: Connections, marker: Marker) -> Identity:
    """The existing store; an empty server is set up."""
    known = marker.known()
    found = await _create_identity(connections, create=not known)
    if found is None:
        raise StoreLost(
            _(
                "store_lost: Redis at {address} is empty, but held data before: it"
                " was emptied, or came back without its files. Restore it, or set it up anew with"
                " chimes store init --force",
                address=connections.address.shown,
            ),
            code="store_lost",
        )
    if known and known != found.origin:
        if not found.forced:
            raise replaced_error(connections.address)
        _log.warning("the store at %s was set up again meanwhile", connections.address.shown)
    marker.keep(found.origin)
    return found


def replaced_error(address: Address) -> StoreLost:
    return StoreLost(
        _(
            "store_lost: Redis at {address} holds another store than before: it was emptied or"
            " exchanged, and a node that did not know has set it up. Restore it, or go on with"
            " what is there by chimes store init --force",
            address=address.shown,
        ),
        code="store_lost",
    )


async def read_identity(connections: Connections, *, any_layout: bool = False) -> Identity | None:
    return await _create_identity(connections, create=False, any_layout=any_layout)


async def reinitialize(connections: Connections, marker: Marker) -> Identity:
    """Give the store a new identity; existing records stay."""
    found = await _create_identity(connections, create=True, anew=True)
    assert found is not None
    marker.keep(found.origin)
    return found


async def _create_identity(
    connections: Connections, *, create: bool, anew: bool = False, any_layout: bool = False
) -> Identity | None:
    answer = await connections.write(
        FOUNDING,
        connections.address.prefix,
        uuid4().hex,
        LAYOUT,
        "1" if create else "",
        "1" if anew else "",
    )
    store_id, layout, founded, origin = texts(unpack(answer))
    if not store_id:
        return None
    if layout != LAYOUT and not any_layout:
        raise layout_error(connections.address, layout)
    return Identity(store_id, layout, founded == "forced", origin)


def layout_error(address: Address, layout: str) -> SchemaMismatch:
    if layout in CONVERTIBLE:
        return SchemaMismatch(
            _(
                "the layout of Redis at {address} is {layout}, but this version of Chimes needs"
                " {needed}: stop all nodes and run `chimes store migrate`",
                address=address.shown,
                layout=layout,
                needed=LAYOUT,
            )
        )
    return SchemaMismatch(
        _(
            "the layout of Redis at {address} is {layout}; this version of Chimes needs {needed}:"
            " update Chimes if a newer one wrote it",
            address=address.shown,
            layout=layout or _("unknown"),
            needed=LAYOUT,
        )
    )


# --- durability settings of the server

ASKED = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory-policy",
)
#: First version with script flags, which reject writing scripts when memory is full.
OLDEST = (7, 0)


@dataclass(frozen=True, slots=True)
class Durability:
    #: Why it must not be used; empty: usable.
    refused: str = ""
    #: What a crash may lose.
    note: str = ""


def assess_durability(settings: dict[str, str]) -> Durability:
    policy = settings.get("maxmemory-policy", "")
    if policy and policy != "noeviction":
        return Durability(
            refused=_(
                "maxmemory-policy is {policy}: it may throw away schedules and runs; set it to"
                " noeviction",
                policy=policy,
            )
        )
    if settings.get("appendonly") != "yes":
        saves = settings.get("save", "")
        return Durability(
            refused=_(
                "appendonly is off, only snapshots are kept (save {saves}); set appendonly yes",
                saves=saves,
            )
            if saves
            else _("appendonly is off, nothing is kept on disk; set appendonly yes")
        )
    fsync = settings.get("appendfsync", "")
    if fsync in ("always", "everysec") and settings.get("no-appendfsync-on-rewrite") == "yes":
        # Redis then skips fsync, whatever appendfsync says.
        return Durability(
            note=_(
                "no-appendfsync-on-rewrite is yes: a crash of the machine while Redis saves or"
                " rewrites its file may undo what it acknowledged meanwhile; set it to no"
            )
        )
    if fsync == "everysec":
        return Durability(note=_("appendfsync is everysec: a crash may undo about the last second"))
    if fsync != "always":
        return Durability(
            note=_(
                "appendfsync is {fsync}: a crash may undo what the system has not written yet",
                fsync=fsync,
            )
        )
    return Durability()


async def check_server(connections: Connections, *, allow_volatile: bool) -> str:
    """A note on the server's durability; raises StoreUnsafe if it must not be used."""
    where = _("Redis at {address}", address=connections.address.shown)
    await _check_version(connections, where)
    try:
        answer = await connections.command("CONFIG", "GET", *ASKED)
    except StoreUnavailable as error:
        if _unreachable(error):
            raise
        found = Durability(
            refused=_(
                "its settings cannot be read (CONFIG GET is not allowed), so its durability"
                " is unknown"
            )
        )
    else:
        found = assess_durability(_settings(answer))
    if found.refused and not allow_volatile:
        raise StoreUnsafe(
            _(
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
    """Memory of the server in bytes, if permitted to read it."""
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
            _("{where} is a cluster, which has no multi-key transactions", where=where)
        )
    version = found.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        raise StoreUnsafe(
            _(
                "{where} is Redis {version}; Chimes needs 7.0 or newer",
                where=where,
                version=version,
            )
        )


def _settings(answer: object) -> dict[str, str]:
    words = [word.decode() for word in answer] if isinstance(answer, list) else []
    return dict(zip(words[::2], words[1::2], strict=False))


# --- read-only inspection for `doctor`


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisInspection:
    location: str
    version: str
    #: What a crash may lose; empty: nothing acknowledged.
    durability: str
    #: Layout version of the existing store, or None.
    layout: str | None
    head: str = LAYOUT
    #: Seconds that this machine's clock is ahead of the server's.
    clock_offset: float


async def inspect_redis(url: str, clock: Clock, *, allow_volatile: bool) -> RedisInspection:
    """Raises StoreUnsafe or StoreUnavailable."""
    connections = Connections(parse_address(url))
    connections.open()
    try:
        note = await check_server(connections, allow_volatile=allow_volatile)
        found = await read_identity(connections, any_layout=True)
        seconds, micros = _time(await connections.command("TIME"))
        offset = clock.now().timestamp() - seconds - micros / 1_000_000
        return RedisInspection(
            location=connections.address.shown,
            version=await version_of(connections),
            durability=note,
            layout=found.layout if found else None,
            clock_offset=offset,
        )
    finally:
        await connections.close()


def _time(answer: object) -> tuple[int, int]:
    assert isinstance(answer, list)
    seconds, micros = answer
    return int(seconds), int(micros)
