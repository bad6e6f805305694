"""Rows of schedules in `schedules`, `cursors` and `schedule_stats`, and of `definitions`.

A definition is what the runs of a version of a schedule share, or the request of a manual run. It
is stored once for equal ones and never changes, so a process reads each at most once. Its key is a
hash of its columns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace as replace_struct
from sqlalchemy import bindparam, select, update

from chimes.clock import MICROSECOND
from chimes.envelope import Keyring
from chimes.errors import InvalidInput, message_of
from chimes.i18n import _, from_stored
from chimes.model.access import SYSTEM_OWNER
from chimes.model.policy import Policy
from chimes.model.run import RunDefinition
from chimes.model.schedule import Dependency, LastRunSummary, Schedule
from chimes.model.target import HttpTarget, SyncTarget, Target
from chimes.store.codec.values import (
    USED_INTERVAL,
    cause_from_plain,
    cause_to_plain,
    content_digest,
    dependency_from_plain,
    has_secret_fields,
    labels_from_plain,
    open_json,
    seal_json,
)
from chimes.store.sql.database.base import StoredDefinition, Tx
from chimes.store.sql.rows.values import (
    STATUSES,
    TargetTexts,
    Value,
    Values,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    number_of,
    owner_of,
    policy_of,
    policy_text,
    repeated_micros,
    schedule_number,
    stored_text,
    target_of,
    trigger_of,
)
from chimes.store.sql.tables import definitions, schedules

#: Columns of `cursors` that firing changes; the version and `live` belong to edits.
CURSOR = (
    *("schedule", "next_slot", "next_run_at", "last_slot", "last_enqueued_at", "fired_count"),
    "purged_until",
)
#: Columns of `schedules` with values that people chose, which may be secret.
SECRET_COLUMNS = ("trigger", "target", "policy", "compat_data")
STATS = ("schedule", "last_run_at", "last_status", "last_error", "last_success_at")

DEFINITION = tuple(definitions.c.keys())
#: Columns that few definitions have; the digests of the others are those of schema 2.
_OPTIONAL = ("trace", "labels", "cause")
#: The columns that every digest covers.
_DEFINING = tuple(
    name for name in DEFINITION if name not in ("key", "digest", "used_at", *_OPTIONAL)
)
_TARGET, _CAUSE = DEFINITION.index("target"), DEFINITION.index("cause")
_TOUCH = (
    update(definitions)
    .where(definitions.c.key == bindparam("this_key"))
    .values(used_at=bindparam("now"))
)

_log = logging.getLogger(__name__)


def schedule_values(schedule: Schedule) -> dict[str, Value]:
    """The columns of `schedules` without key and definition."""
    return {
        "id": schedule.id,
        "namespace": schedule.namespace,
        "name": schedule.name,
        "owner_type": schedule.owner.type.value,
        "owner_id": schedule.owner.id,
        "kind": schedule.target.kind,
        "trigger": encode(schedule.trigger.to_dict()),
        "target": TargetTexts()(schedule.target),
        "policy": policy_text(schedule.policy),
        "priority": schedule.priority,
        "labels": encode_object(schedule.labels),
        "enabled": int(schedule.enabled),
        "pause_note": stored_text(schedule.pause_note),
        "pause_until": maybe_micros(schedule.pause_until),
        "depends_on": _dependency_text(schedule.depends_on),
        "compat_data": encode_object(schedule.compat_data),
        "version": schedule.version,
        "created_at": micros(schedule.created_at),
        "created_by": schedule.created_by,
        "updated_at": micros(schedule.updated_at),
        "updated_by": schedule.updated_by,
        "deleted_at": maybe_micros(schedule.deleted_at),
    }


def sealed_values(schedule: Schedule, keyring: Keyring) -> dict[str, Value]:
    """`schedule_values` with the secrets sealed."""
    values = schedule_values(schedule)
    for name in SECRET_COLUMNS:
        values[name] = seal_json(str(values[name]), keyring)
    return values


def edit_values(schedule: Schedule, values: Mapping[str, Value]) -> dict[str, Value]:
    """The columns of `cursors` that an edit changes besides those of `cursor_values`. `values`: the
    columns as they are stored."""
    live = schedule.enabled and schedule.deleted_at is None
    return {"revision": number_of(encode(values)), "live": int(live)}


def cursor_values(key: int, schedule: Schedule) -> Values:
    """In the order of CURSOR."""
    slot, due = schedule.next_slot, schedule.next_run_at
    last, enqueued, purged = (
        schedule.last_slot,
        schedule.last_enqueued_at,
        schedule.purged_until,
    )
    number = None if slot is None else micros(slot)
    return (
        key,
        number,
        number if due is slot else maybe_micros(due),
        None if last is None else repeated_micros(last),
        None if enqueued is None else repeated_micros(enqueued),
        schedule.fired_count,
        None if purged is None else micros(purged),
    )


def stats_values(key: int, summary: LastRunSummary | Schedule) -> Values:
    """In the order of STATS."""
    status = summary.last_status
    return (
        key,
        maybe_micros(summary.last_run_at),
        None if status is None else status.value,
        stored_text(summary.last_error) if summary.last_error else "",
        maybe_micros(summary.last_success_at),
    )


def with_cursor(schedule: Schedule, row: Sequence[Any]) -> Schedule:
    """The schedule with the cursor of a row of CURSOR."""
    _key, next_slot, next_run_at, last_slot, last_enqueued_at, fired_count, purged_until = row
    return replace_struct(
        schedule,
        next_slot=maybe_moment(next_slot),
        next_run_at=maybe_moment(next_run_at),
        last_slot=maybe_moment(last_slot),
        last_enqueued_at=maybe_moment(last_enqueued_at),
        fired_count=fired_count,
        purged_until=maybe_moment(purged_until),
    )


def schedule_of(row: Sequence[Any]) -> Schedule:
    """Decodes a row of SCHEDULE_COLUMNS by position: lookups by name take longer than the rest of
    decoding."""
    (
        _key,
        schedule_id,
        namespace,
        name,
        owner_type,
        owner_id,
        _kind,
        trigger,
        target,
        policy,
        priority,
        labels,
        enabled,
        pause_note,
        pause_until,
        depends_on,
        compat_data,
        version,
        created_at,
        created_by,
        updated_at,
        updated_by,
        deleted_at,
        _definition,
        next_slot,
        next_run_at,
        last_slot,
        last_enqueued_at,
        fired_count,
        purged_until,
        last_run_at,
        last_status,
        last_error,
        last_success_at,
    ) = row
    return Schedule(
        id=schedule_id,
        namespace=namespace,
        name=name,
        owner=owner_of(owner_type, owner_id),
        trigger=trigger_of(trigger),
        target=target_of(target),
        policy=policy_of(policy),
        priority=priority,
        labels={} if labels == "{}" else labels_from_plain(decode_object(labels)),
        enabled=enabled == 1,
        pause_note=from_stored(pause_note) if pause_note else "",
        pause_until=None if pause_until is None else moment_of(pause_until),
        depends_on=None if depends_on is None else dependency_of(depends_on),
        compat_data={} if compat_data == "{}" else decode_object(open_json(compat_data)),
        next_slot=maybe_moment(next_slot),
        next_run_at=maybe_moment(next_run_at),
        last_slot=None if last_slot is None else moment_of(last_slot),
        last_enqueued_at=None if last_enqueued_at is None else moment_of(last_enqueued_at),
        last_run_at=None if last_run_at is None else moment_of(last_run_at),
        last_status=None if last_status is None else STATUSES[last_status],
        last_error=from_stored(last_error) if last_error else "",
        last_success_at=None if last_success_at is None else moment_of(last_success_at),
        fired_count=fired_count,
        purged_until=None if purged_until is None else moment_of(purged_until),
        version=version,
        created_at=moment_of(created_at),
        created_by=created_by,
        updated_at=moment_of(updated_at),
        updated_by=updated_by,
        deleted_at=None if deleted_at is None else moment_of(deleted_at),
    )


def summary_of(row: Sequence[Any]) -> LastRunSummary:
    """Decodes a row of STATS."""
    _key, last_run_at, last_status, last_error, last_success_at = row
    return LastRunSummary(
        last_run_at=maybe_moment(last_run_at),
        last_status=None if last_status is None else STATUSES[last_status],
        last_error=from_stored(last_error),
        last_success_at=maybe_moment(last_success_at),
    )


def _dependency_text(dependency: Dependency | None) -> str | None:
    if dependency is None:
        return None
    within = dependency.within // MICROSECOND
    return encode({"schedule_id": dependency.schedule_id, "within": within})


def dependency_of(text: str) -> Dependency | None:
    return dependency_from_plain(json.loads(text))


# --- definitions of runs --------------------------------------------------------------------------
def definition_values(definition: RunDefinition) -> dict[str, Value]:
    """Without key, digest and mark of use."""
    target, schedule_id = definition.target, definition.schedule_id
    return {
        "trace": definition.trace or None,
        "labels": encode_object(definition.labels) if definition.labels else None,
        "cause": None if definition.cause is None else encode(cause_to_plain(definition.cause)),
        "schedule": None if schedule_id is None else schedule_number(schedule_id),
        "schedule_id": schedule_id,
        "schedule_name": definition.schedule_name,
        "schedule_version": definition.schedule_version,
        "namespace": definition.namespace,
        "owner_type": definition.owner.type.value,
        "owner_id": definition.owner.id,
        "kind": target.kind,
        "target": TargetTexts()(target),
        "policy": policy_text(definition.policy),
        "needs": target.requirement,
    }


def definition_of(row: Sequence[Any]) -> tuple[RunDefinition, str]:
    """The definition, and why it cannot be read: parts that cannot be decoded are replaced by
    placeholders."""
    (
        _key,
        _digest,
        _schedule,
        schedule_id,
        schedule_name,
        schedule_version,
        namespace,
        owner_type,
        owner_id,
        kind,
        target,
        policy,
        needs,
        _used_at,
        trace,
        labels,
        cause,
    ) = row
    damage: list[str] = []
    reason = ""
    values: dict[str, Any] = {}
    for name, decode, instead in (
        ("owner", lambda: owner_of(owner_type, owner_id), lambda: SYSTEM_OWNER),
        ("target", lambda: target_of(target), lambda: _placeholder(kind, needs)),
        ("policy", lambda: policy_of(policy), Policy),
        ("cause", lambda: cause and cause_from_plain(json.loads(cause)), lambda: None),
    ):
        try:
            values[name] = decode()
        except Exception as error:
            _log.warning("%s of definition %s cannot be read: %s", name, _key, error)
            values[name] = instead()
            damage.append(name)
            reason = message_of(error)
    message = ""
    if damage:
        parts = ", ".join(sorted(damage))
        message = str(_("{parts} of this run cannot be read: {error}", parts=parts, error=reason))
    definition = RunDefinition(
        schedule_id=schedule_id,
        schedule_name=schedule_name,
        schedule_version=schedule_version,
        namespace=namespace,
        trace=trace or "",
        labels=_labels_of(labels),
        **values,
    )
    return definition, message


def _labels_of(text: str | None) -> Mapping[str, str | None]:
    """Empty if they cannot be read: the run itself does not need them."""
    try:
        return {} if text is None else labels_from_plain(decode_object(text))
    except (ValueError, TypeError, InvalidInput):
        return {}


def _placeholder(kind: str, needs: str) -> Target:
    """The source of a sync run is in another column, so that it is still listed for its source."""
    if kind == "sync":
        return SyncTarget(source=needs.removeprefix("sync:"), collection="unreadable")
    return HttpTarget(url="unreadable:")


def definition_digest(values: Mapping[str, Value]) -> str:
    """Equal for definitions whose columns are equal."""
    return content_digest(_defining_text(values))


def _defining_text(values: Mapping[str, Value]) -> str:
    defining = [values[name] for name in _DEFINING]
    if values.get("trace") is not None:
        defining.append(values["trace"])
    # No trace begins like these.
    defining += [
        f"{name}:{values[name]}" for name in ("labels", "cause") if values.get(name) is not None
    ]
    return json.dumps(defining, ensure_ascii=False)


def _seal_definition(tx: Tx, row: dict[str, Value]) -> str:
    """Seals the secrets of a row. Returns its digest: of the plain values, so that equal ones are
    found again, but with the key, so that they cannot be guessed."""
    keyring = tx.dialect.keyring
    names = ("target", "policy")
    key = keyring.current() if any(has_secret_fields(str(row[name])) for name in names) else None
    if key is None:
        return definition_digest(row)
    digest = key.digest(_defining_text(row))[:32]
    for name in names:
        row[name] = seal_json(str(row[name]), keyring)
    return digest


def load_definitions(tx: Tx, keys: Collection[int]) -> dict[int, StoredDefinition]:
    """The definitions with these keys, without those that do not exist."""
    known = tx.known.definitions
    found = {key: each for key in keys if (each := known.get(key)) is not None}
    missing = sorted(set(keys) - found.keys())
    if not missing:
        return found
    statement = select(definitions).where(tx.dialect.among(definitions.c.key, "keys"))
    for row in tx.tuples(statement, {"keys": tx.dialect.listed(missing)}):
        stored = StoredDefinition(*definition_of(row))
        found[row[0]] = stored
        if not stored.error:
            known.put(row[0], stored, len(row[_TARGET]) + len(row[_CAUSE] or ""))
    return found


def store_definitions(tx: Tx, wanted: Sequence[RunDefinition]) -> list[int]:
    """Returns the key of each; adds those that are missing."""
    if not wanted:
        return []
    now = micros(tx.now())
    values: dict[str, dict[str, Value]] = {}
    digests: list[str] = []
    encoded: dict[int, str] = {}
    for definition in wanted:
        digest = encoded.get(id(definition))
        if digest is None:
            row = definition_values(definition)
            digest = encoded[id(definition)] = _seal_definition(tx, row)
            values[digest] = {"digest": digest, **row, "used_at": now}
        digests.append(digest)
    keys = {digest: number_of(digest) for digest in values}
    found = {} if tx.joined else _find(tx, keys, now)
    while missing := sorted(values.keys() - found.keys()):
        for digest in missing:
            values[digest]["key"] = keys[digest]
        rows = [tuple(values[digest][name] for name in DEFINITION) for digest in missing]
        tx.dialect.insert_missing(tx.connection, definitions, DEFINITION, rows, unique="key")
        tx.wrote_definitions = True
        if tx.joined:
            # Reading would fix the snapshot of the caller's transaction, in which rows that others
            # commit from now on are invisible.
            return [keys[digest] for digest in digests]
        found |= _find(tx, {digest: keys[digest] for digest in missing}, now)
        # Practically never: the key of another definition.
        keys |= {digest: keys[digest] + 1 for digest in missing if digest not in found}
    return [found[digest] for digest in digests]


def _find(tx: Tx, keys: Mapping[str, int], now: int) -> dict[str, int]:
    """Of these digests with their presumed keys, those that are stored."""
    fresh = now - USED_INTERVAL // MICROSECOND
    known = tx.known.digests
    found = {
        digest: entry[0]
        for digest in keys
        if (entry := known.get(digest)) is not None and entry[1] > fresh
    }
    missing = [key for digest, key in keys.items() if digest not in found]
    if not missing:
        return found
    columns = (definitions.c.digest, definitions.c.key, definitions.c.used_at)
    statement = select(*columns).where(tx.dialect.among(definitions.c.key, "keys"))
    for digest, key, used_at in tx.tuples(statement, {"keys": tx.dialect.listed(missing)}):
        if digest not in keys:
            continue
        if used_at <= fresh:
            if not tx.run(_TOUCH, {"this_key": key, "now": now}):
                continue  # retention has deleted it meanwhile
        elif not tx.wrote_definitions:
            known.put(digest, (key, used_at))
        found[digest] = key
    return found


def touch_definition(tx: Tx, schedule: int) -> None:
    """Marks the current definition of a schedule as used until now, before another takes its place:
    its runs are up to now."""
    current = select(schedules.c.definition).where(schedules.c.key == bindparam("this_schedule"))
    statement = (
        update(definitions)
        .where(definitions.c.key == current.scalar_subquery())
        .values(used_at=bindparam("now"))
    )
    tx.run(statement, {"this_schedule": schedule, "now": micros(tx.now())})
