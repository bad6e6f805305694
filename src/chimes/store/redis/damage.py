"""Records that cannot be read, damaged or written by hand: as much of them as can be.

One such record must not hide the others, nor stop the work on them (R2.10). What cannot be read
stands as a placeholder in the value, and the error says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from chimes.errors import told
from chimes.model.access import SYSTEM_OWNER, Owner, OwnerType
from chimes.model.change import replace
from chimes.model.delivery import Delivery, DeliveryState, InboxItem
from chimes.model.ids import DeliveryId, InboxId, NodeId, RunId, ScheduleId
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Occasion, Recipient
from chimes.model.run import Attempt, Origin, Reason, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.codec.run import attempt_from_plain, run_from_plain
from chimes.store.codec.schedule import (
    dependency_from_plain,
    labels_from_plain,
    owner_from_plain,
    owner_to_plain,
    policy_from_plain,
    policy_to_plain,
    schedule_from_plain,
    target_from_plain,
    target_to_plain,
)
from chimes.store.plain import EPOCH, Plain, moment, to_text
from chimes.store.redis.wire import maybe_moment
from chimes.triggers import Once, trigger_from_dict
from chimes.wording import say

_log = logging.getLogger(__name__)

Word = TypeVar("Word", bound=StrEnum)

#: How to try a part, and what stands in its place.
_Part = tuple[Callable[[object], object], object]
_LONG_AGO = to_text(EPOCH)
_SHARED: dict[str, _Part] = {
    "owner": (owner_from_plain, owner_to_plain(SYSTEM_OWNER)),
    "target": (target_from_plain, target_to_plain(HttpTarget(url="unreadable:"))),
    "policy": (policy_from_plain, policy_to_plain(Policy())),
    "created_at": (moment, _LONG_AGO),
}
_RUN: dict[str, _Part] = _SHARED | {
    "origin": (lambda word: Origin(str(word)), Origin.MANUAL.value),
    "planned_at": (moment, _LONG_AGO),
}
_SCHEDULE: dict[str, _Part] = _SHARED | {
    "trigger": (lambda plain: trigger_from_dict(_object(plain)), Once(EPOCH).to_dict()),
    "labels": (labels_from_plain, {}),
    "depends_on": (lambda plain: dependency_from_plain(_object(plain)), {}),
    "updated_at": (moment, _LONG_AGO),
}
_NEEDED_OF_RUN = ("owner", "target", "policy", "created_at", "planned_at", "origin")
_NEEDED_OF_SCHEDULE = ("owner", "target", "policy", "created_at", "updated_at", "trigger")


def is_damaged(run: Run) -> bool:
    return run.reason == Reason.UNREADABLE and not run.status.terminal


def mended_run(fields: Mapping[str, str], error: Exception) -> Run:
    _log.warning("run %s cannot be read: %s", fields["id"], error)
    plain, damage = _mended(fields["body"], _RUN, _NEEDED_OF_RUN)
    plain |= {"id": fields["id"], "status": "queued", "available_at": _LONG_AGO}
    try:
        base = run_from_plain(plain)
    except Exception:
        # A field that nobody knows, or one of a wrong kind among those that are never wrong.
        damage |= {"body"}
        kept = {name: plain[name] for name in (*_NEEDED_OF_RUN, "id", "status", "available_at")}
        base = run_from_plain(kept)
    attempts, trouble = _attempts(fields["rest"])
    damage |= trouble
    return replace(
        base,
        id=RunId(fields["id"]),
        status=_status(fields["status"]),
        blocked=fields["blocked"] == "1",
        attempt=_number(fields["attempt"]),
        fence=_number(fields["fence"]),
        holder=NodeId(fields["holder"]) if fields["holder"] else None,
        started=fields["started"] == "1",
        cancel_requested=fields["stop"] == "1",
        available_at=_time(fields["available"]) or EPOCH,
        claimed_at=_time(fields["claimed"]),
        started_at=_time(fields["first"]),
        finished_at=_time(fields["finished"]),
        attempts=attempts,
        error=_unreadable_run(damage, error),
        reason=Reason.UNREADABLE,
    )


def mended_schedule(fields: Mapping[str, str], error: Exception) -> Schedule:
    _log.warning("schedule %s cannot be read: %s", fields["id"], error)
    plain, damage = _mended(fields["body"], _SCHEDULE, _NEEDED_OF_SCHEDULE)
    plain["id"] = fields["id"]
    try:
        base = schedule_from_plain(plain)
    except Exception:
        damage |= {"body"}
        base = schedule_from_plain({name: plain[name] for name in (*_NEEDED_OF_SCHEDULE, "id")})
    return replace(
        base,
        id=ScheduleId(fields["id"]),
        next_slot=_time(fields["next_slot"]),
        next_run_at=_time(fields["next_run"]),
        last_slot=_time(fields["last_slot"]),
        last_enqueued_at=_time(fields["last_enqueued"]),
        last_run_at=_time(fields["last_run"]),
        last_status=_status(fields["last_status"]) if fields["last_status"] else None,
        last_success_at=_time(fields["last_success"]),
        fired_count=_number(fields["fired"]),
        purged_until=_time(fields["purged"]),
        last_error=_unreadable_schedule(damage, error),
    )


def _unreadable_run(damage: set[str], error: Exception) -> str:
    if not damage:
        return str(say("a part of this run cannot be read: {error}", error=told(error)))
    return str(
        say(
            "{parts} of this run cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=told(error),
        )
    )


def _unreadable_schedule(damage: set[str], error: Exception) -> str:
    if not damage:
        return str(say("a part of this schedule cannot be read: {error}", error=told(error)))
    return str(
        say(
            "{parts} of this schedule cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=told(error),
        )
    )


def mended_delivery(fields: Mapping[str, str], error: Exception) -> Delivery:
    """Only what stands beside its body; to whom it was to go is not known any more."""
    _log.warning("delivery %s cannot be read: %s", fields["id"], error)
    return Delivery(
        id=DeliveryId(fields["id"]),
        run_id=RunId(fields["run"]) if fields["run"] else None,
        schedule_id=ScheduleId(fields["schedule"]) if fields["schedule"] else None,
        owner=_owner(fields["owner"]),
        recipient=Recipient(channel=_word(Channel, fields["channel"], Channel.INBOX)),
        occasion=Occasion.ALWAYS,
        state=_word(DeliveryState, fields["state"], DeliveryState.DEAD),
        attempts=_number(fields["attempts"]),
        fence=_number(fields["fence"]),
        progress=_number(fields["progress"]),
        created_at=_time(fields["created"]) or EPOCH,
        available_at=_time(fields["available"]) or EPOCH,
        finished_at=_time(fields["finished"]),
        error=str(say("this delivery cannot be read: {error}", error=told(error))),
        code=Reason.UNREADABLE,
    )


def mended_inbox(fields: Mapping[str, str], error: Exception) -> InboxItem:
    _log.warning("inbox item %s cannot be read: %s", fields["id"], error)
    return InboxItem(
        id=InboxId(fields["id"]),
        owner=_owner(fields["owner"]),
        run_id=None,
        schedule_id=None,
        title=str(say("this message cannot be read")),
        text=str(error),
        status=Reason.UNREADABLE,
        created_at=_time(fields["created"]) or EPOCH,
    )


def damage_of(body: str) -> frozenset[str]:
    """Which parts of a schedule's definition cannot be read."""
    try:
        schedule_from_plain(json.loads(body))
    except Exception:
        damage = _mended(body, _SCHEDULE, _NEEDED_OF_SCHEDULE)[1]
        return frozenset(damage or {"body"})
    return frozenset()


