"""Audit chain, API keys, idempotency records, checkpoints, token buckets and the epoch, with their
rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from chimes.clock import MICROSECOND
from chimes.envelope import Keyring
from chimes.errors import AlreadyExists, NotFound
from chimes.i18n import _
from chimes.model.access import ApiKey, Role, Scope
from chimes.model.audit import AUDIT_CHECKPOINT, AuditEntry, chain_entry
from chimes.model.checkpoint import Checkpoint, check_version
from chimes.model.ids import KeyId, RunId
from chimes.model.listing import AuditQuery
from chimes.model.run import owns_fence
from chimes.store.codec.values import RESPONSE, open_text, seal_text
from chimes.store.epoch import Epoch
from chimes.store.port import IdempotencyRecord, TokenGrant, grant_tokens
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import TokenRequest
from chimes.store.sql.rows.access import load_run
from chimes.store.sql.rows.values import (
    Value,
    clean,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    owner_of,
)
from chimes.store.sql.tables import (
    api_keys,
    audit,
    audit_head,
    buckets,
    kept_states,
    requests,
    store_facts,
)

# The audit chain.

_AUDIT_HEAD = select(audit_head.c.number, audit_head.c.hash)
_MOVE_AUDIT_HEAD = update(audit_head).values(number=bindparam("number"), hash=bindparam("hash"))
_ADD_AUDIT = insert(audit)
_DELETE_AUDIT = delete(audit).where(audit.c.number <= bindparam("upto"))


def append_audit(tx: Tx, entry: AuditEntry) -> AuditEntry:
    (appended,) = append_audits(tx, [entry])
    return appended


def append_audits(tx: Tx, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Locks the head of the audit chain. This is the last lock of every transaction, because all
    appending transactions wait for it."""
    if not entries:
        return []
    last = tx.first(tx.for_update(_AUDIT_HEAD, audit_head.c.id))
    assert last is not None
    number, previous = last.number, last.hash
    appended: list[AuditEntry] = []
    for entry in entries:
        appended.append(chain_entry(entry, number=number + 1, previous_hash=previous))
        number, previous = appended[-1].number, appended[-1].hash
    tx.run(_ADD_AUDIT, [audit_values(entry) for entry in appended])
    tx.run(_MOVE_AUDIT_HEAD, {"number": number, "hash": previous})
    return appended


def adopt_audit(tx: Tx, entry: AuditEntry) -> None:
    """Inserts the entry unchanged; the chain continues from it."""
    tx.run(_ADD_AUDIT, audit_values(entry))
    tx.run(_MOVE_AUDIT_HEAD, {"number": entry.number, "hash": entry.hash})


def prune_audit(tx: Tx, upto: int, checkpoint: str, expected: int, entry: AuditEntry) -> None:
    set_checkpoint(tx, AUDIT_CHECKPOINT, checkpoint, None, expected)
    tx.run(_DELETE_AUDIT, {"upto": upto})
    append_audit(tx, entry)


def last_audit_number(tx: Tx) -> int:
    last = tx.first(tx.for_update(_AUDIT_HEAD, audit_head.c.id))
    assert last is not None
    return int(last.number)


