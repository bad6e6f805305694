"""Loading and writing schedules, runs and logs, shared by the transactions.

Rows that are damaged or were edited manually are decoded partially: one such row must not hide
other rows, nor stop work on them. Parts that cannot be decoded are replaced by placeholders, and
the error names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, func, select, update

from chimes.clock import EPOCH
from chimes.errors import message_of
from chimes.i18n import _
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.policy import Policy
from chimes.model.run import LogEntry, Origin, Reason, Run, RunDefinition, RunStatus
from chimes.model.schedule import (
    LastRunSummary,
    Schedule,
    pass_slot,
    returned_slot,
    run_definition,
)
from chimes.model.target import HttpTarget, SyncTarget, parse_pair_key
from chimes.store.codec.values import labels_from_plain, open_json, seal_json, split_args, with_args
from chimes.store.sql.database.base import KnownSchedule, StoredDefinition, Tx
from chimes.store.sql.dialects.base import Dialect, Rows, Write
from chimes.store.sql.locks import lock_schedules
from chimes.store.sql.rows.run import (
    CLAIMS,
    LOG,
    PLANNED,
    QUEUE,
    STATE,
    attempts_of,
    claim_values,
    concurrency_number,
    inserted_values,
    log_values,
    planned_values,
    queue_values,
    run_of,
    state_values,
)
from chimes.store.sql.rows.schedule import (
    CURSOR,
    STATS,
    cursor_values,
    dependency_of,
    edit_values,
    load_definitions,
    schedule_of,
    sealed_values,
    stats_values,
    store_definitions,
    summary_of,
    touch_definition,
)
from chimes.store.sql.rows.values import (
    STATUSES,
    TargetTexts,
    Value,
    Values,
    decode_object,
    encode,
    encode_object,
    micros,
    owner_of,
    policy_of,
    policy_text,
    schedule_number,
    target_of,
    trigger_of,
)
from chimes.store.sql.tables import (
    RUN_COLUMNS,
    SCHEDULE_COLUMNS,
    claims,
    cursors,
    nodes,
    queue,
    run_logs,
    run_rows,
    runs,
    schedule_rows,
    schedule_stats,
    schedules,
)
from chimes.triggers import Once

_log = logging.getLogger(__name__)

SELECT_SCHEDULES = select(*SCHEDULE_COLUMNS).select_from(schedule_rows)
SELECT_RUNS = select(*RUN_COLUMNS).select_from(run_rows)

_DEFINITION, _ARGS = (list(runs.c.keys()).index(name) for name in ("definition", "args"))
_CONCURRENCY = len(RUN_COLUMNS) - 1
_WRITE_SCHEDULE = (
    update(schedules)
    .where(schedules.c.key == bindparam("this_key"))
    .values(
        {each.name: bindparam(each.name) for each in schedules.c if each.name not in ("key", "id")}
    )
)
_SET_DEFINITION = (
    update(schedules)
    .where(schedules.c.key == bindparam("this_key"))
    .values(definition=bindparam("key_of_definition"))
)
_EDIT_CURSOR = (
    update(cursors)
    .where(cursors.c.schedule == bindparam("this_key"))
    .values({name: bindparam(name) for name in (*CURSOR[1:], "revision", "live")})
)
_LEASE = select(nodes.c.lease_until).where(nodes.c.id == bindparam("node_id"))
_LAST_NUMBER = (
    select(func.max(run_logs.c.number)).where(run_logs.c.run_id == runs.c.id).scalar_subquery()
)
NO_SCHEDULES: Mapping[str, KnownSchedule] = {}
#: How often to look again for a run that others move between queue and claims.
_TRIES = 20


# --- schedules ----------------------------------------------------------------------------------
def load_schedule(tx: Tx, schedule_id: ScheduleId) -> Schedule | None:
    return load_schedule_and_damage(tx, schedule_id)[0]


def load_schedule_and_damage(
    tx: Tx, schedule_id: ScheduleId
) -> tuple[Schedule | None, frozenset[str]]:
    found = load_schedules_and_damage(tx, [schedule_id])
    return found.get(schedule_id, (None, frozenset()))


def load_schedules_and_damage(
    tx: Tx, ids: Collection[ScheduleId]
) -> dict[ScheduleId, tuple[Schedule, frozenset[str]]]:
    """Locks and then reads: a statement that does both may read what was before the lock."""
    if tx.locking:
        lock_schedules(tx, ids)
    statement = SELECT_SCHEDULES.where(tx.dialect.among(schedules.c.id, "ids"))
    found = tx.tuples(statement, {"ids": tx.dialect.listed(ids)})
    return {ScheduleId(row[1]): decode_schedule_and_damage(row) for row in found}


def load_schedules(tx: Tx, ids: Collection[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Loads and locks schedules; rows that cannot be decoded are left out."""
    if not ids or not tx.schedules_usable:
        return {}
    found = load_schedules_and_damage(tx, ids)
    return {each: schedule for each, (schedule, damage) in found.items() if not damage}


