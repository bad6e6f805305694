"""The checks of `doctor` for a store that lives on a database server; and what a check is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from chimes.config import StoreLocation
from chimes.errors import ChimesError, SchemaMismatch, StoreUnsafe
from chimes.wording import say

State = Literal["ok", "warning", "problem"]
OKAY: Final[State] = "ok"
WARN: Final[State] = "warning"
BAD: Final[State] = "problem"
#: More than this and what people read off their own clock is off.
_FARTHEST_CLOCK = 2.0
STORE: Final = say("store")
_ANOTHER = say("choose another database or version")
_UNREACHED = say("check that the server runs and that user and password are right")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was seen, and what to do about it."""

    name: str
    state: State
    detail: str
    fix: str = ""


def reason_of(error: ChimesError | OSError) -> str:
    return error.message if isinstance(error, ChimesError) else str(error)


def redis_checks(location: StoreLocation) -> list[Check]:
    """Reach, version, durability, layout, clock; nothing is set up."""
    from chimes.app.inspecting import inspect_redis_store

    try:
        seen = asyncio.run(inspect_redis_store(location))
    except StoreUnsafe as error:
        return [Check(STORE, BAD, error.message, say("set appendonly yes and noeviction there"))]
    except SchemaMismatch as error:
        return [Check(STORE, BAD, error.message, _ANOTHER)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, BAD, reason_of(error), _UNREACHED)]
    found = [Check(STORE, OKAY, f"{seen.location}, {seen.version}")]
    if seen.durability:
        fix = say(
            "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no lose nothing"
        )
        found.append(Check(say("durability"), WARN, seen.durability, fix))
    else:
        found.append(Check(say("durability"), OKAY, say("what is acknowledged is on disk")))
    found.append(_schema(seen.layout, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def server_store_checks(location: StoreLocation) -> list[Check]:
    """Reach, version, isolation, writes, migrations, clock; nothing is set up."""
    if location.kind == "redis":
        return redis_checks(location)
    from chimes.app.inspecting import inspect_server_store

    try:
        seen = asyncio.run(inspect_server_store(location))
    except SchemaMismatch as error:
        return [Check(STORE, BAD, error.message, _ANOTHER)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, BAD, reason_of(error), _UNREACHED)]
    found = [Check(STORE, OKAY, f"{seen.location}, {seen.version}")]
    if seen.read_only:
        fix = say("use the primary, or end read-only")
        found.append(Check(STORE, BAD, say("the server takes no writes"), fix))
    isolation: str = seen.isolation
    if isolation != "read committed":
        isolation = say(
            "the server's default isolation is {isolation}; Chimes sets its own",
            isolation=seen.isolation,
        )
    found.append(Check(say("isolation"), OKAY, isolation))
    found.append(_schema(seen.revision, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def _clock(ahead: float) -> Check:
    name, offset = say("store clock"), say("{seconds:+.3f} s from the server's", seconds=ahead)
    if abs(ahead) > _FARTHEST_CLOCK:
        fix = say("switch time synchronisation (NTP) on; times of runs are the server's")
        return Check(name, WARN, offset, fix)
    return Check(name, OKAY, offset)


def _schema(revision: str | None, head: str) -> Check:
    name = say("schema")
    if revision is None:
        detail = say("the database is empty; serve will set up schema {head}", head=head)
        return Check(name, OKAY, detail)
    if revision == head:
        return Check(name, OKAY, say("schema {schema}", schema=revision))
    if revision < head:
        detail = say("schema {schema}, this version knows {head}", schema=revision, head=head)
        return Check(name, WARN, detail, say("run `chimes store migrate`"))
    detail = say("schema {schema} is newer than {head}", schema=revision, head=head)
    return Check(name, WARN, detail, say("update Chimes here"))
