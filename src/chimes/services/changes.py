"""Detects changes of the runs, schedules, messages and nodes that an actor may see."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from chimes.model.access import Actor
from chimes.model.listing import AuditQuery, InboxQuery, RunQuery, ScheduleQuery
from chimes.model.run import RunStatus
from chimes.store.port import Store

TOPICS = ("runs", "schedules", "inbox", "nodes")
#: Active runs that are compared; with more of them, something changes all the time anyway.
_MAX_ACTIVE_RUNS = 200
#: How far back new runs are searched.
_RECENT = timedelta(minutes=5)


class ChangeDetector:
    def __init__(self, store: Store, actor: Actor) -> None:
        self._store = store
        self._owner = None if actor.sees_everything else actor.owner
        #: The newest run that was found, also after it is no longer recent.
        self._newest_run = ""
        #: Up to when new runs were searched, by the store's clock.
        self._searched_until: datetime | None = None

    def local_changes(self) -> int:
        """Number of changes that this process has made or noticed; needs no I/O."""
        return self._store.changes()

    async def fingerprints(self) -> tuple[str, ...]:
        """One hash per topic; a hash differs from an earlier one if the topic has changed. All
        queries use indexes: none scans runs or schedules."""
        store, owner = self._store, self._owner
        now = await store.now()
        # The last call may have been long ago.
        since = min(now, self._searched_until or now) - _RECENT
        for run in (
            await store.list_runs(RunQuery(owner=owner, created_since=since, limit=1))
        ).items:
            self._newest_run = run.id
        self._searched_until = now
        active = await store.list_runs(
            RunQuery(
                owner=owner,
                statuses=(RunStatus.QUEUED, RunStatus.RUNNING),
                limit=_MAX_ACTIVE_RUNS,
            )
        )
        runs = [
            self._newest_run,
            *((run.id, run.status, run.attempt, run.cancel_requested) for run in active.items),
        ]
        # Every edit of a schedule adds an audit entry; every fire adds a run.
        entries = await store.list_audit(
            AuditQuery(owner=None if owner is None else str(owner), limit=1)
        )
        schedules = [
            self._newest_run,
            *(entry.number for entry in entries),
            await store.count_schedules(ScheduleQuery(owner=owner, enabled=True)),
        ]
        inbox = InboxQuery(owner=owner, archived=None, limit=1)
        messages = [
            *(item.id for item in (await store.list_inbox(inbox)).items),
            await store.count_unread(inbox),
        ]
        nodes = [(node.id, node.version, node.state(now)) for node in await store.nodes()]
        return tuple(_fingerprint(value) for value in (runs, schedules, messages, nodes))


def _fingerprint(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=4).hexdigest()
