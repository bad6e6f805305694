"""Carries out one attempt of a prompt."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from chimes.i18n import _, counted, joined
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import AgentTarget
from chimes.redaction import Redactor
from chimes.targets.agent.chat import ask_model
from chimes.targets.agent.pipeline import cancel_there, run_there
from chimes.targets.agent.service import (
    AgentConfig,
    Answer,
    Exchange,
    Handing,
    Trouble,
    for_target,
    outcome_of,
)
from chimes.targets.base import Call
from chimes.targets.http.runner import outcome_of_timeout

#: Prompts that a node has in hand at once, apart from what it does otherwise: models are slow, and
#: few answer many at a time.
PLACES = 16
#: Seconds for telling a pipeline that nobody waits any more.
FAREWELL = 5.0


class AgentPrompt:
    kind = "agent"
    resumable = False
    places = PLACES
    offers = frozenset({"agent"})

    def __init__(self, config: AgentConfig, *, user_agent: str) -> None:
        self._config = config
        self._exchange = Exchange(user_agent=user_agent)
        self._farewells: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._exchange.open()

    async def close(self) -> None:
        if self._farewells:
            await asyncio.wait(tuple(self._farewells))
        await self._exchange.close()

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, AgentTarget), "a runner is only given runs of its own kind"
        config = for_target(self._config, target)
        clock = asyncio.get_running_loop().time
        handing = Handing(
            call=call,
            target=target,
            config=config,
            answer=Answer(config),
            redactor=Redactor(config.secrets),
            clock=clock,
            began=clock(),
        )
        outcome = await self._outcome(handing)
        _tell_end(handing, outcome)
        return outcome

    async def _outcome(self, handing: Handing) -> Outcome:
        answer, policy = handing.answer, handing.call.run.policy
        try:
            async with asyncio.timeout(policy.timeout.total_seconds()):
                await self._carry_out(handing)
        except Trouble as trouble:
            return outcome_of(trouble, answer.result(), handing.redactor)
        except TimeoutError:
            # What is being answered would only be asked, and paid for, once more.
            self._say_goodbye(handing)
            outcome = outcome_of_timeout(policy.timeout, answer.result())
            return replace(outcome, retryable=not answer.begun)
        except asyncio.CancelledError:
            # Otherwise another node goes on with the run over there.
            if handing.call.canceled():
                self._say_goodbye(handing)
            raise
        return Outcome(end=AttemptEnd.SUCCEEDED, result=answer.result())

    async def _carry_out(self, handing: Handing) -> None:
        match handing.config.pipeline:
            case "openai":
                await ask_model(self._exchange, handing)
            case "runs":
                await run_there(self._exchange, handing)
            case other:
                raise Trouble("unknown_pipeline", _("there is no pipeline {name!r}", name=other))

    def _say_goodbye(self, handing: Handing) -> None:
        if not handing.answer.pipeline_run_id:
            return
        task = asyncio.create_task(self._goodbye(handing))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _goodbye(self, handing: Handing) -> None:
        with contextlib.suppress(Trouble, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await cancel_there(self._exchange, handing)


def _tell_end(handing: Handing, outcome: Outcome) -> None:
    answer = handing.answer
    took = handing.clock() - handing.began
    if outcome.end is not AttemptEnd.SUCCEEDED:
        handing.log(
            "error", _("{error} (after {seconds:.1f} seconds)", error=outcome.error, seconds=took)
        )
    told: list[str] = [counted("{count} byte", "{count} bytes", answer.size)]
    if answer.truncated:
        told.append(_("cut"))
    if answer.model:
        told.append(_("model {name}", name=answer.model))
    if (usage := answer.usage) is not None:
        told.append(
            _(
                "{total} tokens ({asked} in, {answered} out)",
                total=usage["total_tokens"],
                asked=usage["prompt_tokens"],
                answered=usage["completion_tokens"],
            )
        )
    if answer.cost is not None:
        told.append(_("cost {cost:g}", cost=answer.cost))
    if outcome.end is AttemptEnd.SUCCEEDED or answer.begun:
        handing.log(
            "info",
            _("answer: {told}, in {seconds:.1f} s", told=joined(", ", told), seconds=took),
        )
