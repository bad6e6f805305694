"""Answers of agents can be answered: another run of the same agent, which is told what was said
before (UX A.7). It is a run like any that somebody asks for: owner, quotas and audit as usual."""

from __future__ import annotations

from dataclasses import replace

from chimes.delivery.message import output_of
from chimes.errors import Conflict, InvalidInput, NotAllowed
from chimes.model.access import Actor
from chimes.model.ids import InboxId, RunId
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Run
from chimes.model.target import AgentTarget
from chimes.service.orders import Order
from chimes.service.prompts import run_id_for
from chimes.service.schedules import ScheduleService
from chimes.wording import in_language, say

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
            say("this run is not one of an agent that has answered"), code="nothing_to_reply_to"
        )
    text = text.strip()
    if not text:
        raise InvalidInput(say("write what the agent is to be told"), field="text", code="missing")
    if len(text) > LONGEST_REPLY:
        raise InvalidInput(
            say("at most {most} characters", most=LONGEST_REPLY), field="text", code="too_long"
        )
    return await schedules.start(actor, replied(run, text, language), run_id=run_id)


def replied(run: Run, text: str, language: str) -> Order:
    """The same agent, model and limits; the prompt and its answer before what is said now."""
    assert isinstance(run.target, AgentTarget)
    answer = output_of(run)[0].strip() or run.error
    parts = [
        in_language(say("Earlier I asked you:"), language),
        _end_of(run.target.prompt),
        in_language(say("You answered:"), language),
        _end_of(answer),
        in_language(say("Now I reply:"), language),
        text,
    ]
    return Order(
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
