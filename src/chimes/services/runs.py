"""What can be done with runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _, in_language
from chimes.model.access import Actor
from chimes.model.ids import InboxId, RunId
from chimes.model.listing import Page, RunQuery
from chimes.model.planning import retry_run
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import LogEntry, Reason, Run
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import AgentTarget, SyncTarget
from chimes.notifications.message import output_of
from chimes.services.access import NO_RUN_LIMITS, RunLimits, RunQuotas
from chimes.services.audit import entry
from chimes.services.prompts import run_id_for
from chimes.services.run_requests import RunRequest
from chimes.services.schedules import ScheduleService, refuse_agents
from chimes.store.port import Store


class RunService:
    def __init__(
        self, store: Store, *, limits: Callable[[], RunLimits] = lambda: NO_RUN_LIMITS
    ) -> None:
        self._store = store
        self._quotas = RunQuotas(store, limits)

    async def get(self, actor: Actor, run_id: RunId) -> Run:
        run = await self._store.get_run(run_id)
        if run is None or not actor.may_see(run.owner):
            raise NotFound(_("run {id} not found", id=run_id))
        return run

    async def find(self, actor: Actor, query: RunQuery) -> Page[Run]:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.list_runs(query)

    async def logs(
        self, actor: Actor, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        await self.get(actor, run_id)
        return await self._store.read_logs(run_id, after=after, limit=limit)

    async def cancel(self, actor: Actor, run_id: RunId) -> Run:
        """A run that has ended stays as it is: one verdict (I4)."""
        run = await self._operable(actor, run_id)
        if run.status.terminal:
            raise Conflict(
                _("the run has ended already: {status}", status=run.status), code="ended"
            )
        now = await self._store.now()
        note = entry(actor, "cancel", "run", run.id, at=now, owner=run.owner)
        canceled = await self._store.cancel_run(run.id, Reason.CANCELED_BY_HAND, note)
        if canceled is None:
            raise NotFound(_("run {id} not found", id=run_id))
        return canceled

    async def retry(
        self, actor: Actor, run_id: RunId, *, new_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """A new run, origin manual, that names the old one. With `new_id` this can be asked for
        again: the run that has the id is the answer. False: of a pair that is busy it is the task
        that is under way (R4.18), and nothing was added."""
        run = await self._operable(actor, run_id)
        if not run.status.terminal:
            raise Conflict(
                _("the run has not ended yet: {status}", status=run.status), code="not_ended"
            )
        refuse_agents(actor, run.target)
        await self._quotas.check(actor, run.owner)
        now = await self._store.now()
        again = retry_run(run, now)
        if new_id is not None:
            again = replace(again, id=new_id)
        note = entry(
            actor, "retry", "run", run.id, at=now, owner=run.owner, changes={"run_id": again.id}
        )
        if not isinstance(again.target, SyncTarget):
            return (await self._store.add_runs([again], note))[0], True
        again = replace(again, priority=NOW_CLASS)
        found, created = await self._store.add_unless_active(again, note)
        return found, created or found.id == again.id

    async def _operable(self, actor: Actor, run_id: RunId) -> Run:
        run = await self.get(actor, run_id)
        if not actor.may_operate(run.owner):
            raise NotAllowed()
        return run


# @@ Answers of agents can be answered: another run of the same agent, which is told what was said
# before (UX A.7). It is a run like any that somebody asks for: owner, quotas and audit as usual.

#: Of each thing that was said before, in bytes: the end of it counts. Two of them and the longest
#: reply (4 bytes a character) are less than a prompt may have (`MAX_PROMPT_BYTES`).
LONGEST_BEFORE = 22_000
LONGEST_REPLY = 4_000


def may_reply(actor: Actor, run: Run) -> bool:
    """An agent answers nobody: what multiplies itself has no end (F67, S75)."""
    prompted = isinstance(run.target, AgentTarget) and run.status.terminal
    return prompted and actor.may_create(run.owner) and not actor.is_agent


def reply_id(about: InboxId, request: str) -> RunId:
    """Of the run that a request to answer a message makes."""
    return run_id_for(f"reply:{about}:{request}")


async def reply(
    schedules: ScheduleService,
    actor: Actor,
    run: Run,
    text: str,
    *,
    run_id: RunId | None,
    language: str,
) -> Run:
    """The new run; its answer comes to the inbox of the owner. With the same `run_id` it is the
    same run, however often it is sent. Conflict: there is no agent that has answered."""
    if not actor.may_create(run.owner) or actor.is_agent:
        raise NotAllowed()
    if not may_reply(actor, run):
        raise Conflict(
            _("this run is not one of an agent that has answered"), code="nothing_to_reply_to"
        )
    text = text.strip()
    if not text:
        raise InvalidInput(_("write what the agent is to be told"), field="text", code="missing")
    if len(text) > LONGEST_REPLY:
        raise InvalidInput(
            _("at most {most} characters", most=LONGEST_REPLY), field="text", code="too_long"
        )
    return await schedules.start(actor, replied(run, text, language), run_id=run_id)


def replied(run: Run, text: str, language: str) -> RunRequest:
    """The same agent, model and limits; the prompt and its answer before what is said now."""
    assert isinstance(run.target, AgentTarget)
    answer = output_of(run)[0].strip() or run.error
    parts = [
        in_language(_("Earlier I asked you:"), language),
        _end_of(run.target.prompt),
        in_language(_("You answered:"), language),
        _end_of(answer),
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


def _end_of(text: str) -> str:
    """Whole characters only."""
    return text.encode(errors="replace")[-LONGEST_BEFORE:].decode(errors="ignore")
