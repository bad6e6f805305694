"""Manual runs: run a schedule now, backfill past slots, start a run without a schedule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.errors import Conflict, InvalidInput, NotAllowed
from chimes.i18n import _, in_language
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import InboxId, RunId, ScheduleId, manual_run_id
from chimes.model.planning import backfill_run, manual_run
from chimes.model.policy import PRIORITY, Overlap
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Run, RunStatus, backfill_key, own_key
from chimes.model.schedule import Schedule
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import AgentTarget, SyncTarget, Target, payload_name, same_but_payload
from chimes.notifications.message import output_of
from chimes.redaction import mask_secrets
from chimes.services.runs import RunRequest, audit_details, build_run, traced, with_defaults
from chimes.services.schedules.prompts import run_id_for
from chimes.services.schedules.rules import (
    ScheduleRules,
    check_chats,
    refuse_agents,
    with_default_zones,
)
from chimes.services.secrets import names_used
from chimes.store.codec.values import target_to_plain
from chimes.store.port import Store

BACKFILL_LIMIT = 1000
#: Overlap policies of a backfill. Skipping or canceling other runs would defeat its purpose.
BACKFILL_OVERLAPS = (Overlap.QUEUE, Overlap.ALLOW)
#: Characters of a payload in an audit entry.
_MAX_AUDITED_PAYLOAD = 2000
#: Bytes of the prompt and of the answer that a reply repeats, from the end. Both together with the
#: longest reply (4 bytes a character) fit into `MAX_PROMPT_BYTES`.
MAX_QUOTED_BYTES = 22_000
MAX_REPLY_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How many runs of a backfill execute at once, and how they relate to other runs."""

    #: None: the limit of the schedule; without limit if they do not share its concurrency key.
    concurrency: int | None = None
    #: `queue`: share the concurrency limit of the schedule; `allow`: independent of it.
    overlap: Overlap = Overlap.QUEUE


SCHEDULE_PACE = Pace()


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfill:
    #: The slots of the range that have no completed run.
    slots: tuple[datetime, ...]
    #: The runs added for them; empty in a dry run.
    runs: tuple[Run, ...]


