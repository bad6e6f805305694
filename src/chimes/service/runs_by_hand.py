"""Runs that somebody asks for: now, without a schedule, or for slots that have passed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.errors import InvalidInput, NotAllowed
from chimes.model.access import Actor
from chimes.model.ids import RunId, ScheduleId, manual_run_id
from chimes.model.payload import payload_name, same_but_payload
from chimes.model.planning import backfill_run, manual_run
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.source import NOW as NOW_CLASS
from chimes.model.target import SyncTarget, Target
from chimes.service.audit import entry, masked
from chimes.service.orders import Order, completed, order_shown, ordered_run
from chimes.service.recipients import check_chats, zoned
from chimes.service.schedule_changes import ScheduleChanges, refuse_agents
from chimes.service.slots import AS_THE_SCHEDULE, Backfill, Pace, check_pace, paced, past_slots
from chimes.store.codec.schedule import target_to_plain
from chimes.wording import say

#: Characters of a payload in the audit.
_LONGEST_SHOWN = 2000


class RunsByHand(ScheduleChanges):
    async def start(self, actor: Actor, order: Order, *, run_id: RunId | None = None) -> Run:
        """`asked_for`, without saying whether the run is a new one."""
        return (await self.asked_for(actor, order, run_id=run_id))[0]

    async def asked_for(
        self, actor: Actor, order: Order, *, run_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """A run without a schedule. With `run_id` the same order can be given again: the run that
        has the id is the answer. False: of a pair that is busy it is the task that is under way
        (R4.18), and nothing was added."""
        owner = order.owner or actor.owner
        if not actor.may_create(owner):
            raise NotAllowed()
        self._target_allowed(actor, order.target, None)
        self._check_recipients(order.policy.delivery)
        await check_chats(self._store, actor, order.policy.delivery)
        order = replace(order, policy=zoned(order.policy, self._default_timezone))
        order = completed(order, await self.defaults_of(order.target))
        await self._look()
        await self._run_quotas.check(actor, owner)
        now = await self._store.now()
        run = ordered_run(order, owner, run_id or manual_run_id(now), now)
        note = entry(actor, "start", "run", run.id, at=now, owner=owner, changes=order_shown(order))
        return await self._add(run, note)

    async def run_now(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
    ) -> Run:
        """`run_asked_for`, without saying whether the run is a new one."""
        return (
            await self.run_asked_for(actor, schedule_id, beside_others=beside_others, run_id=run_id)
        )[0]

    async def run_asked_for(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
        delay: timedelta = timedelta(0),
        target: Target | None = None,
    ) -> tuple[Run, bool]:
        """C7: allowed while paused; nothing about the schedule changes. `run_id` and the answer as
        in `asked_for`; a task is never `beside_others` of its pair. `delay`: it begins so much
        later, and until then stands in no slot's way; not a task, which would keep its pair busy
        (R4.18). `target`: the schedule's own with another payload, for whoever may give orders."""
        schedule = await self.get(actor, schedule_id)
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        if target is not None and target != schedule.target:
            self._check_payload(actor, schedule, target)
            schedule = replace(schedule, target=target)
            changed = _shown_payload(target)
        else:
            changed = {}
        refuse_agents(actor, schedule.target)
        await self._look()
        await self._run_quotas.check(actor, schedule.owner)
        now = await self._store.now()
        is_task = isinstance(schedule.target, SyncTarget)
        run = manual_run(schedule, now, beside_others=beside_others and not is_task)
        if is_task:
            run = replace(run, priority=NOW_CLASS)
        elif delay:
            begins = now + delay
            run = replace(run, planned_at=begins, available_at=begins, concurrency_key=None)
        if run_id is not None:
            run = replace(run, id=run_id)
        note = entry(
            actor,
            "run",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"run_id": run.id, **changed},
        )
        return await self._add(run, note)

    def _check_payload(self, actor: Actor, schedule: Schedule, target: Target) -> None:
        if not actor.may_create(schedule.owner):
            raise NotAllowed()
        if not same_but_payload(target, schedule.target):
            raise InvalidInput(
                say("a run can have other parameters than its schedule, but not another target"),
                field="target",
                code="other_target",
            )
        self._target_allowed(actor, target, schedule.target)

    async def backfill(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        start: datetime,
        end: datetime,
        *,
        dry_run: bool = False,
        pace: Pace = AS_THE_SCHEDULE,
    ) -> Backfill:
        """Runs for the past slots of a range (both ends included) that were not carried out."""
        check_pace(pace)
        schedule = await self.get(actor, schedule_id)
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        refuse_agents(actor, schedule.target)
        if isinstance(schedule.target, SyncTarget):
            raise InvalidInput(
                say("a sync task is not bound to a slot, so there is nothing to fill; run it now"),
                code="not_slot_bound",
            )
        now = await self._store.now()
        slots = past_slots(schedule, start, min(end, now))
        taken = await self._store.slots_taken(schedule.id, slots)
        made_up_for = (RunStatus.MISSED, RunStatus.SKIPPED)
        open_slots = tuple(
            slot for slot in slots if slot not in taken or taken[slot].status in made_up_for
        )
        if dry_run or not open_slots:
            return Backfill(slots=open_slots, runs=())
        await self._look()
        await self._run_quotas.check(actor, schedule.owner, count=len(open_slots))
        group = f"backfill:{manual_run_id(now)}"
        runs = [
            paced(backfill_run(schedule, slot, taken.get(slot), now), pace, group)
            for slot in open_slots
        ]
        note = entry(
            actor,
            "backfill",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"slots": len(runs), "overlap": pace.overlap.value}
            | ({"concurrency": pace.concurrency} if pace.concurrency else {}),
        )
        return Backfill(slots=open_slots, runs=await self._store.add_runs(runs, note))


def _shown_payload(target: Target) -> dict[str, object]:
    """For the audit: without secrets, and no longer than an entry should be."""
    name = payload_name(target)
    shown = masked(target_to_plain(target)).get(name)
    if len(json.dumps(shown, ensure_ascii=False)) > _LONGEST_SHOWN:
        shown = "…"
    return {name: shown}
