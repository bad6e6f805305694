"""The audit trail, keys, and remembered requests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, insert, select, update

from chimes.errors import AlreadyExists, NotFound
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.ids import KeyId
from chimes.model.listing import AuditQuery
from chimes.store.port import Remembered
from chimes.store.sql.base import SqlBase, append_audit
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import micros
from chimes.store.sql.rows.records import (
    audit_of,
    key_of,
    key_values,
    request_of,
    request_values,
)
from chimes.store.sql.tables import api_keys, audit, requests
from chimes.wording import say

_KEY = select(api_keys).where(api_keys.c.id == bindparam("key_id"))
_WRITE_KEY = update(api_keys).where(api_keys.c.id == bindparam("this_id"))
_SCOPE_ROOM = 255
_THIS_REQUEST = (requests.c.scope == bindparam("of_scope")) & (
    requests.c.request_key == bindparam("of_key")
)
_REQUEST = select(requests).where(_THIS_REQUEST, requests.c.expires_at > bindparam("now"))
_EXPIRED = delete(requests).where(requests.c.expires_at <= bindparam("now"))
_FORGET = delete(requests).where(_THIS_REQUEST)
_ANSWER = update(requests).where(_THIS_REQUEST)


def _short(scope: str) -> str:
    """What has no room in its column goes by its digest."""
    return scope if len(scope) <= _SCOPE_ROOM else hashlib.sha256(scope.encode()).hexdigest()


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
            (audit.c.door, query.door),
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
        rows = await self._database.look(lambda tx: tx.rows(statement))
        return tuple(audit_of(row) for row in rows)

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        def work(tx: Tx) -> ApiKey:
            if tx.run(tx.dialect.insert_new(api_keys), key_values(key)) == 0:
                raise AlreadyExists(say("key {id} exists already", id=key.id))
            if audit is not None:
                append_audit(tx, audit)
            return key

        return await self._database.write(work)

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        row = await self._database.look(lambda tx: tx.first(_KEY, {"key_id": key_id}))
        return None if row is None else key_of(row)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        rows = await self._database.look(lambda tx: tx.rows(statement))
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
                raise NotFound(say("key {id} not found", id=key_id))
            changed = change(key_of(row), tx.now())
            tx.run(_WRITE_KEY, {"this_id": key_id, **key_values(changed)})
            if audit is not None:
                append_audit(tx, audit)
            return changed

        return await self._database.write(work)

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> Remembered | None:
        def work(tx: Tx) -> Remembered | None:
            now = tx.now()
            this = {"of_scope": _short(scope), "of_key": key, "now": micros(now)}
            known = tx.first(_REQUEST, this)
            if known is not None:
                return request_of(known)
            tx.run(_EXPIRED, {"now": micros(now)})
            row = {"scope": _short(scope), "request_key": key, "expires_at": micros(now + keep)}
            # Of two first requests the second waits here, and is then tried again as a whole.
            tx.run(insert(requests), row | request_values(Remembered(fingerprint=fingerprint)))
            return None

        return await self._database.write(work)

    async def answer_request(self, scope: str, key: str, answer: Remembered) -> None:
        given = {"of_scope": _short(scope), "of_key": key, **request_values(answer)}
        await self._database.write(lambda tx: tx.run(_ANSWER, given))

    async def forget_request(self, scope: str, key: str) -> None:
        given = {"of_scope": _short(scope), "of_key": key}
        await self._database.write(lambda tx: tx.run(_FORGET, given))
