"""The checks of `doctor` for a store that lives on a database server; and what a check is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from chimes.config import StoreLocation
from chimes.errors import ChimesError, SchemaMismatch, StoreUnsafe

State = Literal["ok", "warning", "problem"]
OKAY: Final[State] = "ok"
WARN: Final[State] = "warning"
BAD: Final[State] = "problem"
#: More than this and what people read off their own clock is off.
_FARTHEST_CLOCK = 2.0
_ISOLATION = "read committed"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: State
    detail: str
    fix: str = ""


def redis_checks(location: StoreLocation) -> list[Check]:
    """Reach, version, durability, layout, clock; nothing is set up."""
    from chimes.app.inspecting import inspect_redis_store

    try:
        seen = asyncio.run(inspect_redis_store(location))
    except StoreUnsafe as error:
        return [Check("store", BAD, error.message, "set appendonly yes and noeviction there")]
    except SchemaMismatch as error:
        return [Check("store", BAD, error.message, "choose another database or version")]
    except (ChimesError, OSError) as error:
        fix = "check that the server runs and that user and password are right"
        return [Check("store", BAD, str(error), fix)]
    found = [Check("store", OKAY, f"{seen.location}, {seen.version}")]
    if seen.durability:
        fix = "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no lose nothing"
        found.append(Check("durability", WARN, seen.durability, fix))
    else:
        found.append(Check("durability", OKAY, "what is acknowledged is on disk"))
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
        return [Check("store", BAD, error.message, "choose another database or version")]
    except (ChimesError, OSError) as error:
        fix = "check that the server runs and that user and password are right"
        return [Check("store", BAD, str(error), fix)]
    found = [Check("store", OKAY, f"{seen.location}, {seen.version}")]
    if seen.read_only:
        found.append(
            Check("store", BAD, "the server takes no writes", "use the primary, or end read-only")
        )
    if seen.isolation != _ISOLATION:
        detail = f"the server's default isolation is {seen.isolation}; Chimes sets its own"
        found.append(Check("isolation", OKAY, detail))
    else:
        found.append(Check("isolation", OKAY, seen.isolation))
    found.append(_schema(seen.revision, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def _clock(ahead: float) -> Check:
    offset = f"{ahead:+.3f} s from the server's"
    if abs(ahead) > _FARTHEST_CLOCK:
        fix = "switch time synchronisation (NTP) on; times of runs are the server's"
        return Check("store clock", WARN, offset, fix)
    return Check("store clock", OKAY, offset)


def _schema(revision: str | None, head: str) -> Check:
    if revision is None:
        return Check("schema", OKAY, f"the database is empty; serve will set up schema {head}")
    if revision == head:
        return Check("schema", OKAY, f"schema {revision}")
    if revision < head:
        detail = f"schema {revision}, this version knows {head}"
        return Check("schema", WARN, detail, "run `chimes store migrate`")
    return Check("schema", WARN, f"schema {revision} is newer than {head}", "update Chimes here")
