"""Audit log, API keys, idempotency records, checkpoints and token buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, insert, select, update

from chimes.errors import AlreadyExists, NotFound
from chimes.i18n import _
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import KeyId, RunId
from chimes.model.listing import AuditQuery
from chimes.model.run import owns_fence
from chimes.store.json_values import MICROSECOND
from chimes.store.port import IdempotencyRecord, TokenGrant
from chimes.store.sql.base import SqlBase, append_audit, load_run
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import TokenRequest
from chimes.store.sql.rows.records import (
    audit_of,
    checkpoint_of,
    checkpoint_values,
    key_of,
    key_values,
    request_of,
    request_values,
)
from chimes.store.sql.rows.values import Value, micros
from chimes.store.sql.tables import api_keys, audit, buckets, kept_states, requests
from chimes.store.token_bucket import grant_tokens

_KEY = select(api_keys).where(api_keys.c.id == bindparam("key_id"))
_WRITE_KEY = update(api_keys).where(api_keys.c.id == bindparam("this_id"))
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


class SqlRecords(SqlBase):
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        return await self._database.write(lambda tx: append_audit(tx, entry))

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
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
        rows = await self._database.query(lambda tx: tx.rows(statement))
        return tuple(audit_of(row) for row in rows)

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        def work(tx: Tx) -> ApiKey:
            if tx.run(tx.dialect.insert_new(api_keys), key_values(key)) == 0:
                raise AlreadyExists(_("key {id} exists already", id=key.id))
            if audit is not None:
                append_audit(tx, audit)
            return key

        return await self._database.write(work)

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        row = await self._database.query(lambda tx: tx.first(_KEY, {"key_id": key_id}))
        return None if row is None else key_of(row)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        rows = await self._database.query(lambda tx: tx.rows(statement))
        return tuple(key_of(row) for row in rows)

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        def work(tx: Tx) -> ApiKey:
            row = tx.first(tx.dialect.for_update(_KEY), {"key_id": key_id})
            if row is None:
                raise NotFound(_("key {id} not found", id=key_id))
            changed = change(key_of(row), tx.now())
            tx.run(_WRITE_KEY, {"this_id": key_id, **key_values(changed)})
            if audit is not None:
                append_audit(tx, audit)
            return changed

        return await self._database.write(work)

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        def work(tx: Tx) -> IdempotencyRecord | None:
            now = tx.now()
            this = {"of_scope": _fit_scope(scope), "of_key": key, "now": micros(now)}
            existing = tx.first(_REQUEST, this)
            if existing is not None:
                return request_of(existing)
            tx.run(_EXPIRED, {"now": micros(now)})
            row = {"scope": _fit_scope(scope), "request_key": key, "expires_at": micros(now + keep)}
            # Of two concurrent first requests the second waits here, and is then retried as a
            # whole.
            tx.run(
                insert(requests), row | request_values(IdempotencyRecord(fingerprint=fingerprint))
            )
            return None

        return await self._database.write(work)

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        parameters = {"of_scope": _fit_scope(scope), "of_key": key, **request_values(answer)}
        await self._database.write(lambda tx: tx.run(_ANSWER, parameters))

    async def forget_request(self, scope: str, key: str) -> None:
        parameters = {"of_scope": _fit_scope(scope), "of_key": key}
        await self._database.write(lambda tx: tx.run(_FORGET, parameters))


# Checkpoints: state that targets keep between runs.

_THIS = kept_states.c.name == bindparam("this_name")
_STATE = select(kept_states).where(_THIS)
_CHANGE = update(kept_states).where(_THIS)
_DELETE_CHECKPOINT = delete(kept_states).where(_THIS)


class SqlCheckpoints(SqlBase):
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        def work(tx: Tx) -> bool:
            run = load_run(tx, run_id)
            if run is None or not owns_fence(run, fence):
                return False
            values = checkpoint_values(
                Checkpoint(name=name, value=value, changed_at=tx.now(), run_id=run_id)
            )
            if tx.run(_CHANGE, {"this_name": name, **values}) == 0:
                _add(tx, values)
            return True

        return await self._database.write(work)

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        row = await self._database.query(lambda tx: tx.first(_STATE, {"this_name": name}))
        return None if row is None else checkpoint_of(row)

    async def set_checkpoint(
        self, name: str, value: str | None, audit: AuditEntry | None = None
    ) -> Checkpoint | None:
        def work(tx: Tx) -> Checkpoint | None:
            this = {"this_name": name}
            before = tx.first(tx.for_update(_STATE, kept_states.c.name), this)
            if value is not None:
                values = checkpoint_values(Checkpoint(name=name, value=value, changed_at=tx.now()))
                # Depends on the row found: a row inserted meanwhile is the previous value.
                if before is None:
                    _add(tx, values)
                else:
                    tx.run(_CHANGE, {**this, **values})
            elif before is not None:
                tx.run(_DELETE_CHECKPOINT, this)
            if audit is not None:
                append_audit(tx, audit)
            return None if before is None else checkpoint_of(before)

        return await self._database.write(work)


def _add(tx: Tx, values: dict[str, Value]) -> None:
    """Of two concurrent first writes the second waits here, and is then retried as a whole."""
    tx.run(insert(kept_states), values)


# Token buckets shared by all nodes, by the database's clock: one statement each.

_FULL = delete(buckets).where(buckets.c.full_at < bindparam("now"))
_MAX_NAME_LENGTH = 255
#: No bucket is stored longer, however slowly it fills.
_LONGEST = timedelta(days=366)


class SqlTokens(SqlBase):
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        granted = count if count <= burst else 0
        request = TokenRequest(
            name=name
            if len(name) <= _MAX_NAME_LENGTH
            else hashlib.sha256(name.encode()).hexdigest(),
            rate=rate,
            burst=burst,
            wanted=count,
            first_granted=granted,
            first_tokens=float(burst - granted),
            fills_in=min(burst / rate, _LONGEST.total_seconds())
            * timedelta(seconds=1)
            // MICROSECOND,
        )
        tokens, granted = await self._database.write(
            lambda tx: tx.dialect.take_tokens(tx.connection, tx.clock_override(), request)
        )
        return grant_tokens(tokens, granted=granted, rate=rate, count=count)


def delete_full_buckets(tx: Tx) -> None:
    """Deletes full buckets: a missing bucket counts as full."""
    tx.run(_FULL, {"now": micros(tx.now())})