class ManualRuns:
    def __init__(self, store: Store, rules: ScheduleRules) -> None:
        self._store = store
        self._rules = rules

    async def start(self, actor: Actor, request: RunRequest, *, run_id: RunId | None = None) -> Run:
        """`start_or_get` without the information whether the run is new."""
        return (await self.start_or_get(actor, request, run_id=run_id))[0]

    async def start_or_get(
        self, actor: Actor, request: RunRequest, *, run_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """Adds a run without a schedule, and returns it with whether it was accepted.

        With `run_id` the request is idempotent: an existing run with the id is returned as
        accepted. False: the pair of a sync target already has an active run; that run is returned
        and nothing was added.
        """
        owner = request.owner or actor.owner
        if not actor.may_create(owner):
            raise NotAllowed()
        rules = self._rules
        rules.check_target_allowed(actor, request.target, None)
        rules.check_recipients(request.policy.delivery)
        await rules.check_secrets(actor, owner, request.target, request.policy.delivery)
        await rules.limits.check_names(owner, request.policy.limits)
        await check_chats(self._store, actor, request.policy.delivery)
        request = replace(
            request, policy=with_default_zones(request.policy, rules.default_timezone)
        )
        explicit = request.explicit_fields
        if explicit is None or PRIORITY in explicit:
            rules.check_priority_allowed(actor, owner, request.priority, request.target)
        request = with_defaults(request, await rules.get_run_defaults(request.target))
        await rules.refresh_limits()
        await rules.run_quotas.check(actor, owner)
        now = await self._store.now()
        run = build_run(request, owner, run_id or manual_run_id(now), now)
        details = audit_details(request)
        audit = entry(actor, "start", "run", run.id, at=now, owner=owner, changes=details)
        return await self._add(run, audit)

    async def run_now(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
    ) -> Run:
        """`run_now_or_get` without the information whether the run is new."""
        run, _accepted = await self.run_now_or_get(
            actor, schedule_id, beside_others=beside_others, run_id=run_id
        )
        return run

    async def run_now_or_get(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
        delay: timedelta = timedelta(0),
        target: Target | None = None,
    ) -> tuple[Run, bool]:
        """Adds a run of a schedule, also a paused one, and leaves the schedule unchanged.

        `run_id` and the result as in `start_or_get`. `beside_others` ignores the concurrency
        limit, except for sync targets. `delay`: the run becomes available that much later and
        until then does not count against the limit; ignored for sync targets, whose pair would
        stay locked. `target`: the schedule's target with another payload.
        """
        schedule = await self._rules.get_schedule(actor, schedule_id)
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        payload: dict[str, object] = {}
        if target is not None and target != schedule.target:
            self._check_payload(actor, schedule, target)
            await self._rules.check_secrets(actor, schedule.owner, target, (), names_used(schedule))
            schedule = replace(schedule, target=target)
            payload = _audited_payload(target)
        refuse_agents(actor, schedule.target)
        await self._rules.refresh_limits()
        await self._rules.run_quotas.check(actor, schedule.owner)
        now = await self._store.now()
        is_sync = isinstance(schedule.target, SyncTarget)
        run = manual_run(schedule, now, beside_others=beside_others and not is_sync)
        if is_sync:
            run = replace(run, priority=NOW_CLASS)
        elif delay:
            begins = now + delay
            run = replace(run, planned_at=begins, available_at=begins, concurrency_key=None)
        if run_id is not None:
            run = replace(run, id=run_id)
        audit = entry(
            actor,
            "run",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"run_id": run.id, **payload},
        )
        return await self._add(run, audit)

    async def backfill(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        start: datetime,
        end: datetime,
        *,
        dry_run: bool = False,
        pace: Pace = SCHEDULE_PACE,
    ) -> Backfill:
        """Adds runs for the past slots from `start` to `end` inclusive that were missed, skipped
        or never recorded."""
        check_pace(pace)
        schedule = await self._rules.get_schedule(actor, schedule_id)
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        refuse_agents(actor, schedule.target)
        if isinstance(schedule.target, SyncTarget):
            raise InvalidInput(
                _("a sync task has no slots to backfill; run it now instead"),
                code="not_slot_bound",
            )
        now = await self._store.now()
        slots = past_slots(schedule, start, min(end, now))
        recorded = await self._store.find_slot_runs(schedule.id, slots)
        not_executed = (RunStatus.MISSED, RunStatus.SKIPPED)
        open_slots = tuple(
            slot for slot in slots if slot not in recorded or recorded[slot].status in not_executed
        )
        if dry_run or not open_slots:
            return Backfill(slots=open_slots, runs=())
        await self._rules.refresh_limits()
        await self._rules.run_quotas.check(actor, schedule.owner, count=len(open_slots))
        group = backfill_key(manual_run_id(now))
        runs = [
            paced(backfill_run(schedule, slot, recorded.get(slot), now), pace, group)
            for slot in open_slots
        ]
        runs = [traced(run) for run in runs]
        audit = entry(
            actor,
            "backfill",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"slots": len(runs), "overlap": pace.overlap.value}
            | ({"concurrency": pace.concurrency} if pace.concurrency else {}),
        )
        return Backfill(slots=open_slots, runs=await self._store.add_runs(runs, audit))

    async def reply(
        self, actor: Actor, run: Run, text: str, *, run_id: RunId | None, language: str
    ) -> Run:
        """Replies to the answer of an agent: a new run of the same agent with the conversation as
        prompt. Its answer goes to the owner's inbox. Idempotent by `run_id`.

        Raises Conflict if the run is not an ended run of an agent.
        """
        if not actor.may_create(run.owner) or actor.is_agent:
            raise NotAllowed()
        if not may_reply(actor, run):
            raise Conflict(
                _("only an ended run of an agent can be replied to"), code="nothing_to_reply_to"
            )
        text = text.strip()
        if not text:
            raise InvalidInput(_("a reply needs a text"), field="text", code="missing")
        if len(text) > MAX_REPLY_CHARACTERS:
            raise InvalidInput(
                _("at most {most} characters", most=MAX_REPLY_CHARACTERS),
                field="text",
                code="too_long",
            )
        return await self.start(actor, reply_request(run, text, language), run_id=run_id)

    def _check_payload(self, actor: Actor, schedule: Schedule, target: Target) -> None:
        if not actor.may_create(schedule.owner):
            raise NotAllowed()
        if not same_but_payload(target, schedule.target):
            raise InvalidInput(
                _("a manual run can change the parameters of its schedule, but not the target"),
                field="target",
                code="other_target",
            )
        self._rules.check_target_allowed(actor, target, schedule.target)

    async def _add(self, run: Run, audit: AuditEntry) -> tuple[Run, bool]:
        """False: not added; the active run of the same pair is returned."""
        run = traced(run)
        if isinstance(run.target, SyncTarget):
            stored, created = await self._store.add_unless_active(run, audit)
            return stored, created or stored.id == run.id
        return (await self._store.add_runs([run], audit))[0], True


