"""Who asked for runs that no slot asked for, and how: as the audit has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.run import Origin, Run
from chimes.store.port import Store

_VERBS = ("start", "run", "retry", "backfill")
#: Entries that one question looks at: each run has one, most of a backfill share theirs.
_MOST = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    #: As in the audit.
    name: str
    #: By which door they came.
    door: str


async def askers_of(store: Store, runs: Sequence[Run]) -> dict[RunId, Asker]:
    """Of those that somebody asked for, where that is on record: one question, however many.

    `runs` are the asker's to see; at most a thousand."""
    asked = [run for run in runs if run.origin in (Origin.MANUAL, Origin.BACKFILL)]
    if not asked:
        return {}
    moments = [run.created_at for run in asked]
    entries = await store.list_audit(
        AuditQuery(
            object_ids=tuple({_object_of(run) for run in asked}),
            verbs=_VERBS,
            # A run and its entry are of the same moment.
            since=min(moments),
            until=max(moments),
            limit=_MOST,
        )
    )
    return askers_in(entries, asked)


def askers_in(entries: Iterable[AuditEntry], runs: Iterable[Run]) -> dict[RunId, Asker]:
    """An entry names its run; that of a backfill, which are many, has their moment."""
    by_run: dict[str, Asker] = {}
    by_moment: dict[tuple[str, datetime], Asker] = {}
    for entry in entries:
        asker = Asker(name=entry.actor, door=entry.door)
        if entry.verb == "backfill":
            by_moment[entry.object_id, entry.at] = asker
        else:
            by_run[str(entry.changes.get("run_id") or entry.object_id)] = asker
    found = {
        run.id: by_moment.get((run.schedule_id or "", run.created_at))
        if run.origin is Origin.BACKFILL
        else by_run.get(run.id)
        for run in runs
    }
    return {run_id: asker for run_id, asker in found.items() if asker is not None}


def _object_of(run: Run) -> str:
    """What the entry of whoever asked for it is about."""
    of_schedule = run.schedule_id or run.id
    return of_schedule if run.origin is Origin.BACKFILL else run.retry_of or of_schedule
