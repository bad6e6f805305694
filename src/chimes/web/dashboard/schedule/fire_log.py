"""The fire log in words: what became of each slot and why, and who changed what in between. It
answers "why did it not run?" (UX wish 9)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from urllib.parse import urlencode

from chimes.errors import InvalidInput
from chimes.i18n import Message, _, counted
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.policy import Misfire
from chimes.model.reasons import describe_reason
from chimes.model.run import Reason, Run, RunStatus
from chimes.services.schedule_history import Decision, FireLogEntry, FireLogFilter, FireLogPosition
from chimes.web.dashboard.run.views import blocking_run_of
from chimes.web.dashboard.schedules.month import midnight
from chimes.web.dashboard.system.views import Change, changes_of

_LONGEST = 500
_DAY = timedelta(days=1)
_WORDS: Mapping[Decision, Message] = {
    Decision.FIRED: _("fired"),
    Decision.SKIPPED: _("skipped"),
    Decision.MISSED: _("missed"),
    Decision.MANUAL: _("by hand"),
    Decision.BACKFILL: _("backfill"),
    Decision.PAUSED: _("paused"),
    Decision.RESUMED: _("resumed"),
    Decision.MOVED: _("moved"),
    Decision.CHANGED: _("changed"),
}
#: As the form names them.
_RULES: Mapping[Misfire, Message] = {
    Misfire.SKIP: _("leave it out"),
    Misfire.ONE: _("run once"),
    Misfire.ALL: _("make up for every one"),
}
#: What did not run, and what kept it from running.
NOT_RUN = frozenset({Decision.SKIPPED, Decision.MISSED, Decision.PAUSED})


# --- what is asked for ----------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class LogAsked:
    """As the address has it: only what did not run, only one day of the reader's clock."""

    not_run: bool
    day: date | None
    zone: str

    @classmethod
    def from_query(cls, query: Mapping[str, str], zone: str) -> LogAsked:
        """InvalidInput."""
        text = query.get("day", "").strip()
        try:
            day = date.fromisoformat(text) if text else None
            if day is not None:
                # With its neighbours, to which the page leads.
                midnight(day - _DAY, zone), midnight(day + 2 * _DAY, zone)
        except (ValueError, OverflowError):
            raise InvalidInput(_("a day such as 2030-01-31"), field="day", source="query") from None
        return cls(not_run=query.get("only") == "not", day=day, zone=zone)

    @property
    def wish(self) -> FireLogFilter:
        if self.day is None:
            return FireLogFilter(not_run=self.not_run)
        since, until = midnight(self.day, self.zone), midnight(self.day + _DAY, self.zone)
        return FireLogFilter(not_run=self.not_run, since=since, until=until)

    def on(self, days: int) -> LogAsked:
        """So many days later."""
        assert self.day is not None
        return replace(self, day=self.day + days * _DAY)

    def but(self, *, not_run: bool) -> LogAsked:
        return replace(self, not_run=not_run)

    def address(self, page: str, **more: str) -> str:
        asked = {"only": "not"} if self.not_run else {}
        asked |= {"day": self.day.isoformat()} if self.day is not None else {}
        return f"{page}?{urlencode(asked | more)}" if asked or more else page


# --- its lines ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    at: datetime
    decision: Decision
    word: Message
    #: Why, as a whole sentence.
    why: str
    run: Run | None = None
    #: The run that stood in the way of a slot that was skipped.
    blocking_run_of: RunId | None = None
    #: What somebody wrote beside it.
    remark: str = ""
    changes: tuple[Change, ...] = ()

    @property
    def bad(self) -> bool:
        return self.decision in NOT_RUN


def log_lines(entries: Sequence[FireLogEntry], earlier: Sequence[Run] = ()) -> tuple[LogLine, ...]:
    """A run that somebody asked for is one line with who did, not two. `earlier`: runs before
    them that may have stood in the way."""
    runs = [each.run for each in entries if each.run is not None]
    known = {run.id for run in runs}
    runs.extend(earlier)
    asked_by = {
        str(note.changes.get("run_id")): note.actor
        for note in (each.note for each in entries)
        if note is not None and note.verb == "run"
    }
    found: list[LogLine] = []
    for entry in entries:
        if entry.run is not None:
            found.append(_of_run(entry, entry.run, asked_by, runs))
        elif entry.note is not None and str(entry.note.changes.get("run_id")) not in known:
            found.append(_of_note(entry, entry.note))
    return tuple(found)


def _of_run(
    entry: FireLogEntry, run: Run, asked_by: Mapping[str, str], runs: Sequence[Run]
) -> LogLine:
    return LogLine(
        at=run.slot or run.planned_at,
        decision=entry.decision,
        word=_WORDS[entry.decision],
        why=_why(entry, run, asked_by.get(run.id)),
        run=run,
        blocking_run_of=_in_the_way(run, runs) if run.reason == Reason.OVERLAP else None,
    )


