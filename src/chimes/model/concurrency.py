"""Concurrency keys: runs with the same key share a limit.

| key | shared by |
|---|---|
| `schedule:ID` | runs of a schedule whose policy names no key |
| `OWNER/NAME` | runs of one owner whose policies name the same key |
| `task:NAME` | all runs of a task that limits its concurrency |
| `sync:SOURCE#COLLECTION` | all runs of a sync pair |
| `backfill:ID` | runs of a backfill that has a limit of its own |

A name in a policy always gets the owner as a prefix, so that it cannot be the key of another owner
or one of the other keys: none of their prefixes is a type of owner.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from chimes.model.access import Owner
from chimes.model.policy import Policy
from chimes.model.target import SyncTarget, Target, TaskTarget

OWN_KEY_PREFIX = "schedule:"
_BACKFILL_PREFIX = "backfill:"
#: Keys that Chimes itself uses; `owner:` is a lock of SQL stores. A policy cannot name them, so
#: that a key shown to people means what it looks like.
RESERVED_PREFIXES = (OWN_KEY_PREFIX, "sync:", "task:", "flow:", _BACKFILL_PREFIX, "owner:")
#: Of the id of an owner in a key; longer ones are hashed.
_MAX_OWNER_ID = 255
_HASHED = "%"


# Every fired slot needs it several times.
@lru_cache(maxsize=65_536)
def own_key(schedule_id: str | None) -> str:
    """The concurrency key of a schedule whose policy names none."""
    return f"{OWN_KEY_PREFIX}{schedule_id}"


def backfill_key(backfill_id: str) -> str:
    return f"{_BACKFILL_PREFIX}{backfill_id}"


def target_key(target: Target) -> str | None:
    """The key that all runs of this target may share, also runs of different owners."""
    if isinstance(target, SyncTarget):
        return target.key
    return target.requirement if isinstance(target, TaskTarget) else None


def shared_key(policy: Policy, target: Target, owner: Owner) -> str | None:
    """The key of runs with this policy; None if the policy names none."""
    name = policy.concurrency_key
    if name is None or name == target_key(target):
        return name
    return f"{owner.type}:{_unambiguous(owner.id)}/{name}"


def _unambiguous(owner_id: str) -> str:
    """The id, or its hash if it could be confused with the name that follows it or with a hash."""
    if "/" not in owner_id and not owner_id.startswith(_HASHED) and len(owner_id) <= _MAX_OWNER_ID:
        return owner_id
    digest = hashlib.blake2b(owner_id.encode(errors="surrogatepass"), digest_size=32)
    return f"{_HASHED}{digest.hexdigest()}"


def reserved_prefix(policy: Policy, target: Target) -> str | None:
    """The prefix because of which the policy may not name its key; None if it may."""
    name = policy.concurrency_key
    if name is None or name == target_key(target):
        return None
    return next((each for each in RESERVED_PREFIXES if name.strip().startswith(each)), None)
