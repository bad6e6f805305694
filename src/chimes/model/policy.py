"""The policy of a schedule: misfires, overlaps, retries and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Literal

from msgspec import Struct, field

from chimes.i18n import _
from chimes.model import replace
from chimes.model.fields import About, Field, Option, fields_of
from chimes.model.recipient import Recipient


class Misfire(StrEnum):
    """What to do with slots later than the grace."""

    SKIP = "skip"
    #: The oldest one.
    ONE = "one"
    #: The newest one.
    LATEST = "latest"
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
MAX_LIMITS_OF_POLICY = 8
RETRY_AFTER_CAP = timedelta(hours=1)
MAX_RETRY_DELAY = timedelta(days=365)


#: Presentation of the fields of a policy, in the order of the form.
_ABOUT: Mapping[str, About] = {
    "overlap": About(
        label=_("Overlap policy"),
        question=_("If the previous run is still active"),
        choices={
            Overlap.SKIP: _("Skip the new run"),
            Overlap.QUEUE: _("Queue the new run"),
            Overlap.CANCEL_OLD: _("Cancel the previous run"),
            Overlap.ALLOW: _("Run both"),
        },
        group="main",
        command=Option(choices=("allow", "skip", "queue", "cancel_old"), rank=3),
    ),
    "timeout": About(
        label=_("Timeout"),
        hint=_("Per attempt. Empty: default."),
        example="10m",
        placeholder=True,
        group="main",
        allow_zero=False,
        command=Option(help=_("Timeout of one attempt."), rank=2),
    ),
    "max_retries": About(
        label=_("Retries"),
        hint=_("Attempts after the first."),
        example="3",
        placeholder=True,
        group="main",
        option="retries",
        command=Option(name="--retry", help=_("Retries after the first attempt."), rank=1),
    ),
    "retry_backoff": About(
        label=_("Retry delay"), example="30s", placeholder=True, group="main", command=None
    ),
    "backoff": About(
        label=_("Backoff"),
        choices={Backoff.FIXED: _("Fixed"), Backoff.EXPONENTIAL: _("Exponential")},
        group="main",
        command=None,
    ),
    "backoff_cap": About(
        label=_("Maximum delay"),
        example="1h",
        placeholder=True,
        group="main",
        sdk=False,
        client=False,
        command=None,
    ),
    "misfire": About(
        label=_("Misfire policy"),
        question=_("If runs were missed (for example, after an outage)"),
        choices={
            Misfire.SKIP: _("Skip them"),
            Misfire.ONE: _("Run once"),
            Misfire.LATEST: _("Run the newest one"),
            Misfire.ALL: _("Run every missed one"),
        },
        option="catch_up",
        command=Option(rank=4),
    ),
    "misfire_grace": About(
        label=_("Misfire grace period"), example="1m", placeholder=True, command=None
    ),
    "catch_up_limit": About(label=_("Catch-up limit"), example="1000", command=None),
    "max_concurrent_runs": About(
        label=_("Concurrent runs"),
        hint=_("Empty: one, or unlimited if runs may overlap."),
        example="1",
        command=None,
    ),
    "concurrency_key": About(
        label=_("Concurrency key"),
        hint=_("Schedules of the same owner with the same key share the concurrency limit."),
        description="Runs of one owner with this key share one limit.",
        sdk=False,
        command=None,
    ),
    "burst_allowed": About(
        label=_("Allow bursts"),
        question=_("Bursts"),
        choices={"no": _("Not allowed"), "yes": _("Allowed")},
        command=None,
    ),
    "on_lost": About(
        label=_("If the node is lost"),
        choices={OnLost.RETRY: _("Run again"), OnLost.STOP: _("Stop with status unknown")},
        command=None,
    ),
    "pause_on_gone": About(
        label=_("Pause on 410 Gone"),
        question=_("If the URL returns 410 Gone"),
        choices={"yes": _("Pause the schedule"), "no": _("Continue")},
        sdk=False,
        client=False,
        command=None,
    ),
    "limits": About(
        names=True,
        at_most=MAX_LIMITS_OF_POLICY,
        label=_("Limits"),
        hint=_("Names of limits that other schedules and tasks share."),
        description="Named limits that the runs share with those of other schedules.",
        example="api.example.com",
        command=Option(name="--limit", help=_("Named limit (repeatable)."), rank=6),
    ),
    "end_after_successes": About(
        label=_("End after successes"),
        hint=_("Successful runs after which the schedule is disabled. Empty: never."),
        description="Successful runs after which the schedule is disabled; null: never.",
        example="10",
        command=Option(help=_("Disable after this many successful runs."), rank=7),
    ),
    "auto_pause_after": About(
        label=_("Pause after failures"),
        hint=_("Failed runs in a row after which the schedule is paused. Empty: never."),
        description="Failed runs in a row after which the schedule is paused; null: never.",
        example="5",
        command=Option(help=_("Pause after this many failed runs in a row."), rank=5),
    ),
}


class Policy(Struct, frozen=True, kw_only=True, gc=False):
    about: ClassVar[Mapping[str, About]] = _ABOUT

    misfire: Misfire = Misfire.ONE
    misfire_grace: timedelta = timedelta(seconds=60)
    catch_up_limit: int = 1000
    overlap: Overlap = Overlap.SKIP
    #: None: one at a time, or without limit under `overlap: allow`.
    max_concurrent_runs: int | None = None
    burst_allowed: bool = False
    #: Runs of the same owner with this key share the limit (`model.run`); None: the
    #: schedule's own runs do.
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
    #: Named limits (`model.limit`) under which its runs start.
    limits: tuple[str, ...] = ()
    #: Failed runs in a row, without a change of the schedule between them, after which it is
    #: paused; None: never.
    auto_pause_after: int | None = None
    #: Successful runs after which it is disabled; None: never.
    end_after_successes: int | None = None
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


def policy_fields() -> tuple[Field, ...]:
    """The fields that people set one by one; recipients stand beside the policy."""
    return tuple(each for each in fields_of(Policy) if each.kind != "other")


def policy_form() -> list[Field]:
    """The fields in the order of the form; those without presentation come last."""
    shown = [*Policy.about]
    return sorted(
        policy_fields(),
        key=lambda each: shown.index(each.name) if each.name in shown else len(shown),
    )


def policy_options(interface: Literal["sdk", "client"]) -> dict[str, Field]:
    """The fields that have an option, by the name of the option."""
    return {
        each.about.option or each.name: each
        for each in policy_fields()
        if getattr(each.about, interface)
    }


def command_options() -> dict[str, Field]:
    """The fields that `chimes add` has an option for, by the option, in the order of its help."""
    found = [(each.about.command, each) for each in policy_fields() if each.about.command]
    return {
        command.name or f"--{each.name.replace('_', '-')}": each
        for command, each in sorted(found, key=lambda pair: pair[0].rank)
    }


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
        "limits",
    }
)


class RunDefaults(Struct, frozen=True, kw_only=True, gc=False):
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