def why_of(run: Run) -> str:
    """Why a run ended without an error: a sentence, if it never began."""
    match run.status:
        case RunStatus.SKIPPED:
            return _left_out(run)
        case RunStatus.MISSED:
            return _missed(run)
        case _:
            return describe_reason(run.reason)


def _left_out(run: Run) -> Message:
    return _("It was left out: {why}.", why=describe_reason(run.reason))


def _missed(run: Run) -> Message:
    rule = _RULES[run.policy.misfire]
    if run.missed_count > 1:
        return counted(
            "{count} time was missed: no node was there to begin in time, "
            "and the rule for such times is: {rule}.",
            "{count} times were missed: no node was there to begin in time, "
            "and the rule for such times is: {rule}.",
            run.missed_count,
            rule=rule,
        )
    return _(
        "It was missed: no node was there to begin in time, "
        "and the rule for such times is: {rule}.",
        rule=rule,
    )


def _why(entry: FireLogEntry, run: Run, who: str | None) -> Message:
    match entry.decision:
        case Decision.SKIPPED:
            return _left_out(run)
        case Decision.MISSED:
            return _missed(run)
        case Decision.MANUAL if who:
            return _("{who} asked for it.", who=who)
        case Decision.MANUAL:
            return _("Somebody asked for it.")
        case Decision.BACKFILL:
            return _("It makes up for a time that had passed.")
        case _ if run.reason == Reason.CATCH_UP or run.catch_up:
            return _("It was late: it makes up for a time that was missed.")
        case _ if run.reason:
            return _("It was due, and was ended: {why}.", why=describe_reason(run.reason))
        case _ if run.blocked and run.status is RunStatus.QUEUED:
            return _("It was due, and waits until the run before it has ended.")
        case _:
            return _("It was due, and was begun.")


def unexplained(entries: Sequence[FireLogEntry]) -> Run | None:
    """The oldest that was skipped because of a run that is not among these."""
    runs = [each.run for each in entries if each.run is not None]
    skipped = [run for run in runs if run.reason == Reason.OVERLAP]
    without = [run for run in skipped if _in_the_way(run, runs) is None]
    return without[-1] if without else None


def _in_the_way(skipped: Run, runs: Sequence[Run]) -> RunId | None:
    """As it is on record; of older rows, the newest that was under way then, among those that are
    known here."""
    recorded = blocking_run_of(skipped)
    if recorded is not None:
        return recorded
    then = skipped.created_at
    for run in runs:
        under_way = run.created_at < then and (run.finished_at is None or run.finished_at > then)
        if under_way and run.id != skipped.id and run.status is not RunStatus.SKIPPED:
            return run.id
    return None


def _of_note(entry: FireLogEntry, note: AuditEntry) -> LogLine:
    return LogLine(
        at=note.at,
        decision=entry.decision,
        word=_WORDS[entry.decision],
        why=describe_change(note),
        remark=note.reason,
        changes=changes_of(note) if entry.decision is Decision.CHANGED else (),
    )


def describe_change(note: AuditEntry) -> Message:
    """What somebody did to a schedule, or to the examples as a whole."""
    who = note.actor
    match note.verb:
        case "create":
            return _("{who} made the schedule.", who=who)
        case "delete":
            return _("{who} deleted the schedule.", who=who)
        case "restore":
            return _("{who} brought the schedule back.", who=who)
        case "snooze":
            return _("{who} put its sign under Needs attention off for a day.", who=who)
        case "wake":
            return _("{who} wants to see its sign under Needs attention again.", who=who)
        case "load_demo":
            return _("{who} loaded the examples.", who=who)
        case "remove_demo":
            return _("{who} removed the examples.", who=who)
        case _:
            return _about_times(note) or _("{who} changed the schedule.", who=who)


def _about_times(note: AuditEntry) -> Message | None:
    who = note.actor
    match note.verb:
        case "pause":
            return _("{who} paused it: nothing runs until it goes on.", who=who)
        case "resume":
            return _("{who} had it go on.", who=who)
        case "skip":
            return _("{who} left out the next time.", who=who)
        case "move":
            return _("{who} moved the next run.", who=who)
        case "reschedule":
            return _("{who} set another next time.", who=who)
        case "run":
            return _("{who} asked for a run.", who=who)
        case "backfill":
            return _("{who} had times that had passed made up for.", who=who)
        case _:
            return None


# --- where a page ends ----------------------------------------------------------------------------
def cursor_of(position: FireLogPosition) -> str:
    content = json.dumps([position.run, position.note], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def position_in(cursor: str) -> FireLogPosition | None:
    if not cursor:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        run, note = json.loads(content)
        if run is not None:
            value, row = run
            if not isinstance(value, int) or not isinstance(row, str):
                raise TypeError
            run = (value, row)
        if note is not None and not isinstance(note, int):
            raise TypeError
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput(
            _("this cursor does not belong to this list; start again without one"),
            field="cursor",
            code="bad_cursor",
            source="query",
        ) from None
    return FireLogPosition(run=run, note=note)