def load_summaries(tx: Tx, keys: Collection[int]) -> dict[int, LastRunSummary]:
    """Last runs by the keys of their schedules, which are locked."""
    if not keys or not tx.schedules_usable:
        return {}
    found = tx.tuples(_summaries(tx.dialect), {"keys": tx.dialect.listed(keys)})
    return {row[0]: summary_of(row) for row in found}


@cache
def _summaries(dialect: Dialect) -> Select[Any]:
    columns = [schedule_stats.c[name] for name in STATS]
    return select(*columns).where(dialect.among(schedule_stats.c.schedule, "keys"))


def write_summaries(tx: Tx, summaries: Mapping[int, LastRunSummary | Schedule]) -> None:
    rows = [stats_values(key, summaries[key]) for key in sorted(summaries)]
    tx.dialect.update_many(tx.connection, schedule_stats, STATS, rows)


def write_schedule(tx: Tx, schedule: Schedule) -> None:
    key = schedule_number(schedule.id)
    touch_definition(tx, key)
    (definition,) = store_definitions(tx, [run_definition(schedule)])
    sealed = sealed_values(schedule, tx.dialect.keyring)
    values = sealed | {"definition": definition, "this_key": key}
    del values["id"]
    tx.run(_WRITE_SCHEDULE, values)
    cursor = dict(zip(CURSOR[1:], cursor_values(key, schedule)[1:], strict=True))
    tx.run(_EDIT_CURSOR, cursor | edit_values(schedule, sealed) | {"this_key": key})
    write_summaries(tx, {key: schedule})


def set_definition(tx: Tx, key: int, schedule: Schedule) -> int:
    """Stores the definition of a version that was made by SQL."""
    (definition,) = store_definitions(tx, [run_definition(schedule)])
    tx.run(_SET_DEFINITION, {"this_key": key, "key_of_definition": definition})
    return definition


def cursor_updates(moved: Mapping[int, Schedule]) -> Write:
    """The cursors of schedules, which are locked, by key."""
    rows = [cursor_values(key, schedule) for key, schedule in moved.items()]
    return Write(cursors, CURSOR, rows, inserts=False)


def skip_taken_slots(tx: Tx, before: Schedule, after: Schedule, now: datetime) -> Schedule:
    """Moves a cursor that was set back past future slots that have a run."""
    while slot := returned_slot(before, after, now):
        if not find_slot_runs(tx, [(after.id, micros(slot))]):
            break
        after = pass_slot(after)
    return after


# --- runs ---------------------------------------------------------------------------------------
def decode_runs(tx: Tx, rows: Rows) -> list[Run]:
    """Decodes rows of RUN_COLUMNS."""
    known = load_definitions(tx, {row[_DEFINITION] for row in rows})
    concurrency, found = tx.concurrency, []
    for row in rows:
        concurrency[row[0]] = row[_CONCURRENCY]
        found.append(_decode(row, known.get(row[_DEFINITION])))
    return found


def _decode(row: Sequence[Any], stored: StoredDefinition | None) -> Run:
    """The run has the reason `unreadable_row` if a part of its definition is a placeholder."""
    error = str(_("the definition of this run is missing")) if stored is None else stored.error
    definition = _MISSING if stored is None else stored.value
    args = row[_ARGS]
    if args is not None and not error:
        try:
            definition = with_args(definition, decode_object(open_json(args)))
        except Exception as reason:
            parts = "args"
            error = str(_("{parts} of this run cannot be read: {error}", parts=parts, error=reason))
    run = decode_run(row, definition)
    if not error:
        return run
    if isinstance(definition.target, SyncTarget) and run.concurrency_key:
        # The concurrency key contains the collection too.
        collection = parse_pair_key(run.concurrency_key)[1] or definition.target.collection
        target = replace(definition.target, collection=collection)
        run = replace(run, definition=replace(definition, target=target))
    return replace(run, error=error, reason=Reason.UNREADABLE)


