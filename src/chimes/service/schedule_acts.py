"""What is done to a schedule, as a value: to one of them, or to many in few transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import ChimesError, InvalidInput, NotAllowed, StoreError
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.schedule import Schedule, deleted, edited, paused, resumed, with_overdue
from chimes.service.recipients import check_chats, zoned
from chimes.service.rules import checked, checked_text, clean_name
from chimes.service.runs_by_hand import RunsByHand
from chimes.service.schedule_changes import HOLD_BACK, refuse_agents
from chimes.service.targets import offered_as, turned_to, usual_defaults, without_key_of
from chimes.store.edits import ScheduleEdit
from chimes.wording import say


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    #: Its word in the audit.
    verb: str
    apply: Callable[[Schedule, datetime], Schedule]
    #: Whether whoever may operate a schedule may do it, or only whoever may write it.
    operates: bool = False
    reason: str = ""


def as_it_is(schedule: Schedule) -> Schedule:
    return schedule


def pausing(
    actor: Actor,
    *,
    note: str = "",
    until: datetime | None = None,
    also: Callable[[Schedule], Schedule] = as_it_is,
) -> Act:
    checked_text(note, "note")

    def apply(before: Schedule, now: datetime) -> Schedule:
        if until is not None and until <= now:
            raise InvalidInput(say("until lies in the past"), field="until", code="in_the_past")
        if not before.enabled and (before.pause_note, before.pause_until) == (note, until):
            return _noted(before, now, actor.name, also)
        return also(paused(before, now, actor.name, note=note, until=until))

    return Act(verb="pause", apply=apply, operates=True, reason=note)


def resuming(actor: Actor, *, also: Callable[[Schedule], Schedule] = as_it_is) -> Act:
    def apply(before: Schedule, now: datetime) -> Schedule:
        if before.enabled:
            return _noted(before, now, actor.name, also)
        return also(resumed(before, now, actor.name))

    return Act(verb="resume", apply=apply, operates=True)


def deleting(actor: Actor) -> Act:
    return Act(verb="delete", apply=lambda before, now: deleted(before, now, actor.name))


def _noted(
    before: Schedule, now: datetime, by: str, also: Callable[[Schedule], Schedule]
) -> Schedule:
    """It is as it is wanted already: nothing changes but what a door keeps of it, if anything."""
    same = edited(before, before, now, by)
    noted = also(same)
    return before if noted == same else noted


class ScheduleActs(RunsByHand):
    async def act_on_each(
        self,
        actor: Actor,
        seen: Sequence[Schedule],
        act: Callable[[Schedule], Awaitable[Act]],
    ) -> list[Schedule | ChimesError]:
        """Each as if it were alone: how it is then, or why it was refused, in their order. They go
        into the store together, and one by one only if one of them is refused there. StoreError
        is raised: nothing of these was done, or each can be done again."""
        await self._look()
        now = await self._store.now()
        answers: dict[ScheduleId, Schedule | ChimesError] = {}
        acts: dict[ScheduleId, Act] = {}
        together: list[ScheduleEdit] = []
        for each in seen:
            try:
                wanted = await act(each)
                self._check_may(actor, each, wanted)
            except StoreError:
                raise
            except ChimesError as error:
                answers[each.id] = error
                continue
            acts[each.id] = wanted
            if not self._counted_again(each, wanted):
                together.append(
                    self._edit(actor, each, wanted.verb, wanted.apply, now, reason=wanted.reason)
                )
        if together:
            ids = [edit.schedule_id for edit in together]
            try:
                changed = await self._once_fired(
                    ids, lambda: self._store.change_schedules(together)
                )
            except StoreError:
                raise
            except ChimesError:
                # Nothing was done. Alone, each of them says for itself whether it can be.
                pass
            else:
                answers |= {each.id: each for each in changed}
        for schedule_id, wanted in acts.items():
            if schedule_id not in answers:
                answers[schedule_id] = await self._alone(actor, schedule_id, wanted)
        return [answers[each.id] for each in seen]

    async def done_between(
        self,
        actor: Actor,
        verb: str,
        since: datetime,
        until: datetime,
        *,
        before: int | None = None,
        limit: int,
    ) -> tuple[list[ScheduleId], int | None]:
        """To which schedules this actor did this between two moments, newest first, without those
        that it left as they were; and the number of the entry before which to go on, if any."""
        notes = await self._store.list_audit(
            AuditQuery(
                actor=actor.name,
                door=actor.door,
                verb=verb,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )
        )
        found = [
            ScheduleId(note.object_id)
            for note in notes
            if note.allowed and note.object_kind == "schedule" and _switched(note)
        ]
        return list(dict.fromkeys(found)), notes[-1].number if len(notes) == limit else None

    async def _alone(
        self, actor: Actor, schedule_id: ScheduleId, act: Act
    ) -> Schedule | ChimesError:
        try:
            return await self._acted(actor, schedule_id, act)
        except StoreError:
            raise
        except ChimesError as error:
            return error

    async def _acted(
        self, actor: Actor, schedule_id: ScheduleId, act: Act, *, version: int | None = None
    ) -> Schedule:
        return await self._change(
            actor,
            schedule_id,
            act.verb,
            act.apply,
            may=actor.may_operate if act.operates else actor.may_write,
            version=version,
            reason=act.reason,
        )

    def _check_may(self, actor: Actor, seen: Schedule, act: Act) -> None:
        if not (actor.may_operate if act.operates else actor.may_write)(seen.owner):
            raise NotAllowed()
        if act.verb not in HOLD_BACK:
            refuse_agents(actor, seen.target)

    def _counted_again(self, seen: Schedule, act: Act) -> bool:
        """Whether it may count against a quota afterwards and does not now: one transaction for
        many does not look at quotas. One that is there counts against those of all already."""
        return act.verb not in HOLD_BACK and any(
            quota.active and quota.namespace in (None, seen.namespace)
            for quota in self._limits().quotas(seen.owner)
        )

    async def editing(
        self,
        actor: Actor,
        seen: Schedule,
        edit: Callable[[Schedule], Schedule],
        *,
        said: Collection[str] | None = None,
        overdue: bool = False,
    ) -> Act:
        """Another definition, as `change` of the service tells."""
        wanted = edit(seen)
        turned = await self._turned(seen, wanted, said)
        zone = await self.zone_for(seen.owner, wanted.trigger)

        def apply(before: Schedule, now: datetime) -> Schedule:
            after = without_key_of(before, turned(edit(before)))
            if after == before:
                return before
            after = checked(after)
            if after.target != before.target:
                self._target_allowed(actor, after.target, before.target)
            if after.policy.delivery != before.policy.delivery:
                self._check_recipients(after.policy.delivery)
                after = replace(after, policy=zoned(after.policy, zone, after.trigger))
            if after.trigger != before.trigger:
                trigger = self._settled_trigger(after.trigger, before.trigger, now, zone)
                after = replace(after, trigger=trigger)
                if after == before:
                    return before
                if trigger != before.trigger:
                    self._check_trigger(actor, before.owner, trigger, now, overdue=overdue)
            if after.enabled and not before.enabled:
                after = replace(after, pause_note="", pause_until=None)
            changed = edited(before, after, now, actor.name)
            fresh = overdue and after.trigger != before.trigger
            return with_overdue(changed, now) if fresh else changed

        await check_chats(self._store, actor, wanted.policy.delivery, seen.policy.delivery)
        await self._check_name(replace(wanted, name=clean_name(wanted.name)), seen)
        await self._check_dependency(actor, wanted)
        return Act(verb=_verb_of(seen, wanted), apply=apply)

    async def _turned(
        self, seen: Schedule, wanted: Schedule, said: Collection[str] | None
    ) -> Callable[[Schedule], Schedule]:
        """What another target than that of `seen` brings along."""
        target = seen.target
        if offered_as(wanted.target) == offered_as(target):
            return lambda after: after
        defaults = await self.defaults_of(wanted.target)
        if said is None or (defaults is None and wanted.target.kind != target.kind):
            return lambda after: after
        before = await self._defaults_before(target)
        found = defaults or usual_defaults(wanted.target)
        return lambda after: (
            turned_to(after, target, before, found, said)
            if offered_as(after.target) == offered_as(wanted.target)
            else after
        )


def _verb_of(before: Schedule, after: Schedule) -> str:
    """A change that is nothing but a switch has the word of the switch (R1.15)."""
    if before.enabled == after.enabled or replace(after, enabled=before.enabled) != before:
        return "update"
    return "resume" if after.enabled else "pause"


def _switched(note: AuditEntry) -> bool:
    return note.verb == "delete" or "enabled" in note.changes
