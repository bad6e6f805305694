"""What a task or a flow says about its own runs: it holds however one of them is started, unless
whoever starts it says something else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from chimes.model.policy import Policy

PRIORITY = "priority"
#: The fields of a policy that a task has a word in; the others are about timing.
OWN_FIELDS = frozenset(
    {
        "overlap",
        "max_concurrent_runs",
        "concurrency_key",
        "max_retries",
        "retry_backoff",
        "backoff",
        "timeout",
        "on_lost",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDefaults:
    #: Of this only OWN_FIELDS count.
    policy: Policy
    priority: int = 0
    #: JSON Schema of its arguments, for forms; empty: nobody told.
    arguments: Mapping[str, object] = field(default_factory=dict)


def with_own(policy: Policy, own: Policy, said: Collection[str]) -> Policy:
    """`policy`, with what nobody `said` as the target's own policy has it."""
    return replace(policy, **{name: getattr(own, name) for name in OWN_FIELDS.difference(said)})


def unchanged_fields(policy: Policy, own: Policy) -> frozenset[str]:
    """Those that are as the target had them itself."""
    return frozenset(name for name in OWN_FIELDS if getattr(policy, name) == getattr(own, name))