_MISSING = RunDefinition(target=HttpTarget(url="unreadable:"), policy=Policy())


def load_run(tx: Tx, run_id: RunId) -> Run | None:
    return load_runs(tx, [run_id]).get(run_id)


def read_runs(tx: Tx, ids: Collection[RunId]) -> dict[RunId, Run]:
    """Loads runs without locking them."""
    if not ids:
        return {}
    statement = SELECT_RUNS.where(tx.dialect.among(runs.c.id, "ids"))
    found = decode_runs(tx, tx.rows(statement, {"ids": tx.dialect.listed(ids)}))
    return {run.id: run for run in found}


def load_runs(tx: Tx, ids: Collection[RunId]) -> dict[RunId, Run]:
    """Loads runs and locks the active ones, by their row in the queue or in the claims. A run that
    others move from one to the other meanwhile is looked for again."""
    if not tx.locking or not ids:
        return read_runs(tx, ids)
    wanted = list(ids)
    found: dict[RunId, Run] = {}
    for _try in range(_TRIES):
        parameters = {"ids": tx.dialect.listed(wanted)}
        locked: set[str] = set()
        for table in (queue, claims):
            ids_of = select(table.c.run_id).where(tx.dialect.among(table.c.run_id, "ids"))
            rows = tx.rows(tx.for_update(ids_of, table.c.run_id), parameters)
            locked.update(row[0] for row in rows)
        loaded = read_runs(tx, wanted)
        found |= loaded
        wanted = [
            run.id for run in loaded.values() if run.id not in locked and not run.status.terminal
        ]
        if not wanted:
            break
    return found


def find_slot_runs(tx: Tx, pairs: Collection[tuple[str, int]]) -> Rows:
    """Returns (id, schedule, slot) of the runs that have one of these (schedule_id, slot)."""
    if not pairs:
        return ()
    slots = sorted({(schedule_number(schedule_id), slot) for schedule_id, slot in pairs})
    return tx.dialect.slot_runs(tx.connection, slots)


class ExistingRuns:
    """Finds the runs of a batch whose row exists already, by id or by slot."""

    def __init__(self, tx: Tx, new: Sequence[Run]) -> None:
        ids = select(runs.c.id).where(tx.dialect.among(runs.c.id, "ids"))
        found = tx.rows(ids, {"ids": tx.dialect.listed([run.id for run in new])}) if new else ()
        self._by_id: dict[str, str] = {row.id: row.id for row in found}
        pairs = [
            (run.schedule_id, micros(run.slot))
            for run in new
            if run.schedule_id is not None and run.slot is not None
        ]
        slot_rows = find_slot_runs(tx, pairs) if pairs else ()
        self._by_slot: dict[tuple[int, int], str] = {
            (row.schedule, row.slot): row.id for row in slot_rows
        }

    def find(self, run: Run) -> RunId | None:
        """Returns the id of the existing row."""
        slot = _slot(run)
        found = self._by_id.get(run.id) or (self._by_slot.get(slot) if slot else None)
        return None if found is None else RunId(found)

    def add(self, run: Run) -> bool:
        """Returns False if the row exists already."""
        if self.find(run) is not None:
            return False
        self._by_id[run.id] = run.id
        if (slot := _slot(run)) is not None:
            self._by_slot[slot] = run.id
        return True


def _slot(run: Run) -> tuple[int, int] | None:
    if run.schedule_id is None or run.slot is None:
        return None
    return (schedule_number(run.schedule_id), micros(run.slot))


