"""Encodes runs, schedules, deliveries and inbox items as Redis hashes.

A run has the key of its definition, which equal runs share; `rest` is what its attempts returned,
`body` the other fields that no script reads. Decoded texts are cached, since values are frozen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from chimes.clock import EPOCH, to_micros
from chimes.envelope import NO_KEYS, Keyring
from chimes.errors import message_of
from chimes.i18n import _, from_stored, to_stored
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner, OwnerType
from chimes.model.ids import DeliveryId, InboxId, NodeId, RunId, ScheduleId
from chimes.model.notification import (
    Delivery,
    DeliveryState,
    InboxItem,
    notify_on_for,
    plan_deliveries,
)
from chimes.model.planning import cancels_only_own_runs, concurrency_key
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.routing import RoutingCache
from chimes.model.run import (
    LogEntry,
    Reason,
    Run,
    RunDefinition,
    RunStatus,
    Turns,
    owner_number,
)
from chimes.model.schedule import Schedule
from chimes.model.sync import created_unix, is_task, task_fields, task_id, task_time
from chimes.model.target import HttpTarget, SyncTarget
from chimes.store.codec.records import (
    attempt_from_plain,
    attempt_to_plain,
    definition_from_plain,
    definition_to_plain,
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
    run_state_from_plain,
    run_state_to_plain,
)
from chimes.store.codec.values import (
    Plain,
    content_digest,
    dependency_from_plain,
    has_secret_parts,
    labels_from_plain,
    open_json,
    open_parts,
    owner_from_plain,
    owner_to_plain,
    policy_from_plain,
    policy_to_plain,
    schedule_from_plain,
    schedule_to_plain,
    seal_json,
    seal_plain,
    split_args,
    target_from_plain,
    target_to_plain,
    to_text,
    with_args,
)
from chimes.store.codec.values import moment as moment_damage
from chimes.store.redis.wire import (
    DecodeCache,
    Wire,
    flag,
    flat,
    maybe_moment,
    micros,
    moment,
    text,
    texts,
    to_json,
)
from chimes.triggers import Once, trigger_from_dict

# --- corrupt rows: one bad record must not block the others. Unreadable parts become placeholders,
# and the error says so.

_log = logging.getLogger(__name__)

Word = TypeVar("Word", bound=StrEnum)

#: Decoder and placeholder of each part.
_Part = tuple[Callable[[object], object], object]
_LONG_AGO = to_text(EPOCH)
_SHARED: dict[str, _Part] = {
    "owner": (owner_from_plain, owner_to_plain(SYSTEM_OWNER)),
    "target": (target_from_plain, target_to_plain(HttpTarget(url="unreadable:"))),
    "policy": (policy_from_plain, policy_to_plain(Policy())),
    "created_at": (moment_damage, _LONG_AGO),
}
_DEFINITION: dict[str, _Part] = {name: _SHARED[name] for name in ("owner", "target", "policy")}
_SCHEDULE: dict[str, _Part] = _SHARED | {
    "trigger": (lambda plain: trigger_from_dict(_object(plain)), Once(EPOCH).to_dict()),
    "labels": (labels_from_plain, {}),
    "depends_on": (lambda plain: dependency_from_plain(_object(plain)), {}),
    "updated_at": (moment_damage, _LONG_AGO),
}
_NEEDED_OF_SCHEDULE = ("owner", "target", "policy", "created_at", "updated_at", "trigger")


def is_corrupt(run: Run) -> bool:
    return run.reason == Reason.UNREADABLE and not run.status.terminal


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    value: RunDefinition
    #: Parts that are placeholders, and why they cannot be read.
    damage: frozenset[str] = frozenset()
    error: str = ""


def decode_definition(key: str, definition: str) -> StoredDefinition:
    try:
        return StoredDefinition(definition_from_plain(open_parts(json.loads(definition))))
    except Exception as error:
        _log.warning("definition %s cannot be read: %s", key, error)
        plain, damage = _decode_parts(definition, _DEFINITION, tuple(_DEFINITION))
        try:
            value = definition_from_plain(plain)
        except Exception:
            # An unknown field, or a wrong type in a field that has no placeholder.
            damage.add("definition")
            value = definition_from_plain({name: plain[name] for name in _DEFINITION})
        return StoredDefinition(value, frozenset(damage), message_of(error))


#: Decoder and placeholder of fields.
_Checks = Mapping[str, tuple[Callable[[str], object], str]]


def _mend(fields: dict[str, str], checks: _Checks) -> set[str]:
    """Replaces fields that cannot be read by placeholders; returns their names."""
    damage: set[str] = set()
    for name, (read, instead) in checks.items():
        try:
            read(fields[name])
        except Exception:
            fields[name] = instead
            damage.add(name)
    return damage


def decode_corrupt_delivery(fields: Mapping[str, str], error: Exception) -> Delivery:
    """Only the fields outside the body; the recipient is lost."""
    _log.warning("delivery %s cannot be read: %s", fields["id"], error)
    return Delivery(
        id=DeliveryId(fields["id"]),
        run_id=RunId(fields["run"]) if fields["run"] else None,
        schedule_id=ScheduleId(fields["schedule"]) if fields["schedule"] else None,
        owner=_owner(fields["owner"]),
        recipient=Recipient(channel=_word(Channel, fields["channel"], Channel.INBOX)),
        notify_on=NotifyOn.ALWAYS,
        state=_word(DeliveryState, fields["state"], DeliveryState.DEAD),
        attempts=_number(fields["attempts"]),
        fence=_number(fields["fence"]),
        progress=_number(fields["progress"]),
        created_at=_time(fields["created"]) or EPOCH,
        available_at=_time(fields["available"]) or EPOCH,
        finished_at=_time(fields["finished"]),
        error=str(_("this delivery cannot be read: {error}", error=message_of(error))),
        code=Reason.UNREADABLE,
    )


def decode_corrupt_inbox(fields: Mapping[str, str], error: Exception) -> InboxItem:
    _log.warning("inbox item %s cannot be read: %s", fields["id"], error)
    return InboxItem(
        id=InboxId(fields["id"]),
        owner=_owner(fields["owner"]),
        run_id=None,
        schedule_id=None,
        title=str(_("this message cannot be read")),
        text=str(error),
        status=Reason.UNREADABLE,
        created_at=_time(fields["created"]) or EPOCH,
    )


def corrupt_parts(body: str) -> set[str]:
    """The corrupt parts of what people wrote in a schedule."""
    return _mend_body(body, "")[1]


def _mend_body(body: str, schedule_id: str) -> tuple[str, set[str]]:
    """The body of a schedule with placeholders for corrupt parts, and their names."""
    try:
        schedule_from_plain(open_parts(json.loads(body)))
        return body, set()
    except Exception:
        plain, damage = _decode_parts(body, _SCHEDULE, _NEEDED_OF_SCHEDULE)
        plain["id"] = schedule_id
        try:
            schedule_from_plain(plain)
        except Exception:
            damage.add("body")
            plain = {name: plain[name] for name in (*_NEEDED_OF_SCHEDULE, "id")}
        return to_json(plain), damage or {"body"}


def _decode_parts(
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
            if name in plain:
                plain |= open_parts({name: plain[name]})
            read(plain.get(name))
        except Exception:
            plain[name] = instead
            damage.add(name)
    return plain, damage


def _object(value: object) -> Plain:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def _word(kind: type[Word], word: str, instead: Word) -> Word:
    try:
        return kind(word)
    except ValueError:
        return instead


def _owner(name: str) -> Owner:
    kind, _unused, owner_id = name.partition(":")
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


_STATUSES = {status.value: status for status in RunStatus}
#: Fields of a run in the order of the scripts.
RUN = (
    *("def", "args", "body", "slot", "parent", "key", "limit", "created", "planned", "status"),
    *("blocked", "attempt", "fence", "holder", "started", "stop", "available", "claimed", "first"),
    *("finished", "rev", "rest", "id"),
)
#: Not in `body`: stored in separate fields or in `rest`.
_BESIDE = (
    *("id", "slot", "parent_id", "concurrency_key", "concurrency_limit", "created_at"),
    *("planned_at", "status", "blocked", "attempt", "fence", "holder", "started"),
    *("cancel_requested", "available_at", "claimed_at", "started_at", "finished_at", "result"),
    *("error", "reason", "attempts"),
)
#: Offset that makes ranks positive and sorts higher ranks first.
_RANKS = 10**19
#: Digits of a time in a queue member.
_DIGITS = 18


def member(run: Run) -> str:
    """The queue member, sorted like `queue_order`; see `needs_of` and `owner_of` in the Lua."""
    available = max(0, to_micros(run.available_at))
    planned = max(0, to_micros(run.planned_at))
    return (
        f"{_RANKS - run.rank:020d}{available:0{_DIGITS}d}{planned:0{_DIGITS}d}"
        f"{run.id}\n{run.target.requirement}\n{owner_number(str(run.owner)):019d}"
    )


def turn_words(turns: Turns) -> list[str]:
    """Ranks and owners in turn, as the queue has them."""
    return flat((f"{_RANKS - rank:020d}", f"{owner:019d}") for rank, owner in turns.items())


def rank_of(order: str) -> int | None:
    """The rank that a queue member begins with."""
    return _RANKS - int(order) if order else None


def state_fields(run: Run) -> dict[str, str]:
    """The fields that change during a run. The place in the queue is that of a queued run."""
    return {
        "rest": rest_of(run),
        "status": run.status.value,
        "blocked": flag(run.blocked),
        "attempt": str(run.attempt or ""),
        "fence": str(run.fence or ""),
        "holder": run.holder or "",
        "started": flag(run.started),
        "stop": flag(run.cancel_requested),
        "available": micros(run.available_at),
        "claimed": micros(run.claimed_at),
        "first": micros(run.started_at),
        "finished": micros(run.finished_at),
        "member": member(run) if run.status is RunStatus.QUEUED else "",
    }


def changed_fields(before: Run, after: Run) -> dict[str, str]:
    """The fields that differ."""
    old, new = state_fields(before), state_fields(after)
    return {name: value for name, value in new.items() if old[name] != value}


def task_row(run: Run) -> Wire:
    """The EventNative hash of a task and its score in the index; empty for other runs."""
    if not is_task(run):
        return ""
    fields = task_fields(run)
    return [flat((name, str(value)) for name, value in fields.items()), str(created_unix(run))]


def log_rows(entries: Sequence[LogEntry]) -> list[Wire]:
    """For each: our entry, its time as score, and the prefix of EventNative's entry."""
    return [
        [
            to_json([micros(entry.at), entry.level, entry.message]),
            f"{to_micros(entry.at) / 1_000_000:.6f}",
            to_json({"time": task_time(entry.at), "message": entry.message, "level": entry.level})[
                :-1
            ],
        ]
        for entry in entries
    ]


