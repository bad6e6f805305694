"""How verdicts are written: fenced, in batches, with what follows from them.

Most verdicts end a run that nobody waits for. Where the dialect can, those are written with one
statement; what it did not match, and verdicts from which more follows, go the long way in the
same transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Attempt, LogEntry, Run, Verdict, accepts, settled
from chimes.model.schedule import Summary, summarized
from chimes.store.port import Finished
from chimes.store.sql.base import append_logs, load_runs, load_summaries
from chimes.store.sql.database import Tx
from chimes.store.sql.locking import hold_keys, hold_places, hold_runs, places_of
from chimes.store.sql.rows.parts import Value, clean, encode_object, maybe_micros, micros
from chimes.store.sql.rows.run import attempt_text, first_attempt, run_of
from chimes.store.sql.rows.schedule import summary_values
from chimes.store.sql.settling import Keys, Settling


def finished(tx: Tx, verdicts: Sequence[Verdict]) -> Finished:
    ids = {verdict.run_id for verdict in verdicts}
    done: dict[RunId, Run] = {}
    if tx.dialect.fast and tx.schedules_usable:
        done = _plainly(tx, verdicts, ids)
    else:
        hold_runs(tx, ids)
    left = [verdict for verdict in verdicts if verdict.run_id not in done]
    if done and left:
        # Those that are left may be flows, whose steps end with them.
        hold_runs(tx, {verdict.run_id for verdict in left})
    slow = iter(_by_the_book(tx, left) if left else ())
    answers = [done[v.run_id] if v.run_id in done else next(slow) for v in verdicts]
    return Finished(
        accepted=tuple(run for run in answers if run is not None),
        refused=tuple(
            verdict.run_id for verdict, run in zip(verdicts, answers, strict=True) if run is None
        ),
    )


def _by_the_book(tx: Tx, verdicts: Sequence[Verdict]) -> list[Run | None]:
    """One after another, as if each were alone. None: refused."""
    now = tx.now()
    current = load_runs(tx, {verdict.run_id for verdict in verdicts})
    settling = Settling(tx, now, current.values())
    logs: dict[RunId, list[LogEntry]] = {}
    answers: list[Run | None] = []
    for verdict in verdicts:
        run = settling.changed(verdict.run_id) or current.get(verdict.run_id)
        if run is not None and accepts(run, verdict.fence):
            run = settled(run, verdict, now)
            settling.apply(run, verdict)
            logs.setdefault(run.id, []).extend(verdict.logs)
            tx.wakes |= not run.status.terminal or run.parent_id is not None or run.resumable
            answers.append(run)
        elif run is not None and verdict.attempt in run.attempts:
            answers.append(run)
        else:
            answers.append(None)
    settling.write()
    append_logs(tx, logs)
    tx.wakes |= settling.let_go
    return answers


def _plainly(tx: Tx, verdicts: Sequence[Verdict], ids: set[RunId]) -> dict[RunId, Run]:
    """Those that could be dealt with, as they are now."""
    summaries = _held_summaries(tx, ids)
    times = Counter(verdict.run_id for verdict in verdicts)
    plain = {v.run_id: v for v in verdicts if not v.pause_schedule and times[v.run_id] == 1}
    if not plain:
        return {}
    now = tx.now()
    values = [_values(plain[run_id], now) for run_id in sorted(plain)]
    done: dict[RunId, Run] = {}
    logs: dict[RunId, list[LogEntry]] = {}
    in_line: list[Run] = []
    recorded: set[ScheduleId] = set()
    rows = {row[0]: row for row in tx.dialect.finish_plain(tx.connection, micros(now), values)}
    known: dict[str, tuple[Attempt, ...]] = {}
    for each in values:
        known |= first_attempt(str(each[-1]), plain[RunId(str(each[0]))].attempt)
    # In the order of the verdicts, which is the order in which a schedule hears of its runs.
    for verdict in plain.values():
        row = rows.get(verdict.run_id)
        if row is None:
            continue
        run = done[verdict.run_id] = run_of(row[:-1], known)
        if verdict.logs:
            logs[run.id] = list(verdict.logs)
        if not run.status.terminal:
            tx.wakes = True
            continue
        if run.schedule_id is not None and run.schedule_id in summaries:
            summaries[run.schedule_id] = summarized(summaries[run.schedule_id], run)
            recorded.add(run.schedule_id)
        if row[-1]:
            in_line.append(run)
    changed = [summary_values(each, summaries[each]) for each in sorted(recorded)]
    tx.dialect.move_cursors(tx.connection, changed)
    if in_line:
        keys = Keys(tx, in_line)
        keys.count_again(in_line)
        for run in in_line:
            tx.wakes |= keys.end(run)
        keys.write()
    append_logs(tx, logs)
    return done


def _held_summaries(tx: Tx, ids: set[RunId]) -> dict[ScheduleId, Summary]:
    """The schedules of the runs, held; so are the keys."""
    places = places_of(tx, ids)
    schedule_ids = {ScheduleId(each) for each, _ in places if each is not None}
    keys = {key for _, key in places if key is not None}
    own = {f"schedule:{each}": each for each in schedule_ids}
    if not keys <= own.keys():
        hold_places(tx, places)
        return load_summaries(tx, schedule_ids)
    summaries = load_summaries(tx, schedule_ids)
    # Without a row of its schedule, as when it is timed in memory, a key has one of its own.
    hold_keys(tx, {key for key in keys if own[key] not in summaries})
    return summaries


def _values(verdict: Verdict, now: datetime) -> tuple[Value, ...]:
    """As PLAIN_VERDICT names them."""
    retry_at = None if verdict.retry_in is None else now + verdict.retry_in
    return (
        verdict.run_id,
        verdict.fence,
        "queued" if retry_at else verdict.status.value,
        maybe_micros(retry_at),
        None if verdict.result is None else encode_object(verdict.result),
        clean(verdict.error),
        clean(verdict.reason),
        attempt_text(verdict.attempt),
    )