def insert_runs(
    tx: Tx,
    new: Sequence[Run],
    *,
    batch_id: int | None = None,
    known: Mapping[str, KnownSchedule] = NO_SCHEDULES,
    likely_free: bool = False,
    extra_writes: Sequence[Write] = (),
) -> list[Run]:
    """Inserts runs whose id and slot are free; returns those that were inserted. `known`: schedules
    whose current definition is known to be stored. `likely_free`: expect that all are free, and let
    the transaction be repeated if one is not. `extra_writes`: written in any case."""
    rows: list[Values] = []
    others: list[Run] = []
    for run in new:
        schedule = known.get(run.definition.schedule_id or "")
        if schedule is None or not _is_current(run.definition, schedule):
            others.append(run)
            continue
        number = None if run.concurrency_key is None else schedule.concurrency
        tx.concurrency[run.id] = number
        planned = planned_values(run, schedule.definition, number, batch_id=batch_id)
        rows.append(inserted_values(planned, run))
    parts = [split_args(run) for run in others]
    stored = store_definitions(tx, [definition for definition, _ in parts])
    for run, (_definition, args), key in zip(others, parts, stored, strict=True):
        number = tx.concurrency[run.id] = concurrency_number(run)
        text = None if args is None else seal_json(encode_object(args), tx.dialect.keyring)
        planned = planned_values(run, key, number, text, batch_id)
        rows.append(inserted_values(planned, run))
    names = (*PLANNED, *STATE)
    if likely_free and tx.repeats_conflicts:
        writes = (*extra_writes, Write(runs, names, rows), *_active(tx, new))
        tx.dialect.write_all(tx.connection, writes)
        return list(new)
    added = set(tx.dialect.insert_missing(tx.connection, runs, names, rows, unique="id"))
    inserted = [run for run in new if run.id in added]
    tx.dialect.write_all(tx.connection, (*extra_writes, *_active(tx, inserted)))
    return inserted


def _is_current(definition: RunDefinition, known: KnownSchedule) -> bool:
    """Whether it is the definition of this version of the schedule."""
    template, schedule = known.context.template, known.value
    return (template is not None and definition is template.definition) or (
        definition.target is schedule.target
        and definition.policy is schedule.policy
        and definition.schedule_version == schedule.version
        and definition.cause is None
    )


def _active(tx: Tx, new: Iterable[Run]) -> tuple[Write, Write]:
    """The rows of runs in the queue and in the claims."""
    waiting: list[Values] = []
    claimed: list[Values] = []
    for run in new:
        if run.status is RunStatus.QUEUED:
            waiting.append(queue_values(run, tx.concurrency[run.id]))
        elif run.status is RunStatus.RUNNING:
            claimed.append(claim_values(run, tx.concurrency[run.id]))
    return Write(queue, QUEUE, waiting), Write(claims, CLAIMS, claimed)


def write_changes(tx: Tx, changes: Iterable[tuple[Run, Run]], taken: Collection[str] = ()) -> None:
    """Writes runs, each as it was and as it is. `taken`: runs whose claim is deleted already."""
    unqueue: list[Value] = []
    unclaim: list[Value] = []
    enter: list[Run] = []
    state: list[Values] = []
    requeue: list[Values] = []
    reclaim: list[Values] = []
    for before, after in changes:
        if after.status.terminal:
            state.append((after.id, *state_values(after)))
            if before.status is RunStatus.QUEUED:
                unqueue.append(before.id)
            elif before.status is RunStatus.RUNNING and before.id not in taken:
                unclaim.append(before.id)
            continue
        moves = before.status is not after.status
        if moves and before.status is RunStatus.QUEUED:
            unqueue.append(before.id)
        elif moves and before.status is RunStatus.RUNNING and before.id not in taken:
            unclaim.append(before.id)
        elif before.id in taken and after.status is RunStatus.RUNNING:
            moves = True
        number = tx.concurrency.get(after.id)
        if moves:
            enter.append(after)
        elif after.status is RunStatus.QUEUED:
            requeue.append(queue_values(after, number))
        elif after.status is RunStatus.RUNNING:
            reclaim.append(claim_values(after, number))
        requeued = moves and after.status is RunStatus.QUEUED
        if requeued or _texts(before) != _texts(after):
            state.append((after.id, *state_values(after)))
    dialect, connection = tx.dialect, tx.connection
    dialect.delete_many(connection, queue, "run_id", sorted(map(str, unqueue)))
    dialect.delete_many(connection, claims, "run_id", sorted(map(str, unclaim)))
    dialect.write_all(connection, _active(tx, enter))
    dialect.update_many(connection, queue, QUEUE, requeue)
    dialect.update_many(connection, claims, CLAIMS, reclaim)
    dialect.update_many(connection, runs, ("id", *STATE), state)


def _texts(run: Run) -> tuple[object, ...]:
    """What `runs` stores of an active run besides its times."""
    return (run.result, run.error, run.reason, run.attempts)


def unblock_runs(tx: Tx, ids: Sequence[str]) -> None:
    rows: list[Values] = [(run_id, 0) for run_id in sorted(ids)]
    tx.dialect.update_many(tx.connection, queue, ("run_id", "blocked"), rows)


