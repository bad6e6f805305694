"""The policy of a schedule: misfires, overlaps, retries and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.recipient import Recipient


class Misfire(StrEnum):
    """What to do with slots later than the grace."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """What to do with a slot that is due while the concurrency limit is reached."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OLD = "cancel_old"
    ALLOW = "allow"


class Backoff(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class OnLost(StrEnum):
    """What to do with a run whose node died after the run had started."""

    RETRY = "retry"
    STOP = "stop"


UNLIMITED = 1_000_000_000
RETRY_AFTER_CAP = timedelta(hours=1)
MAX_RETRY_DELAY = timedelta(days=365)


class Policy(Struct, frozen=True, kw_only=True):
    misfire: Misfire = Misfire.ONE
    misfire_grace: timedelta = timedelta(seconds=60)
    catch_up_limit: int = 1000
    overlap: Overlap = Overlap.SKIP
    #: None: one at a time, or without limit under `overlap: allow`.
    max_concurrent_runs: int | None = None
    burst_allowed: bool = False
    #: Runs of all schedules with this key share the limit; None: the schedule's own runs do.
    concurrency_key: str | None = None
    #: Extra attempts after the first.
    max_retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=5)
    backoff: Backoff = Backoff.FIXED
    backoff_cap: timedelta = timedelta(hours=1)
    timeout: timedelta = timedelta(seconds=10)
    on_lost: OnLost = OnLost.RETRY
    #: Pause the schedule when the receiver answers 410 Gone.
    pause_on_gone: bool = True
    #: Recipients of notifications. Part of the policy, so that a run keeps its snapshot (ADR 24).
    delivery: tuple[Recipient, ...] = ()

    @property
    def concurrency_limit(self) -> int:
        if self.max_concurrent_runs is not None:
            return self.max_concurrent_runs
        return UNLIMITED if self.overlap is Overlap.ALLOW or self.burst_allowed else 1

    def retry_delay(self, attempt: int, *, run_id: str, retry_after: timedelta | None) -> timedelta:
        """The delay after failed attempt number `attempt` (1 = the first).

        The receiver's Retry-After may lengthen it, up to an hour. The jitter of exponential
        back-off is a hash, so that a replay waits as long as the original did.
        """
        if self.backoff is Backoff.FIXED:
            delay = self.retry_backoff
        else:
            # Compared by division: the product could overflow timedelta.
            factor = 2 ** min(attempt - 1, 40)
            capped = self.retry_backoff >= self.backoff_cap / factor
            delay = self.backoff_cap if capped else self.retry_backoff * factor
            share = hashlib.blake2b(f"{run_id}:{attempt}".encode(), digest_size=2).digest()
            delay *= 1 + int.from_bytes(share) / 65536 * 0.1
        return max(delay, min(retry_after, RETRY_AFTER_CAP)) if retry_after is not None else delay


# --- defaults that a task or flow declares for its own runs; a schedule or request overrides them

PRIORITY = "priority"
#: Policy fields that a task can declare; the others are about timing.
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


class RunDefaults(Struct, frozen=True, kw_only=True):
    #: Only TASK_POLICY_FIELDS are used.
    policy: Policy
    priority: int = 0
    #: JSON Schema of the arguments, for forms; empty: unknown.
    arguments: Mapping[str, object] = field(default_factory=dict)


def apply_task_defaults(policy: Policy, own: Policy, explicit: Collection[str]) -> Policy:
    """`policy`, with the target's own values for fields that are not in `explicit`."""
    return replace(
        policy, **{name: getattr(own, name) for name in TASK_POLICY_FIELDS.difference(explicit)}
    )


def unchanged_fields(policy: Policy, own: Policy) -> frozenset[str]:
    """The fields that have the target's own values."""
    return frozenset(
        name for name in TASK_POLICY_FIELDS if getattr(policy, name) == getattr(own, name)
    )