def log_entry(row: str, number: int) -> LogEntry:
    at, level, message = json.loads(row)
    return LogEntry(at=moment(at), level=level, message=message, number=number)


class RunRows:
    """Encodes and decodes runs, and remembers definitions: they never change."""

    def __init__(self, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._bodies: DecodeCache[Run] = DecodeCache()
        self._definitions: DecodeCache[StoredDefinition] = DecodeCache()
        #: The last definition of each schedule or kind of request, to encode it once.
        self._encoded: DecodeCache[tuple[RunDefinition, str, str]] = DecodeCache()

    def known_definition(self, key: str) -> StoredDefinition | None:
        return self._definitions.get(key)

    def learn_definition(self, key: str, definition: str) -> StoredDefinition:
        if not definition:
            missing = str(_("the definition of this run is missing"))
            return StoredDefinition(_PLACEHOLDER, frozenset({"definition"}), missing)
        stored = decode_definition(key, definition)
        if not stored.error:
            self._definitions.keep(key, stored, len(definition))
        return stored

    def _encode_definition(self, definition: RunDefinition) -> tuple[str, str]:
        """Key and text."""
        name = definition.schedule_id or definition.target.requirement
        last = self._encoded.get(name)
        if last is None or last[0] != definition:
            plain = definition_to_plain(definition)
            encoded = to_json(plain)
            key = self._keyring.current() if has_secret_parts(plain) else None
            if key is None:
                last = definition, content_digest(encoded), encoded
            else:
                # Equal definitions have the same digest, but cannot be guessed from it.
                digest = key.digest(encoded)[:32]
                encoded = to_json(seal_plain(plain, self._keyring))
                last = definition, digest, encoded
            self._encoded.keep(name, last, len(encoded))
            self._definitions.keep(last[1], StoredDefinition(definition), len(encoded))
        return last[1:]

    def new_fields(self, run: Run, definitions: dict[str, str]) -> list[str]:
        """The fields of a new run; adds its definition to `definitions`, which the script needs."""
        definition, args = split_args(run)
        key, encoded = self._encode_definition(definition)
        definitions[key] = encoded
        plain = run_state_to_plain(run)
        for name in _BESIDE:
            plain.pop(name, None)
        sync = run.target if isinstance(run.target, SyncTarget) else None
        fields = {
            "def": key,
            "args": "" if args is None else seal_json(to_json(dict(args)), self._keyring),
            "body": to_json(plain),
            "schedule": run.schedule_id or "",
            "slot": micros(run.slot),
            "mark": micros(run.missed_until) if run.slot else "",
            "parent": run.parent_id or "",
            "flow": flag(run.resumable),
            "key": run.concurrency_key or "",
            "limit": str(run.concurrency_limit) if run.concurrency_limit != 1 else "",
            "created": micros(run.created_at),
            "planned": micros(run.planned_at),
            "rev": "1",
        }
        if sync:
            fields["source"] = sync.requirement
        if sync and is_task(run):
            fields["task"] = task_id(run)
            fields["pair"] = f"source#{sync.source}:collection#{sync.collection}"
            fields["score"] = str(task_fields(run)["priority"])
        return flat(each for each in (fields | state_fields(run)).items() if each[1])

    def run(self, record: Wire, definitions: Mapping[str, StoredDefinition]) -> tuple[Run, str]:
        """The run and its revision; corrupt parts are placeholders."""
        fields = texts(record)
        rev = fields[-3]
        definition = definitions[fields[0]]
        try:
            if definition.error:
                raise ValueError(definition.error)
            return self._run(fields, definition.value), rev
        except Exception as error:
            _log.warning("run %s cannot be read: %s", fields[-1], error)
            mended = dict(zip(RUN, fields, strict=True))
            damage = _mend(mended, _RUN_CHECKS) | definition.damage
            if definition.damage:
                mended["args"] = ""
            run = self._run([mended[name] for name in RUN], definition.value)
            reason = str(
                _(
                    "{parts} of this run cannot be read: {error}",
                    parts=", ".join(sorted(damage)),
                    error=message_of(error),
                )
            )
            return replace(run, error=reason, reason=Reason.UNREADABLE), rev

    def _run(self, fields: list[str], definition: RunDefinition) -> Run:
        (
            _key,
            args,
            body,
            slot,
            parent,
            concurrency_key,
            limit,
            created,
            planned,
            status,
            blocked,
            attempt,
            fence,
            holder,
            started,
            stop,
            available,
            claimed,
            first,
            finished,
            _rev,
            rest,
            run_id,
        ) = fields
        base = self._bodies.get(body)
        if base is None:
            base = _decode_body(body)
            self._bodies.keep(body, base, len(body))
        return replace(
            base,
            id=RunId(run_id),
            definition=with_args(definition, json.loads(open_json(args))) if args else definition,
            slot=maybe_moment(slot),
            parent_id=RunId(parent) if parent else None,
            concurrency_key=concurrency_key or None,
            concurrency_limit=int(limit or 1),
            created_at=moment(created),
            planned_at=moment(planned),
            status=_STATUSES[status],
            blocked=blocked == "1",
            attempt=int(attempt or 0),
            fence=int(fence or 0),
            holder=NodeId(holder) if holder else None,
            started=started == "1",
            cancel_requested=stop == "1",
            available_at=moment(available),
            claimed_at=maybe_moment(claimed),
            started_at=maybe_moment(first),
            finished_at=maybe_moment(finished),
            **_decode_rest(rest),
        )


_PLACEHOLDER = RunDefinition(target=HttpTarget(url="unreadable:"), policy=Policy())
_ANY_STATE = {"id": "", "status": "queued"} | dict.fromkeys(
    ("created_at", "planned_at", "available_at"), _LONG_AGO
)


def _decode_body(body: str) -> Run:
    """A run without what is stored beside the body."""
    return run_state_from_plain(_object(json.loads(body)) | _ANY_STATE, _PLACEHOLDER)


def rest_of(run: Run) -> str:
    plain: Plain = {}
    if run.result is not None:
        plain["result"] = dict(run.result)
    if run.error:
        plain["error"] = to_stored(run.error)
    if run.reason:
        plain["reason"] = run.reason
    if run.attempts:
        plain["attempts"] = [attempt_to_plain(attempt) for attempt in run.attempts]
    return to_json(plain) if plain else ""


def _decode_rest(rest: str) -> dict[str, Any]:
    plain = _object(json.loads(rest)) if rest else {}
    attempts, result = plain.get("attempts"), plain.get("result")
    return {
        "result": result if isinstance(result, dict) else None,
        "error": from_stored(str(plain.get("error", ""))),
        "reason": str(plain.get("reason", "")),
        "attempts": tuple(map(attempt_from_plain, attempts)) if isinstance(attempts, list) else (),
    }


_RUN_CHECKS: _Checks = {
    "body": (_decode_body, '{"origin":"manual"}'),
    "rest": (_decode_rest, ""),
    "args": (lambda args: _object(json.loads(open_json(args or "{}"))), ""),
    "status": (_STATUSES.__getitem__, RunStatus.FAILED.value),
    **dict.fromkeys(("slot", "claimed", "first", "finished"), (maybe_moment, "")),
    **dict.fromkeys(("created", "planned", "available"), (moment, "0")),
    **dict.fromkeys(("limit", "attempt", "fence"), (lambda number: int(number or 0), "")),
}


# --- schedules: `body` is what people wrote; the other fields change with firing and completions

#: Fields of a cursor in the order of the scripts, and the body, which firing does not read.
SCHEDULE = (
    *("revision", "next_slot", "next_run", "last_slot", "last_enqueued", "last_run"),
    *("last_status", "last_error", "last_success", "fired", "purged", "rev", "summary_rev", "id"),
    "body",
)


def record_id(record: Wire) -> str:
    return text(record[SCHEDULE.index("id")])


def is_whole(record: Wire) -> bool:
    """Whether a record is a schedule, not only its cursor."""
    return len(record) == len(SCHEDULE)


_BESIDE_SCHEDULE_ROWS = (
    *("next_slot", "next_run_at", "last_slot", "last_enqueued_at", "last_run_at", "last_status"),
    *("last_error", "last_success_at", "fired_count", "purged_until"),
)


def cursor_fields(schedule: Schedule) -> dict[str, str]:
    """The fields that firing changes, without the summary."""
    return {
        "next_slot": micros(schedule.next_slot),
        "next_run": micros(schedule.next_run_at),
        "last_slot": micros(schedule.last_slot),
        "last_enqueued": micros(schedule.last_enqueued_at),
        "fired": str(schedule.fired_count),
        "purged": micros(schedule.purged_until),
    }


def outcome_fields(schedule: Schedule) -> dict[str, str]:
    """The summary fields of a skipped or missed slot."""
    return {
        "last_status": schedule.last_status.value if schedule.last_status else "",
        "last_error": to_stored(schedule.last_error),
    }


def _schedule_fields(schedule: Schedule, body: str, revision: str) -> list[Wire]:
    written = {
        "body": body,
        "name": schedule.name,
        "namespace": schedule.namespace,
        "owner": str(schedule.owner),
        "created": micros(schedule.created_at),
        "updated": micros(schedule.updated_at),
        "enabled": flag(schedule.enabled),
        "snoozed": micros(None if schedule.enabled else schedule.pause_until),
        "deleted": micros(schedule.deleted_at),
    }
    cursor = {
        "revision": revision,
        "live": "deleted" if schedule.deleted_at else flag(schedule.enabled),
        "key": concurrency_key(schedule),
        "own": flag(cancels_only_own_runs(schedule)),
        "depends": schedule.depends_on.schedule_id if schedule.depends_on else "",
        "last_run": micros(schedule.last_run_at),
        "last_success": micros(schedule.last_success_at),
    }
    cursor |= cursor_fields(schedule) | outcome_fields(schedule)
    return [flat(written.items()), flat(cursor.items())]


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision of a schedule that was read."""

    definition: str
    summary: str
    #: Some parts are placeholders.
    damaged: bool = False


class ScheduleRows:
    """Decodes schedules, and remembers what people wrote by its digest."""

    def __init__(self, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._bodies: DecodeCache[Schedule] = DecodeCache()

    def fields(self, schedule: Schedule) -> list[Wire]:
        """The fields of the schedule, and those of its cursor."""
        plain = schedule_to_plain(schedule)
        for name in _BESIDE_SCHEDULE_ROWS:
            plain.pop(name, None)
        body = to_json(seal_plain(plain, self._keyring))
        revision = content_digest(body)
        self._bodies.keep(revision, schedule, len(body))
        return _schedule_fields(schedule, body, revision)

    def knows(self, record: Wire) -> bool:
        """Whether a cursor suffices to decode the schedule."""
        return self._bodies.get(texts(record)[0]) is not None

    def schedule(self, record: Wire) -> tuple[Schedule, Revision]:
        """Of a whole record, or of a cursor whose revision is known. Corrupt parts are placeholders
        (`corrupt_parts`)."""
        fields = texts(record)
        body = fields.pop() if is_whole(record) else None
        revision = Revision(fields[11], fields[12])
        try:
            return self._schedule(fields, body), revision
        except Exception as error:
            _log.warning("schedule %s cannot be read: %s", fields[-1], error)
            mended = dict(zip(SCHEDULE, fields, strict=False))
            damage = _mend(mended, _CURSOR_CHECKS)
            if body is not None:
                body, parts = _mend_body(body, fields[-1])
                damage |= parts
            schedule = self._schedule(list(mended.values()), body)
            reason = str(
                _(
                    "{parts} of this schedule cannot be read: {error}",
                    parts=", ".join(sorted(damage)),
                    error=message_of(error),
                )
            )
            return replace(schedule, last_error=reason), replace(revision, damaged=True)

    def _schedule(self, fields: list[str], body: str | None) -> Schedule:
        (
            revision,
            next_slot,
            next_run,
            last_slot,
            last_enqueued,
            last_run,
            last_status,
            last_error,
            last_success,
            fired,
            purged,
            *_rest,
        ) = fields
        digest = revision if body is None else content_digest(body)
        base = self._bodies.get(digest)
        if base is None:
            assert body is not None
            base = schedule_from_plain(open_parts(json.loads(body)))
            self._bodies.keep(digest, base, len(body))
        return replace(
            base,
            next_slot=maybe_moment(next_slot),
            next_run_at=maybe_moment(next_run),
            last_slot=maybe_moment(last_slot),
            last_enqueued_at=maybe_moment(last_enqueued),
            last_run_at=maybe_moment(last_run),
            last_status=_STATUSES[last_status] if last_status else None,
            last_error=from_stored(last_error),
            last_success_at=maybe_moment(last_success),
            fired_count=int(fired),
            purged_until=maybe_moment(purged),
        )


_CURSOR_CHECKS: _Checks = {
    "last_status": (lambda status: not status or _STATUSES[status], RunStatus.FAILED.value),
    "fired": (int, "0"),
    **dict.fromkeys(("next_slot", "next_run", "last_slot", "last_enqueued"), (maybe_moment, "")),
    **dict.fromkeys(("last_run", "last_success", "purged"), (maybe_moment, "")),
}


# --- deliveries and inbox items: `body` is opaque to scripts; they use the other fields

#: Fields of a delivery and an inbox item in the order of the scripts.
DELIVERY = (
    *("body", "rest", "state", "attempts", "fence", "progress", "created", "available"),
    *("finished", "run", "schedule", "owner", "channel", "rev", "id"),
)
INBOX = ("body", "owner", "created", "rev", "id")
#: Stored in separate fields or in `rest`.
_BESIDE_MESSAGE_ROWS = (
    *("id", "state", "attempts", "fence", "progress", "created_at", "available_at"),
    *("finished_at", "error", "code", "receipt"),
)
_ANY_TIMES = {"created_at": to_text(EPOCH), "available_at": to_text(EPOCH)}
#: Previous statuses that make a success a recovery.
_RECOVERED_FROM = [
    status.value
    for status in RunStatus
    if notify_on_for(RunStatus.SUCCEEDED, status) is NotifyOn.RECOVERY
]


def outbox_rows(run: Run, keyring: Keyring, routing: RoutingCache) -> list[Wire]:
    """The deliveries that a script writes for an ended run: the normal ones, and those to use if
    the previous run has one of these statuses. The script knows the time and the previous
    status."""
    # For delayed deliveries; the others get the time of the script.
    now = run.finished_at or run.created_at
    usual = plan_deliveries(run, None, now, routing.current)
    if run.status is not RunStatus.SUCCEEDED or not routing.recipients_of(run):
        return [new_deliveries(usual, keyring), [], []]
    recovered = plan_deliveries(run, RunStatus.FAILED, now, routing.current)
    return [new_deliveries(usual, keyring), new_deliveries(recovered, keyring), _RECOVERED_FROM]


def outbox_ops(run: Run, keyring: Keyring, routing: RoutingCache) -> list[Wire]:
    """The same as commit operations; empty without deliveries."""
    rows = outbox_rows(run, keyring, routing)
    return [["post", run.schedule_id or "", *rows]] if any(rows[:2]) else []


def new_deliveries(deliveries: Sequence[Delivery], keyring: Keyring) -> list[Wire]:
    return [
        [each.id, flat((_delivery_fields(each, keyring) | _times(each)).items())]
        for each in deliveries
    ]


def _times(delivery: Delivery) -> dict[str, str]:
    """The times of a delayed delivery, which were computed together."""
    waits = delivery.available_at > delivery.created_at
    return {} if waits else {"created": "@now", "available": "@now"}


def delivery_fields(delivery: Delivery, keyring: Keyring) -> list[str]:
    return flat(_delivery_fields(delivery, keyring).items())


def _delivery_fields(delivery: Delivery, keyring: Keyring) -> dict[str, str]:
    plain = delivery_to_plain(delivery)
    for name in _BESIDE_MESSAGE_ROWS:
        plain.pop(name, None)
    return {
        "body": to_json(seal_plain(plain, keyring)),
        "run": delivery.run_id or "",
        "schedule": delivery.schedule_id or "",
        "owner": str(delivery.owner),
        "channel": delivery.recipient.channel.value,
        "created": micros(delivery.created_at),
    } | _state_fields(delivery)


def changed_delivery(delivery: Delivery) -> list[str]:
    """The fields of a delivery that change."""
    return flat(_state_fields(delivery).items())


def _state_fields(delivery: Delivery) -> dict[str, str]:
    rest = [to_stored(delivery.error), delivery.code, delivery.receipt]
    return {
        "state": delivery.state.value,
        "attempts": str(delivery.attempts),
        "fence": str(delivery.fence),
        "progress": str(delivery.progress),
        "available": micros(delivery.available_at),
        "finished": micros(delivery.finished_at),
        "rest": to_json(rest) if any(rest) else "",
    }


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    delivery: Delivery
    rev: str
    #: Some parts are placeholders.
    damaged: bool = False


def delivery_of(record: Wire) -> DeliveryRow:
    fields = dict(zip(DELIVERY, texts(record), strict=True))
    try:
        return DeliveryRow(_delivery(fields), fields["rev"])
    except Exception as error:
        return DeliveryRow(decode_corrupt_delivery(fields, error), fields["rev"], damaged=True)


def _delivery(fields: dict[str, str]) -> Delivery:
    plain: Plain = open_parts(json.loads(fields["body"]))
    error, code, receipt = json.loads(fields["rest"]) if fields["rest"] else ("", "", "")
    base = delivery_from_plain(plain | {"id": fields["id"], "state": fields["state"]} | _ANY_TIMES)
    return replace(
        base,
        attempts=int(fields["attempts"]),
        fence=int(fields["fence"]),
        progress=int(fields["progress"]),
        created_at=moment(fields["created"]),
        available_at=moment(fields["available"]),
        finished_at=maybe_moment(fields["finished"]),
        error=from_stored(str(error)),
        code=str(code),
        receipt=str(receipt),
    )


def inbox_fields(item: InboxItem) -> list[str]:
    return flat(
        {
            "body": to_json(inbox_to_plain(item)),
            "owner": str(item.owner),
            "run": item.run_id or "",
            "schedule": item.schedule_id or "",
            "created": micros(item.created_at),
            "read": micros(item.read_at),
            "starred": flag(item.starred),
            "archived": micros(item.archived_at),
            "snoozed": micros(item.snoozed_until),
        }.items()
    )


def inbox_of(record: Wire) -> tuple[InboxItem, str]:
    """The item and its revision; a corrupt item becomes a notice."""
    fields = dict(zip(INBOX, texts(record), strict=True))
    try:
        return inbox_from_plain(json.loads(fields["body"])), fields["rev"]
    except Exception as error:
        return decode_corrupt_inbox(fields, error), fields["rev"]