def insert_logs(tx: Tx, logs: dict[RunId, list[LogEntry]]) -> None:
    """Line numbers continue from the end of each run's log."""
    wanted = [run_id for run_id, entries in logs.items() if entries]
    if not wanted:
        return
    found = tx.tuples(_last_numbers(tx.dialect), {"ids": tx.dialect.listed(wanted)})
    last: dict[str, int] = {row[0]: row[1] for row in found}
    rows = [
        log_values(run_id, number, entry)
        for run_id in wanted
        for number, entry in enumerate(logs[run_id], last.get(run_id, 0) + 1)
    ]
    tx.dialect.insert_many(tx.connection, run_logs, LOG, rows)


@cache
def _last_numbers(dialect: Dialect) -> Select[Any]:
    """Of the runs that have a log: most that end have none yet."""
    last = select(runs.c.id, _LAST_NUMBER.label("last"))
    found = last.where(dialect.among(runs.c.id, "ids")).subquery()
    return select(found.c.id, found.c.last).where(found.c.last.is_not(None))


# --- nodes --------------------------------------------------------------------------------------
def is_alive(tx: Tx, node_id: NodeId, now: datetime) -> bool:
    row = tx.first(_LEASE, {"node_id": node_id})
    return row is not None and row.lease_until > micros(now)


# --- corrupt rows ---------------------------------------------------------------------------------
#: Decoder of a column, and its placeholder.
_Part = tuple[Callable[[Any], object], object]

_SCHEDULE_NAMES = tuple(each.name for each in SCHEDULE_COLUMNS)
_RUN_NAMES = tuple(each.name for each in RUN_COLUMNS)
_SCHEDULE: Mapping[str, _Part] = {
    "owner_type": (lambda word: owner_of(word, "x"), "system"),
    "trigger": (trigger_of, encode(Once(EPOCH).to_dict())),
    "target": (target_of, TargetTexts()(HttpTarget(url="unreadable:"))),
    "policy": (policy_of, policy_text(Policy())),
    "labels": (lambda text: labels_from_plain(decode_object(text)), "{}"),
    "depends_on": (dependency_of, None),
    "compat_data": (lambda text: decode_object(open_json(text)), "{}"),
    "last_status": (STATUSES.__getitem__, None),
}
_RUN: Mapping[str, _Part] = {
    "origin": (Origin, Origin.MANUAL.value),
    "status": (STATUSES.__getitem__, RunStatus.FAILED.value),
    "result": (decode_object, None),
    "attempts": (attempts_of, None),
}


def decode_schedule(row: Sequence[Any]) -> Schedule:
    return decode_schedule_and_damage(row)[0]


def decode_schedule_and_damage(row: Sequence[Any]) -> tuple[Schedule, frozenset[str]]:
    """Returns the schedule, and the names of its fields that are placeholders."""
    try:
        return schedule_of(row), frozenset()
    except Exception as error:
        _log.warning("schedule %s cannot be read: %s", row[1], error)
        repaired, damage = _repair(row, _SCHEDULE_NAMES, _SCHEDULE)
        message = _(
            "{parts} of this schedule cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=message_of(error),
        )
        # The last status is not part of the definition, so losing it is no damage.
        return replace(schedule_of(repaired), last_error=str(message)), damage - {"last_status"}


def decode_run(row: Sequence[Any], definition: RunDefinition) -> Run:
    """The run has the reason `unreadable_row` if a field is a placeholder."""
    try:
        return run_of(row, definition)
    except Exception as error:
        _log.warning("run %s cannot be read: %s", row[0], error)
        repaired, damage = _repair(row, _RUN_NAMES, _RUN)
        message = _(
            "{parts} of this run cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=message_of(error),
        )
        run = run_of(repaired, definition)
        return replace(run, error=str(message), reason=Reason.UNREADABLE)


def _repair(
    row: Sequence[Any], names: Sequence[str], parts: Mapping[str, _Part]
) -> tuple[list[Any], frozenset[str]]:
    values, damage = list(row), set()
    for place, name in enumerate(names):
        if name not in parts or values[place] is None:
            continue
        read, instead = parts[name]
        try:
            read(values[place])
        except Exception:
            values[place] = instead
            damage.add(name)
    return values, frozenset(damage)