def _mended(
    body: str, parts: Mapping[str, _Part], needed: tuple[str, ...]
) -> tuple[Plain, set[str]]:
    damage: set[str] = set()
    try:
        plain = _object(json.loads(body))
    except ValueError:
        plain = {}
        damage.add("body")
    for name, (read, instead) in parts.items():
        if name not in plain and name not in needed:
            continue
        try:
            read(plain.get(name))
        except Exception:
            plain[name] = instead
            damage.add(name)
    return plain, damage


def _object(value: object) -> Plain:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def _attempts(rest: str) -> tuple[tuple[Attempt, ...], set[str]]:
    try:
        found = _object(json.loads(rest)).get("attempts") if rest else None
        return tuple(map(attempt_from_plain, found if isinstance(found, list) else ())), set()
    except Exception:
        return (), {"attempts"}


def _status(word: str) -> RunStatus:
    return _word(RunStatus, word, RunStatus.FAILED)


def _word(kind: type[Word], word: str, instead: Word) -> Word:
    try:
        return kind(word)
    except ValueError:
        return instead


def _owner(name: str) -> Owner:
    kind, _, owner_id = name.partition(":")
    try:
        return Owner(type=OwnerType(kind), id=owner_id)
    except ValueError:
        return SYSTEM_OWNER


def _number(value: str) -> int:
    return int(value) if value.isdecimal() else 0


def _time(value: str) -> datetime | None:
    try:
        return maybe_moment(value)
    except (ValueError, OverflowError):
        return None