def list_audit(tx: Tx, query: AuditQuery) -> tuple[AuditEntry, ...]:
    statement = select(audit).order_by(audit.c.number.desc()).limit(query.limit)
    for column, value in (
        (audit.c.owner, query.owner),
        (audit.c.object_id, query.object_id),
        (audit.c.verb, query.verb),
        (audit.c.actor, query.actor),
        (audit.c.interface, query.interface),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if query.object_ids is not None:
        statement = statement.where(audit.c.object_id.in_(query.object_ids))
    if query.verbs is not None:
        statement = statement.where(audit.c.verb.in_(query.verbs))
    if query.since is not None:
        statement = statement.where(audit.c.at >= micros(query.since))
    if query.until is not None:
        statement = statement.where(audit.c.at <= micros(query.until))
    if query.before is not None:
        statement = statement.where(audit.c.number < query.before)
    return tuple(audit_of(row) for row in tx.rows(statement))


# API keys.

_KEY = select(api_keys).where(api_keys.c.id == bindparam("key_id"))
_WRITE_KEY = update(api_keys).where(api_keys.c.id == bindparam("this_id"))


def add_key(tx: Tx, key: ApiKey, entry: AuditEntry | None) -> ApiKey:
    if tx.run(tx.dialect.insert_new(api_keys), key_values(key)) == 0:
        raise AlreadyExists(_("key {id} exists already", id=key.id))
    if entry is not None:
        append_audit(tx, entry)
    return key


def get_key(tx: Tx, key_id: KeyId) -> ApiKey | None:
    row = tx.first(_KEY, {"key_id": key_id})
    return None if row is None else key_of(row)


def list_keys(tx: Tx) -> tuple[ApiKey, ...]:
    statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
    return tuple(key_of(row) for row in tx.rows(statement))


def change_key(
    tx: Tx,
    key_id: KeyId,
    change: Callable[[ApiKey, datetime], ApiKey],
    entry: AuditEntry | None,
) -> ApiKey:
    row = tx.first(tx.dialect.for_update(_KEY), {"key_id": key_id})
    if row is None:
        raise NotFound(_("key {id} not found", id=key_id))
    changed = change(key_of(row), tx.now())
    tx.run(_WRITE_KEY, {"this_id": key_id, **key_values(changed)})
    if entry is not None:
        append_audit(tx, entry)
    return changed


# Idempotency records.

_MAX_SCOPE_LENGTH = 255
_THIS_REQUEST = (requests.c.scope == bindparam("of_scope")) & (
    requests.c.request_key == bindparam("of_key")
)
_REQUEST = select(requests).where(_THIS_REQUEST, requests.c.expires_at > bindparam("now"))
_EXPIRED = delete(requests).where(requests.c.expires_at <= bindparam("now"))
_FORGET = delete(requests).where(_THIS_REQUEST)
_ANSWER = update(requests).where(_THIS_REQUEST)


def _fit_scope(scope: str) -> str:
    """A scope that is too long for its column is replaced by its digest."""
    return scope if len(scope) <= _MAX_SCOPE_LENGTH else hashlib.sha256(scope.encode()).hexdigest()


def remember_request(
    tx: Tx, scope: str, key: str, fingerprint: str, keep: timedelta
) -> IdempotencyRecord | None:
    now = tx.now()
    this = {"of_scope": _fit_scope(scope), "of_key": key, "now": micros(now)}
    existing = tx.first(_REQUEST, this)
    if existing is not None:
        return request_of(existing)
    tx.run(_EXPIRED, {"now": micros(now)})
    row = {"scope": _fit_scope(scope), "request_key": key, "expires_at": micros(now + keep)}
    empty = IdempotencyRecord(fingerprint=fingerprint)
    # Of two concurrent first requests the second waits here, and is then retried as a whole.
    tx.run(insert(requests), row | request_values(empty, tx.dialect.keyring))
    return None


def answer_request(tx: Tx, scope: str, key: str, answer: IdempotencyRecord) -> None:
    values = request_values(answer, tx.dialect.keyring)
    tx.run(_ANSWER, {"of_scope": _fit_scope(scope), "of_key": key, **values})


def forget_request(tx: Tx, scope: str, key: str) -> None:
    tx.run(_FORGET, {"of_scope": _fit_scope(scope), "of_key": key})


# Checkpoints: state that targets keep between runs.

_THIS = kept_states.c.name == bindparam("this_name")
_STATE = select(kept_states).where(_THIS)
_CHANGE = update(kept_states).where(_THIS)
_DELETE_CHECKPOINT = delete(kept_states).where(_THIS)


def save_checkpoint(tx: Tx, run_id: RunId, fence: int, name: str, value: str) -> bool:
    run = load_run(tx, run_id)
    if run is None or not owns_fence(run, fence):
        return False
    values = checkpoint_values(
        Checkpoint(name=name, value=value, changed_at=tx.now(), run_id=run_id), tx.dialect.keyring
    )
    if tx.run(_CHANGE, {"this_name": name, **values}) == 0:
        _add(tx, values)
    return True


def get_checkpoint(tx: Tx, name: str) -> Checkpoint | None:
    row = tx.first(_STATE, {"this_name": name})
    return None if row is None else checkpoint_of(row)


def set_checkpoint(
    tx: Tx, name: str, value: str | None, entry: AuditEntry | None, expected: int | None
) -> Checkpoint | None:
    this = {"this_name": name}
    row = tx.first(tx.for_update(_STATE, kept_states.c.name), this)
    before = None if row is None else checkpoint_of(row)
    check_version(before, expected)
    if value is not None:
        new = Checkpoint(name=name, value=value, changed_at=tx.now())
        values = checkpoint_values(new, tx.dialect.keyring)
        # Depends on the row found: a row inserted meanwhile is the previous value.
        if before is None:
            _add(tx, values)
        else:
            tx.run(_CHANGE, {**this, **values})
    elif before is not None:
        tx.run(_DELETE_CHECKPOINT, this)
    if entry is not None:
        append_audit(tx, entry)
    return before


def _add(tx: Tx, values: dict[str, Value]) -> None:
    """Of two concurrent first writes the second waits here, and is then retried as a whole."""
    tx.run(insert(kept_states), values)


# Token buckets shared by all nodes, by the database's clock: one statement each.

_FULL = delete(buckets).where(buckets.c.full_at < bindparam("now"))
_MAX_NAME_LENGTH = 255
#: No bucket is stored longer, however slowly it fills.
_LONGEST = timedelta(days=366)


def take_tokens(tx: Tx, name: str, rate: float, burst: int, count: int) -> TokenGrant:
    granted = count if count <= burst else 0
    request = TokenRequest(
        name=name if len(name) <= _MAX_NAME_LENGTH else hashlib.sha256(name.encode()).hexdigest(),
        rate=rate,
        burst=burst,
        wanted=count,
        first_granted=granted,
        first_tokens=float(min(burst, burst - granted)),
        fills_in=min(burst / rate, _LONGEST.total_seconds()) * timedelta(seconds=1) // MICROSECOND,
    )
    tokens, granted = tx.dialect.take_tokens(tx.connection, tx.clock_override(), request)
    # Returned tokens may exceed the capacity until the next request.
    return grant_tokens(min(tokens, float(burst)), granted=granted, rate=rate, count=count)


def delete_full_buckets(tx: Tx) -> None:
    """Deletes full buckets: a missing bucket counts as full."""
    tx.run(_FULL, {"now": micros(tx.now())})


# The epoch, by which nodes detect that the store went back in time (`store/epoch.py`).

_RAISE_EPOCH = (
    update(store_facts).where(store_facts.c.name == "epoch").values(value=store_facts.c.value + 1)
)
#: How long a history that was left by a fail-over is remembered.
_HISTORY_RETENTION = timedelta(days=400)
_OLD_HISTORIES = delete(store_facts).where(
    store_facts.c.name.like("history %"), store_facts.c.value < bindparam("before")
)
_EPOCH = select(store_facts.c.value).where(store_facts.c.name == "epoch")


def raise_epoch(tx: Tx, identity: Callable[[Connection], str]) -> Epoch:
    if tx.connection.dialect.update_returning:
        row = tx.first(_RAISE_EPOCH.returning(store_facts.c.value))
    else:
        tx.run(_RAISE_EPOCH)
        row = tx.first(_EPOCH)
    assert row is not None
    history, now = identity(tx.connection), tx.now()
    begun = _history_began(tx, history, now) if tx.dialect.forks else None
    return Epoch(int(row.value), history, at=now, begun=begun)


def _history_began(tx: Tx, history: str, now: datetime) -> datetime:
    """Returns when a node first saw this history. The first node records it while it holds the row
    of the epoch."""
    name = f"history {history}"
    row = tx.first(select(store_facts.c.value).where(store_facts.c.name == name))
    if row is not None:
        return moment_of(row.value)
    old = {"before": micros(now - _HISTORY_RETENTION)}
    tx.run(_OLD_HISTORIES, old)
    tx.run(insert(store_facts).values(name=name, value=micros(now)))
    return now


# --- rows -----------------------------------------------------------------------------------------
def audit_values(entry: AuditEntry) -> dict[str, Value]:
    return {
        "number": entry.number,
        "at": micros(entry.at),
        "actor": entry.actor,
        "interface": entry.interface,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": encode_object(entry.changes),
        "reason": clean(entry.reason),
        "address": entry.address,
        "allowed": int(entry.allowed),
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def audit_of(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        number=row.number,
        at=moment_of(row.at),
        actor=row.actor,
        interface=row.interface,
        verb=row.verb,
        object_kind=row.object_kind,
        object_id=row.object_id,
        owner=row.owner,
        changes=decode_object(row.changes),
        reason=row.reason,
        address=row.address,
        allowed=row.allowed == 1,
        previous_hash=row.previous_hash,
        hash=row.hash,
    )


def key_values(key: ApiKey) -> dict[str, Value]:
    return {
        "id": key.id,
        "secret_hash": key.secret_hash,
        "name": key.name,
        "role": key.role.value,
        "owner_type": key.owner.type.value,
        "owner_id": key.owner.id,
        "created_at": micros(key.created_at),
        "created_by": key.created_by,
        "expires_at": maybe_micros(key.expires_at),
        "last_used_at": maybe_micros(key.last_used_at),
        "revoked_at": maybe_micros(key.revoked_at),
        "scopes": encode([scope.value for scope in key.scopes]),
    }


def key_of(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=KeyId(row.id),
        secret_hash=row.secret_hash,
        name=row.name,
        role=Role(row.role),
        owner=owner_of(row.owner_type, row.owner_id),
        created_at=moment_of(row.created_at),
        created_by=row.created_by,
        expires_at=maybe_moment(row.expires_at),
        last_used_at=maybe_moment(row.last_used_at),
        revoked_at=maybe_moment(row.revoked_at),
        scopes=tuple(Scope(scope) for scope in json.loads(row.scopes)),
    )


def checkpoint_values(checkpoint: Checkpoint, keyring: Keyring) -> dict[str, Value]:
    return {
        "name": checkpoint.name,
        "value": seal_text(clean(checkpoint.value), checkpoint.name, keyring),
        "changed_at": micros(checkpoint.changed_at),
        "run_id": checkpoint.run_id,
    }


def checkpoint_of(row: Row[Any]) -> Checkpoint:
    return Checkpoint(
        name=row.name,
        value=open_text(row.value, row.name),
        changed_at=moment_of(row.changed_at),
        run_id=RunId(row.run_id),
    )


def request_values(answer: IdempotencyRecord, keyring: Keyring) -> dict[str, Value]:
    return {
        "fingerprint": answer.fingerprint,
        "status": answer.status,
        "body": seal_text(clean(answer.body), RESPONSE, keyring),
        "headers": encode([list(header) for header in answer.headers]),
    }


def request_of(row: Row[Any]) -> IdempotencyRecord:
    return IdempotencyRecord(
        fingerprint=row.fingerprint,
        status=row.status,
        body=open_text(row.body, RESPONSE),
        headers=tuple((name, value) for name, value in json.loads(row.headers)),
    )
