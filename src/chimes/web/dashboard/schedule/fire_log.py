"""Fire log of a schedule: the decision about each slot with its reason, and changes in between.

It answers the question "why did it not run?".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from urllib.parse import urlencode

from chimes.clock import from_micros, to_micros
from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.run import Reason, Run, RunStatus
from chimes.services.schedules.history import (
    Decision,
    FireLogEntry,
    FireLogFilter,
    FireLogPosition,
    describe_absence,
    describe_decision,
)
from chimes.web.dashboard.core.audit import Change, changes_of, describe_change
from chimes.web.dashboard.run.views import blocking_run_of
from chimes.web.dashboard.schedules.month import midnight

_MAX_CURSOR_LENGTH = 500
_DAY = timedelta(days=1)
_DECISION_LABELS: Mapping[Decision, Message] = {
    Decision.FIRED: _("fired"),
    Decision.SKIPPED: _("skipped"),
    Decision.MISSED: _("missed"),
    Decision.MANUAL: _("manual"),
    Decision.BACKFILL: _("backfill"),
    Decision.PAUSED: _("paused"),
    Decision.RESUMED: _("resumed"),
    Decision.MOVED: _("moved"),
    Decision.ABSENT: _("does not happen"),
    Decision.CHANGED: _("changed"),
}
#: Decisions because of which nothing ran.
NOT_RUN = frozenset({Decision.SKIPPED, Decision.MISSED, Decision.PAUSED})


# --- filter ---------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class LogFilter:
    """From the URL: only slots that did not run, only one day in the viewer's zone."""

    not_run: bool
    day: date | None
    zone: str

    @classmethod
    def from_query(cls, query: Mapping[str, str], zone: str) -> LogFilter:
        """InvalidInput."""
        text = query.get("day", "").strip()
        try:
            day = date.fromisoformat(text) if text else None
            if day is not None:
                # The page links to the neighbouring days.
                midnight(day - _DAY, zone), midnight(day + 2 * _DAY, zone)
        except (ValueError, OverflowError):
            raise InvalidInput(
                _("must be a date such as 2030-01-31"), field="day", source="query"
            ) from None
        return cls(not_run=query.get("only") == "not", day=day, zone=zone)

    @property
    def query(self) -> FireLogFilter:
        if self.day is None:
            return FireLogFilter(not_run=self.not_run)
        since, until = midnight(self.day, self.zone), midnight(self.day + _DAY, self.zone)
        return FireLogFilter(not_run=self.not_run, since=since, until=until)

    def shifted(self, days: int) -> LogFilter:
        assert self.day is not None
        return replace(self, day=self.day + days * _DAY)

    def with_(self, *, not_run: bool) -> LogFilter:
        return replace(self, not_run=not_run)

    def address(self, page: str, **more: str) -> str:
        params = {"only": "not"} if self.not_run else {}
        params |= {"day": self.day.isoformat()} if self.day is not None else {}
        return f"{page}?{urlencode(params | more)}" if params or more else page


# --- lines ---------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    at: datetime
    decision: Decision
    label: Message
    #: A sentence.
    reason: str
    run: Run | None = None
    #: The run because of which a slot was skipped.
    blocking_run: RunId | None = None
    #: Comment of the user.
    comment: str = ""
    changes: tuple[Change, ...] = ()

    @property
    def bad(self) -> bool:
        return self.decision in NOT_RUN


def log_lines(entries: Sequence[FireLogEntry], earlier: Sequence[Run] = ()) -> tuple[LogLine, ...]:
    """A manual run and its audit entry are one line. `earlier` are older runs, which may have
    blocked a slot."""
    runs = [each.run for each in entries if each.run is not None]
    known = {run.id for run in runs}
    runs.extend(earlier)
    requested_by = {
        str(note.changes.get("run_id")): note.actor
        for note in (each.note for each in entries)
        if note is not None and note.verb == "run"
    }
    found: list[LogLine] = []
    for entry in entries:
        if entry.run is not None:
            found.append(_run_line(entry, entry.run, requested_by, runs))
        elif entry.note is not None and str(entry.note.changes.get("run_id")) not in known:
            found.append(_change_line(entry, entry.note))
        elif entry.absence is not None:
            label = _DECISION_LABELS[entry.decision]
            reason = describe_absence(entry.absence)
            found.append(LogLine(at=entry.at, decision=entry.decision, label=label, reason=reason))
    return tuple(found)


def _run_line(
    entry: FireLogEntry, run: Run, requested_by: Mapping[str, str], runs: Sequence[Run]
) -> LogLine:
    return LogLine(
        at=run.slot or run.planned_at,
        decision=entry.decision,
        label=_DECISION_LABELS[entry.decision],
        reason=describe_decision(entry, run, requested_by.get(run.id)),
        run=run,
        blocking_run=_blocking_run(run, runs) if run.reason == Reason.OVERLAP else None,
    )


def oldest_unexplained(entries: Sequence[FireLogEntry]) -> Run | None:
    """The oldest skipped slot whose blocking run is not among these entries."""
    runs = [each.run for each in entries if each.run is not None]
    skipped = [run for run in runs if run.reason == Reason.OVERLAP]
    without = [run for run in skipped if _blocking_run(run, runs) is None]
    return without[-1] if without else None


def _blocking_run(skipped: Run, runs: Sequence[Run]) -> RunId | None:
    """As recorded; for older rows without a record, the newest of `runs` that was active then."""
    recorded = blocking_run_of(skipped)
    if recorded is not None:
        return recorded
    then = skipped.created_at
    for run in runs:
        was_active = run.created_at < then and (run.finished_at is None or run.finished_at > then)
        if was_active and run.id != skipped.id and run.status is not RunStatus.SKIPPED:
            return run.id
    return None


def _change_line(entry: FireLogEntry, note: AuditEntry) -> LogLine:
    return LogLine(
        at=note.at,
        decision=entry.decision,
        label=_DECISION_LABELS[entry.decision],
        reason=describe_change(note),
        comment=note.reason,
        changes=changes_of(note) if entry.decision is Decision.CHANGED else (),
    )


# --- cursor --------------------------------------------------------------------------------------
def encode_position(position: FireLogPosition) -> str:
    at = None if position.at is None else to_micros(position.at)
    content = json.dumps([position.run, position.note, at], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> FireLogPosition | None:
    if not cursor:
        return None
    try:
        if len(cursor) > _MAX_CURSOR_LENGTH:
            raise ValueError
        content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        run, note, at = [*json.loads(content), None][:3]
        if run is not None:
            value, row = run
            if not isinstance(value, int) or not isinstance(row, str):
                raise TypeError
            run = (value, row)
        if any(each is not None and not isinstance(each, int) for each in (note, at)):
            raise TypeError
        moment = None if at is None else from_micros(at)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InvalidInput(
            _("invalid cursor; start again without one"),
            field="cursor",
            code="bad_cursor",
            source="query",
        ) from None
    return FireLogPosition(run=run, note=note, at=moment)