def _audited_payload(target: Target) -> dict[str, object]:
    """Without secrets, and cut to the size of an audit entry."""
    name = payload_name(target)
    payload = mask_secrets(target_to_plain(target)).get(name)
    if len(json.dumps(payload, ensure_ascii=False)) > _MAX_AUDITED_PAYLOAD:
        payload = "…"
    return {name: payload}


# --- backfill -------------------------------------------------------------------------------------
def check_pace(pace: Pace) -> None:
    if pace.overlap not in BACKFILL_OVERLAPS:
        raise InvalidInput(
            _(
                "overlap of a backfill must be queue or allow, not {overlap}",
                overlap=pace.overlap.value,
            ),
            field="overlap",
            code="not_for_backfill",
        )
    if pace.concurrency is not None and not 1 <= pace.concurrency <= BACKFILL_LIMIT:
        raise InvalidInput(
            _("between {least} and {most}", least=1, most=BACKFILL_LIMIT),
            field="concurrency",
            code="out_of_range",
        )


def paced(run: Run, pace: Pace, group: str) -> Run:
    """The run with the concurrency key and limit of its backfill. `group`: a key of this backfill
    alone."""
    independent = pace.overlap is Overlap.ALLOW or run.concurrency_key is None
    if pace.concurrency is None:
        return replace(run, concurrency_key=None) if independent else run
    if independent:
        return replace(run, concurrency_key=group, concurrency_limit=pace.concurrency)
    # A backfill must not raise a limit that other schedules share.
    shared = run.concurrency_key != own_key(run.schedule_id)
    limit = min(pace.concurrency, run.concurrency_limit) if shared else pace.concurrency
    return replace(run, concurrency_limit=limit)


def past_slots(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    """The slots from `start` to `end` inclusive whose runs are not purged by retention."""
    if schedule.purged_until is not None:
        start = max(start, schedule.purged_until + timedelta(microseconds=1))
    slots: list[datetime] = []
    slot = schedule.trigger.next_after(start - timedelta(microseconds=1))
    while slot is not None and slot <= end:
        if len(slots) == BACKFILL_LIMIT:
            raise InvalidInput(
                _(
                    "the range has more than {most} slots; choose a shorter one",
                    most=BACKFILL_LIMIT,
                ),
                field="to",
                code="too_many",
            )
        slots.append(slot)
        slot = schedule.trigger.next_after(slot)
    return slots


# --- replies to agents ----------------------------------------------------------------------------
def may_reply(actor: Actor, run: Run) -> bool:
    """An agent may not reply to agents: that could recurse without end."""
    answered = isinstance(run.target, AgentTarget) and run.status.terminal
    return answered and actor.may_create(run.owner) and not actor.is_agent


def reply_id(about: InboxId, request: str) -> RunId:
    """The id of the run that a reply to an inbox message starts."""
    return run_id_for(f"reply:{about}:{request}")


def reply_request(run: Run, text: str, language: str) -> RunRequest:
    """The same agent and policy; the prompt repeats the earlier prompt and its answer."""
    assert isinstance(run.target, AgentTarget)
    answer = output_of(run)[0].strip() or run.error
    parts = [
        in_language(_("Earlier I asked you:"), language),
        _last_bytes(run.target.prompt),
        in_language(_("You answered:"), language),
        _last_bytes(answer),
        in_language(_("Now I reply:"), language),
        text,
    ]
    return RunRequest(
        target=replace(run.target, prompt="\n\n".join(part for part in parts if part)),
        policy=replace(run.policy, delivery=(Recipient(channel=Channel.INBOX),)),
        name=run.schedule_name,
        namespace=run.namespace,
        owner=run.owner,
        priority=run.priority,
    )


def _last_bytes(text: str) -> str:
    """The end of a text, cut between characters."""
    return text.encode(errors="replace")[-MAX_QUOTED_BYTES:].decode(errors="ignore")
