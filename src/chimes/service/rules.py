"""What a schedule must be like to be saved, whatever door it comes through."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule
from chimes.model.sync_policy import exclusive, is_pair_key
from chimes.model.target import SyncTarget, Target
from chimes.service.targets import longest_timeout
from chimes.triggers import Cron, Every, Trigger, never_fires
from chimes.wording import say

NAME_LIMIT = 200
ID_LIMIT = 200
LABEL_LIMIT = 50
PRIORITY_LIMIT = 1000
SHORTEST_INTERVAL = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(days=365)
MOST_RETRIES = 100
MOST_AT_ONCE = 1_000_000
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MOST_MARKS_IN_A_ROW = 8
_FIRES_LOOKED_AT = 60
_SECOND = timedelta(seconds=1)


def clean_name(name: str, field: str = "name") -> str:
    """NFC and trimmed (S18); without characters that no store or screen takes safely (S15)."""
    cleaned = unicodedata.normalize("NFC", checked_text(name, field)).strip()
    if not cleaned:
        raise InvalidInput(say("a name is needed"), field=field, code="missing")
    if len(cleaned) > NAME_LIMIT:
        raise InvalidInput(
            say(
                "a name has at most {most} characters, this one has {count}",
                most=NAME_LIMIT,
                count=len(cleaned),
            ),
            field=field,
            code="too_long",
        )
    return cleaned


def checked_text(text: str, field: str) -> str:
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if (
            category in _FORBIDDEN_CATEGORIES
            or character in _BIDI_CONTROLS
            or marks > _MOST_MARKS_IN_A_ROW
        ):
            raise InvalidInput(
                say("the character U+{code:04X} is not allowed here", code=ord(character)),
                field=field,
                code="bad_character",
            )
    return text


def checked_id(schedule_id: str) -> str:
    if not 0 < len(schedule_id) <= ID_LIMIT:
        raise InvalidInput(
            say("an id has 1 to {most} characters", most=ID_LIMIT),
            field="id",
            code="too_long",
        )
    if any(character.isspace() or character in "/?#%\\" for character in schedule_id):
        raise InvalidInput(
            say("an id has no spaces and none of / ? # % \\"), field="id", code="bad_character"
        )
    return checked_text(schedule_id, "id")


def checked(schedule: Schedule) -> Schedule:
    """The schedule, tidied up; InvalidInput names the field that is wrong."""
    policy = checked_policy(schedule.policy, schedule.target)
    check_priority(schedule.priority, schedule.target)
    if len(schedule.labels) > LABEL_LIMIT:
        raise InvalidInput(
            say("at most {most} labels", most=LABEL_LIMIT),
            field="labels",
            code="too_many",
        )
    for name, value in schedule.labels.items():
        clean_name(name, "labels")
        checked_text(value or "", f"labels.{name}")
    if schedule.depends_on is not None and schedule.depends_on.schedule_id == schedule.id:
        raise InvalidInput(
            say("a schedule cannot depend on itself"), field="depends_on", code="cycle"
        )
    checked_text(schedule.pause_note, "note")
    return replace(schedule, name=clean_name(schedule.name), policy=policy)


def check_priority(priority: int, target: Target | None = None) -> None:
    """The class of a task is positive (R4.6, R4.8)."""
    least = 1 if isinstance(target, SyncTarget) else -PRIORITY_LIMIT
    if not least <= priority <= PRIORITY_LIMIT:
        raise InvalidInput(
            say(
                "priority lies between {least} and {most}",
                least=least,
                most=PRIORITY_LIMIT,
            ),
            field="priority",
            code="out_of_range",
        )


def checked_policy(policy: Policy, target: Target) -> Policy:
    """As runs of this target are carried out."""
    if isinstance(target, SyncTarget):
        policy = exclusive(policy, target)
    elif policy.concurrency_key is not None and is_pair_key(policy.concurrency_key):
        raise InvalidInput(
            say("a key of this form belongs to a pair of source and collection"),
            field="policy.concurrency_key",
            code="reserved",
        )
    check_policy(policy, longest_timeout=longest_timeout(target))
    return policy


def check_policy(policy: Policy, *, longest_timeout: timedelta) -> None:
    zero = timedelta()
    for field, value, low, high in (
        ("misfire_grace", policy.misfire_grace, zero, LONGEST_WAIT),
        ("retry_backoff", policy.retry_backoff, zero, LONGEST_WAIT),
        ("backoff_cap", policy.backoff_cap, zero, LONGEST_WAIT),
        ("timeout", policy.timeout, timedelta(milliseconds=1), longest_timeout),
    ):
        if not low <= value <= high:
            raise InvalidInput(
                say(
                    "{field} must lie between {least} and {most}", field=field, least=low, most=high
                ),
                field=f"policy.{field}",
                code="out_of_range",
            )
    for field, number, least, most in (
        ("catch_up_limit", policy.catch_up_limit, 1, 100_000),
        ("max_retries", policy.max_retries, 0, MOST_RETRIES),
        ("max_concurrent_runs", policy.max_concurrent_runs or 1, 1, MOST_AT_ONCE),
    ):
        if not least <= number <= most:
            raise InvalidInput(
                say(
                    "{field} must lie between {least} and {most}",
                    field=field,
                    least=least,
                    most=most,
                ),
                field=f"policy.{field}",
                code="out_of_range",
            )
    if policy.concurrency_key is not None:
        clean_name(policy.concurrency_key, "policy.concurrency_key")
    if policy.max_concurrent_runs == 0:
        raise InvalidInput(
            say("max_concurrent_runs is at least 1"),
            field="policy.max_concurrent_runs",
            code="out_of_range",
        )


def check_interval(trigger: Trigger, shortest: timedelta, now: datetime) -> None:
    """An interval by itself; a cron expression by its next fires, because only one with a seconds
    field can be this fast, and it shows soon (S24). `@every` is an interval, too."""
    interval = isinstance(trigger, Cron) and "@every" in trigger.expression
    if isinstance(trigger, Every):
        closest = trigger.every
    elif shortest <= _SECOND and not interval:
        return
    else:
        fires = [fire.at for fire in trigger.fires(now, _FIRES_LOOKED_AT)]
        closest = min((b - a for a, b in pairwise(fires)), default=shortest)
    if closest < shortest:
        raise InvalidTrigger(
            say("the shortest interval here is {shortest:g} s", shortest=shortest.total_seconds()),
            field="trigger.every" if isinstance(trigger, Every) else "trigger.expression",
            code="interval_too_short",
        )


def check_fires(trigger: Trigger, after: datetime) -> None:
    """T14: what would never fire is not saved."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            say("this trigger would never fire"), field="trigger", code="never_fires"
        )
