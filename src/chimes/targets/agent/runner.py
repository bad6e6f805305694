"""Executes AI prompts."""

from __future__ import annotations

from chimes.i18n import _, counted, joined
from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.agent.chat import ask_model
from chimes.targets.agent.pipeline import cancel_pipeline, run_pipeline
from chimes.targets.agent.service import (
    AgentConfig,
    AgentRequest,
    Exchange,
)
from chimes.targets.base import Call, TargetError
from chimes.targets.remote import RemoteExecutor

#: Prompts in flight per node, in their own pool: models are slow and few serve many at a time.
PERMITS = 16


class AgentPrompt:
    kind = "agent"
    resumable = False
    permits = PERMITS
    capabilities = frozenset({"agent"})

    def __init__(self, config: AgentConfig, *, user_agent: str) -> None:
        self._config = config
        self._exchange = Exchange(user_agent=user_agent)
        self._executor = RemoteExecutor()

    async def open(self) -> None:
        await self._exchange.open()

    async def close(self) -> None:
        await self._executor.close()
        await self._exchange.close()

    async def execute(self, call: Call) -> Outcome:
        attempt = AgentAttempt(call, self._config, self._exchange)
        outcome = await self._executor.execute(attempt)
        _log_end(attempt, outcome)
        return outcome


class AgentAttempt(AgentRequest):
    """One attempt of a prompt in the configured pipeline."""

    def __init__(self, call: Call, config: AgentConfig, exchange: Exchange) -> None:
        super().__init__(call, config)
        self._exchange = exchange

    @property
    def accepted(self) -> bool:
        return self.answer.begun

    @property
    def cancelable(self) -> bool:
        return bool(self.answer.pipeline_run_id)

    def result(self) -> dict[str, object]:
        return self.answer.result()

    async def execute(self) -> None:
        match self.config.pipeline:
            case "openai":
                await ask_model(self._exchange, self)
            case "runs":
                await run_pipeline(self._exchange, self)
            case other:
                raise TargetError("unknown_pipeline", _("unknown pipeline {name!r}", name=other))

    async def cancel(self) -> None:
        await cancel_pipeline(self._exchange, self)


def _log_end(request: AgentRequest, outcome: Outcome) -> None:
    answer = request.answer
    took = request.clock() - request.began
    if outcome.end is not AttemptEnd.SUCCEEDED:
        request.log(
            "error", _("{error} (after {seconds:.1f} seconds)", error=outcome.error, seconds=took)
        )
    facts: list[str] = [counted("{count} byte", "{count} bytes", answer.size)]
    if answer.truncated:
        facts.append(_("cut"))
    if answer.model:
        facts.append(_("model {name}", name=answer.model))
    if (usage := answer.usage) is not None:
        facts.append(
            _(
                "{total} tokens ({asked} in, {answered} out)",
                total=usage["total_tokens"],
                asked=usage["prompt_tokens"],
                answered=usage["completion_tokens"],
            )
        )
    if answer.cost is not None:
        facts.append(_("cost {cost:g}", cost=answer.cost))
    if outcome.end is AttemptEnd.SUCCEEDED or answer.begun:
        request.log(
            "info",
            _("answer: {told}, in {seconds:.1f} s", told=joined(", ", facts), seconds=took),
        )
