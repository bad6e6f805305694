"""What holds for every run of a pair of source and collection: at most one of them is active,
whoever asked for it and wherever (R4.18, R4.20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from chimes.errors import InvalidInput
from chimes.model.policy import Overlap, Policy
from chimes.model.target import SyncTarget
from chimes.wording import say

_KEY_PREFIX: Final = "sync:"


def exclusive(policy: Policy, target: SyncTarget) -> Policy:
    """With the key and the limit of the pair. InvalidInput for a policy that wants more than one
    run at a time, or another key: it could not be kept."""
    for field, wrong, wanted in (
        ("overlap", policy.overlap is not Overlap.SKIP, "skip"),
        ("max_concurrent_runs", policy.max_concurrent_runs not in (None, 1), "1"),
        ("burst_allowed", policy.burst_allowed, "false"),
        ("concurrency_key", policy.concurrency_key not in (None, target.key), target.key),
    ):
        if wrong:
            raise InvalidInput(
                say(
                    "{field} is {wanted} for a sync target: one run of each pair at a time",
                    field=field,
                    wanted=wanted,
                ),
                field=f"policy.{field}",
                code="one_at_a_time",
            )
    return replace(policy, concurrency_key=target.key, max_concurrent_runs=1)


def pair_of_key(key: str) -> tuple[str, str]:
    """Source and collection of a key that `is_pair_key`."""
    source, _, collection = key.removeprefix(_KEY_PREFIX).partition("#")
    return source, collection


def is_pair_key(key: str) -> bool:
    """Whether a concurrency key has the form of those of the pairs. Nothing else may use one: it
    would count as a run of the pair."""
    return key.startswith(_KEY_PREFIX) and "#" in key
