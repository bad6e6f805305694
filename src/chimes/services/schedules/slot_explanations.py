"""Explanation of slots: whether a slot of a schedule ran, and why it did not."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from chimes.clock import MICROSECOND
from chimes.errors import InvalidInput
from chimes.i18n import Message, _, joined
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import RunSort
from chimes.model.planning import MaintenanceWindow, find_window
from chimes.model.run import (
    SUSPENDED_PREFIX,
    WAITING_PREFIX,
    Origin,
    Reason,
    Run,
    RunStatus,
    describe_reason,
)
from chimes.model.schedule import Schedule
from chimes.services.schedules.history import (
    MAX_AUDIT_ENTRIES,
    NOT_EXECUTED,
    SWITCH_VERBS,
    audit_query,
    describe_cause,
    describe_decision,
    is_pause,
    outcome_reason,
    run_entry,
    run_query,
    visible_schedule,
)
from chimes.services.schedules.rules import calculate
from chimes.services.schedules.versions import before_and_after
from chimes.store.port import Store, read_maintenance
from chimes.triggers import EventTrigger, Trigger, trigger_from_dict
from chimes.triggers.values import parse_moment


class SlotOutcome(StrEnum):
    RAN = "ran"
    SKIPPED = "skipped"
    MISSED = "missed"
    PAUSED = "paused"
    #: Planned, due or queued; not started yet.
    PENDING = "pending"
    #: No slot of the schedule at that time.
    NOT_DUE = "not_due"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotExplanation:
    """What became of one slot, and why."""

    schedule_id: ScheduleId
    slot: datetime
    outcome: SlotOutcome
    #: A code: a `Reason`, the status of the run, or one of the codes of `_without_run`.
    reason: str
    #: A sentence.
    message: str
    run_id: RunId | None = None

    @property
    def ran(self) -> bool:
        return self.outcome is SlotOutcome.RAN


#: Slots of one response.
MAX_SLOTS = 1000
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_HISTORY_VERBS = (*SWITCH_VERBS, "delete", "restore", "reschedule", "create")
_RUN_SENTENCES: Mapping[RunStatus, Message] = {
    RunStatus.RUNNING: _("Started; still running."),
    RunStatus.SUCCEEDED: _("Ran and succeeded."),
    RunStatus.TIMEOUT: _("Ran and timed out."),
    RunStatus.UNKNOWN: _("Started; its node was lost, so its result is unknown."),
}


async def explain_slot(
    store: Store, actor: Actor, schedule_id: ScheduleId, at: datetime
) -> SlotExplanation:
    """What became of the slot at this time; a time without seconds means the first slot of that
    minute. Raises NotFound."""
    schedule = await visible_schedule(store, actor, schedule_id)
    span = _MINUTE if at.second == at.microsecond == 0 else _SECOND
    explainer = await _SlotExplainer.load(store, actor, schedule, at, at + span)
    if explanations := explainer.explain_all():
        return explanations[0]
    return await calculate([schedule.trigger], lambda: explainer.not_a_slot(at))


async def explain_slots(
    store: Store, actor: Actor, schedule_id: ScheduleId, since: datetime, until: datetime
) -> tuple[SlotExplanation, ...]:
    """What became of every slot from `since` to just before `until`, oldest first. Raises NotFound,
    and InvalidInput if there are more than MAX_SLOTS."""
    schedule = await visible_schedule(store, actor, schedule_id)
    return (await _SlotExplainer.load(store, actor, schedule, since, until)).explain_all()


async def explain_last_slot(store: Store, actor: Actor, schedule_id: ScheduleId) -> SlotExplanation:
    """The latest slot if it did not run, else the most recent recorded slot that did not, else the
    latest slot; a schedule without past slots answers for its next one. Raises NotFound."""
    schedule = await visible_schedule(store, actor, schedule_id)
    now = await store.now()
    if isinstance(schedule.trigger, EventTrigger):
        return await _explain_last_event(store, actor, schedule, now)
    last = await calculate(
        [schedule.trigger], lambda: schedule.trigger.previous_before(now + MICROSECOND)
    )
    explanation = None
    if last is not None and last >= schedule.created_at:
        explanation = await explain_slot(store, actor, schedule_id, last)
    if explanation is None or explanation.ran:
        query = replace(
            run_query(actor, schedule_id), statuses=NOT_EXECUTED, sort=RunSort.PLANNED_AT, limit=1
        )
        recorded = (await store.list_runs(query)).items
        slots = [each.slot for each in recorded if each.slot is not None]
        if slots:
            return await explain_slot(store, actor, schedule_id, slots[0])
    if explanation is not None:
        return explanation
    upcoming = schedule.next_slot or schedule.trigger.next_after(now)
    return await explain_slot(store, actor, schedule_id, upcoming or now)


async def _explain_last_event(
    store: Store, actor: Actor, schedule: Schedule, now: datetime
) -> SlotExplanation:
    """The most recent event whose run was not executed, else the latest event."""
    explainer = _SlotExplainer(schedule=schedule, now=now, since=now, until=now)
    query = replace(
        run_query(actor, schedule.id), origin=Origin.EVENT, sort=RunSort.PLANNED_AT, limit=1
    )
    for each in (replace(query, statuses=NOT_EXECUTED), query):
        for run in (await store.list_runs(each)).items:
            return explainer.explain_event(run)
    message = _("The schedule starts on an event; none has come yet.")
    return explainer.answer(now, SlotOutcome.NOT_DUE, "no_event", message)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SlotExplainer:
    """The fire log of a period, with what is needed to explain slots without a run."""

    schedule: Schedule
    now: datetime
    since: datetime
    until: datetime
    #: Slots of the triggers that were current then.
    slots: tuple[datetime, ...] = ()
    runs: Mapping[datetime, Run] = field(default_factory=dict)
    #: Runs that events started, by the time of the event.
    events: tuple[Run, ...] = ()
    #: Rows that stand for several slots.
    ranges: tuple[Run, ...] = ()
    #: Oldest first.
    changes: tuple[AuditEntry, ...] = ()
    maintenance: tuple[MaintenanceWindow, ...] = ()

    @classmethod
    async def load(
        cls, store: Store, actor: Actor, schedule: Schedule, since: datetime, until: datetime
    ) -> _SlotExplainer:
        query = replace(run_query(actor, schedule.id), sort=RunSort.PLANNED_AT)
        now, planned, before, entries, maintenance = await gather(
            store.now(),
            store.list_runs(
                replace(query, since=since, until=until, descending=False, limit=MAX_SLOTS + 1)
            ),
            store.list_runs(replace(query, statuses=NOT_EXECUTED, until=since, limit=1)),
            store.list_audit(
                replace(
                    audit_query(actor, schedule.id), verbs=_HISTORY_VERBS, limit=MAX_AUDIT_ENTRIES
                )
            ),
            read_maintenance(store),
        )
        changes = tuple(each for each in reversed(entries) if each.allowed)
        slots = await calculate(
            [schedule.trigger], lambda: _slots_between(schedule, changes, since, until)
        )
        runs = await store.find_slot_runs(schedule.id, slots) if slots else {}
        # A slot that a user set, and one of a trigger that is gone from the audit log.
        runs |= {
            run.slot: run
            for run in planned.items
            if run.slot is not None and since <= run.slot < until
        }
        events = tuple(run for run in planned.items if run.definition.cause is not None)
        if max(len(runs), len(slots), len(events)) > MAX_SLOTS:
            raise _too_many_slots()
        return cls(
            schedule=schedule,
            now=now,
            since=since,
            until=until,
            slots=slots,
            runs=runs,
            events=events,
            ranges=tuple(
                run for run in (*before.items, *planned.items) if run.missed_until is not None
            ),
            changes=changes,
            maintenance=maintenance,
        )

    def explain_all(self) -> tuple[SlotExplanation, ...]:
        slots = [self.explain(slot) for slot in sorted({*self.slots, *self.runs})]
        events = [self.explain_event(run) for run in self.events]
        return tuple(sorted(slots + events, key=lambda each: each.slot))

    def explain_event(self, run: Run) -> SlotExplanation:
        return self._of_run(run.planned_at, run)

    def not_a_slot(self, at: datetime) -> SlotExplanation:
        trigger = trigger_at(self.schedule, self.changes, at)
        if isinstance(trigger, EventTrigger):
            message = _("The schedule starts on an event; none started a run at that time.")
            return self.answer(at, SlotOutcome.NOT_DUE, "no_event", message)
        before, after = trigger.previous_before(at), trigger.next_after(at)
        if before is not None and after is not None:
            message = _(
                "Not a slot of this schedule. The slots around it are {before} and {after}.",
                before=trigger.local(before).isoformat(),
                after=trigger.local(after).isoformat(),
            )
        elif (nearest := before or after) is not None:
            message = _(
                "Not a slot of this schedule. The nearest one is {nearest}.",
                nearest=trigger.local(nearest).isoformat(),
            )
        else:
            message = _("Not a slot of this schedule, which has no slots.")
        return self.answer(at, SlotOutcome.NOT_DUE, "no_slot", message)

    def explain(self, slot: datetime) -> SlotExplanation:
        run = self.runs.get(slot)
        if run is None:
            run = next(
                (
                    each
                    for each in self.ranges
                    if each.slot is not None
                    and each.missed_until is not None
                    and each.slot <= slot <= each.missed_until
                ),
                None,
            )
        return self._without_run(slot) if run is None else self._of_run(slot, run)

    def _of_run(self, slot: datetime, run: Run) -> SlotExplanation:
        cause = run.definition.cause
        message = describe_decision(run_entry(run), run)
        match run.status:
            case RunStatus.SKIPPED:
                outcome, reason = SlotOutcome.SKIPPED, run.reason
            case RunStatus.MISSED:
                outcome, reason = SlotOutcome.MISSED, run.reason
            case RunStatus.QUEUED:
                outcome, reason = SlotOutcome.PENDING, run.reason or run.status.value
                if run.reason.startswith((WAITING_PREFIX, SUSPENDED_PREFIX)):
                    message = _("Queued; {reason}.", reason=describe_reason(run.reason))
                elif run.attempt:
                    message = _("Waits for its next attempt: {error}", error=run.error)
                elif not run.blocked:
                    message = _("Queued; waits for a node that can execute it.")
                else:
                    message = _("Due; waits for the previous run.")
            case RunStatus.CANCELED if run.started_at is None:
                outcome, reason = SlotOutcome.SKIPPED, run.reason
            case status:
                outcome, reason = SlotOutcome.RAN, run.shown_reason or status.value
                ended = _RUN_SENTENCES.get(status)
                if status is RunStatus.FAILED:
                    ended = _("Ran and failed: {error}", error=run.error)
                elif status is RunStatus.CANCELED:
                    ended = _("Started, then canceled: {reason}.", reason=outcome_reason(run))
                late = run.catch_up or run.origin is Origin.BACKFILL
                message = joined(" ", [message, ended]) if late and ended else ended or message
        if cause is not None and cause.kind != "dropped":
            message = joined(" ", [describe_cause(cause), message])
        return self.answer(slot, outcome, reason, message, run.id)

    def _without_run(self, slot: datetime) -> SlotExplanation:
        schedule = self.schedule
        if slot < schedule.created_at:
            message = _(
                "The schedule did not exist yet; it was created on {at}.",
                at=self._local(schedule.created_at),
            )
            return self.answer(slot, SlotOutcome.NOT_DUE, "not_created", message)
        if not self._enabled_at(slot):
            return self._paused(slot)
        window = find_window(self.maintenance, schedule.namespace, slot)
        if slot > self.now:
            if window is not None:
                message = _("Planned, but maintenance is on: it will be skipped.")
                return self.answer(slot, SlotOutcome.PENDING, Reason.MAINTENANCE, message)
            if schedule.next_slot is None or slot < schedule.next_slot:
                message = _("Will not run: the schedule has no run planned for it.")
                return self.answer(slot, SlotOutcome.NOT_DUE, "not_planned", message)
            return self.answer(slot, SlotOutcome.PENDING, "planned", _("Planned."))
        if schedule.next_slot is not None and schedule.next_slot <= slot:
            if window is not None:
                message = _("Due during maintenance: it will be recorded as skipped.")
                return self.answer(slot, SlotOutcome.PENDING, Reason.MAINTENANCE, message)
            message = _("Due, but no node has fired it yet. Check that a node is running.")
            return self.answer(slot, SlotOutcome.PENDING, "not_fired", message)
        if schedule.purged_until is not None and slot <= schedule.purged_until:
            message = _("Its run was deleted by retention, so the fire log has no answer.")
            return self.answer(slot, SlotOutcome.NOT_DUE, "pruned", message)
        if self._was_rescheduled(slot):
            message = _("No run: the slot was replaced when the next run was rescheduled.")
            return self.answer(slot, SlotOutcome.NOT_DUE, "rescheduled", message)
        if schedule.next_slot is None and schedule.last_error and schedule.enabled:
            message = _("The schedule was stopped by an error: {error}", error=schedule.last_error)
            return self.answer(slot, SlotOutcome.NOT_DUE, "stopped", message)
        message = _("The fire log has no entry for this slot.")
        return self.answer(slot, SlotOutcome.NOT_DUE, "no_entry", message)

    def _was_rescheduled(self, slot: datetime) -> bool:
        """Whether the latest reschedule before the slot moved the cursor past it."""
        earlier = [each for each in self.changes if each.at <= slot and each.verb == "reschedule"]
        pair = before_and_after(earlier[-1].changes.get("next_slot")) if earlier else None
        return pair is not None and slot < parse_moment(str(pair[1]))

    def _paused(self, slot: datetime) -> SlotExplanation:
        switched = [each for each in self.changes if each.at <= slot and _disables(each)]
        if not switched:
            message: str = _("The schedule was paused.")
            return self.answer(slot, SlotOutcome.PAUSED, Reason.PAUSED, message)
        last = switched[-1]
        if last.verb == "delete":
            message = _("The schedule was deleted on {at}.", at=self._local(last.at))
            return self.answer(slot, SlotOutcome.NOT_DUE, Reason.SCHEDULE_DELETED, message)
        values = {"user": last.actor, "at": self._local(last.at)}
        if last.reason:
            message = _("Paused by {user} on {at}: {note}", note=last.reason, **values)
        else:
            message = _("Paused by {user} on {at}.", **values)
        return self.answer(slot, SlotOutcome.PAUSED, Reason.PAUSED, message)

    def _enabled_at(self, slot: datetime) -> bool:
        """The first later change of `enabled` has the value before it."""
        for change in self.changes:
            pair = before_and_after(change.changes.get("enabled"))
            if change.at > slot and pair is not None and pair[0] is not None:
                return pair[0] is True
        return self.schedule.enabled and self.schedule.deleted_at is None

    def _local(self, moment: datetime) -> str:
        return self.schedule.trigger.local(moment).isoformat(timespec="seconds")

    def answer(
        self,
        slot: datetime,
        outcome: SlotOutcome,
        reason: str,
        message: str,
        run_id: RunId | None = None,
    ) -> SlotExplanation:
        return SlotExplanation(
            schedule_id=self.schedule.id,
            slot=slot,
            outcome=outcome,
            reason=reason,
            message=message,
            run_id=run_id,
        )


def trigger_at(schedule: Schedule, changes: Sequence[AuditEntry], at: datetime) -> Trigger:
    """The trigger that was current then: the first later change has the one before it. `changes`
    are oldest first."""
    for change in changes:
        pair = before_and_after(change.changes.get("trigger"))
        if change.at > at and pair is not None and pair[0] is not None:
            with suppress(InvalidInput):
                return trigger_from_dict(pair[0])
    return schedule.trigger


def _slots_between(
    schedule: Schedule, changes: Sequence[AuditEntry], since: datetime, until: datetime
) -> tuple[datetime, ...]:
    """Raises InvalidInput if there are more than MAX_SLOTS."""
    edited = [each.at for each in changes if "trigger" in each.changes and since < each.at < until]
    found: list[datetime] = []
    for begin, end in pairwise([since, *edited, until]):
        trigger = trigger_at(schedule, changes, begin)
        slot = trigger.next_after(begin - MICROSECOND)
        while slot is not None and slot < end:
            found.append(slot)
            if len(found) > MAX_SLOTS:
                raise _too_many_slots()
            slot = trigger.next_after(slot)
    return tuple(found)


def _too_many_slots() -> InvalidInput:
    return InvalidInput(
        _("that day has more than {most} slots; ask for one time with `at`", most=MAX_SLOTS),
        field="date",
        code="too_many",
        source="query",
    )


def _disables(change: AuditEntry) -> bool:
    return change.verb == "delete" or is_pause(change)
