"""How a schedule is carried out: misfires, overlaps, retries, limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from chimes.model.recipient import Recipient


class Misfire(StrEnum):
    """What becomes of slots that are later than the grace."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a slot that arrives while the concurrency limit is reached."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OLD = "cancel_old"
    ALLOW = "allow"


class Backoff(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class OnLost(StrEnum):
    """What becomes of a run whose node died after the run had started."""

    RETRY = "retry"
    STOP = "stop"


UNLIMITED = 1_000_000_000
RETRY_AFTER_CAP = timedelta(hours=1)
MAX_RETRY_DELAY = timedelta(days=365)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    misfire: Misfire = Misfire.ONE
    misfire_grace: timedelta = timedelta(seconds=60)
    catch_up_limit: int = 1000
    overlap: Overlap = Overlap.SKIP
    #: None: one at a time, or without limit under `overlap: allow`.
    max_concurrent_runs: int | None = None
    burst_allowed: bool = False
    #: Runs of all schedules with this key share the limit; None: the schedule's own runs do.
    concurrency_key: str | None = None
    #: Extra attempts after the first (C14).
    max_retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=5)
    backoff: Backoff = Backoff.FIXED
    backoff_cap: timedelta = timedelta(hours=1)
    timeout: timedelta = timedelta(seconds=10)
    on_lost: OnLost = OnLost.RETRY
    #: A receiver that answers 410 Gone wants no more calls: pause the schedule (F65).
    pause_on_gone: bool = True
    #: Who is told how its runs end. Part of the policy, so that a run has it as it was (ADR 24).
    delivery: tuple[Recipient, ...] = ()

    @property
    def concurrency_limit(self) -> int:
        if self.max_concurrent_runs is not None:
            return self.max_concurrent_runs
        return UNLIMITED if self.overlap is Overlap.ALLOW or self.burst_allowed else 1

    def retry_delay(self, attempt: int, *, run_id: str, asked: timedelta | None) -> timedelta:
        """How long to wait after failed attempt number `attempt` (1 = the first).

        `asked` is the receiver's Retry-After: it may lengthen the wait, up to an hour. The jitter
        of exponential back-off is a hash, so that a replay waits as long as the original did.
        """
        if self.backoff is Backoff.FIXED:
            delay = self.retry_backoff
        else:
            # Compared by division: the product of a long wait would leave timedelta's range.
            factor = 2 ** min(attempt - 1, 40)
            capped = self.retry_backoff >= self.backoff_cap / factor
            delay = self.backoff_cap if capped else self.retry_backoff * factor
            share = hashlib.blake2b(f"{run_id}:{attempt}".encode(), digest_size=2).digest()
            delay *= 1 + int.from_bytes(share) / 65536 * 0.1
        return max(delay, min(asked, RETRY_AFTER_CAP)) if asked is not None else delay


# @@ What a task or a flow says about its own runs: it holds however one of them is started,
# unless whoever starts it says something else.

PRIORITY = "priority"
#: The fields of a policy that a task has a word in; the others are about timing.
TASK_POLICY_FIELDS = frozenset(
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


def apply_task_defaults(policy: Policy, own: Policy, said: Collection[str]) -> Policy:
    """`policy`, with what nobody `said` as the target's own policy has it."""
    return replace(
        policy, **{name: getattr(own, name) for name in TASK_POLICY_FIELDS.difference(said)}
    )


def unchanged_fields(policy: Policy, own: Policy) -> frozenset[str]:
    """Those that are as the target had them itself."""
    return frozenset(
        name for name in TASK_POLICY_FIELDS if getattr(policy, name) == getattr(own, name)
    )
