"""The pipeline `runs`: creates a run in a remote service and follows it to its end.

The run id is the Idempotency-Key and the remote id is stored at once, so there is one remote run
however often an attempt is lost.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from urllib.parse import quote

from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.checkpoint import (
    MAX_PIPELINE_ID_LENGTH,
    AgentCheckpoint,
    PipelineEnd,
    callback_url,
    decode_agent_checkpoint,
    pipeline_end,
)
from chimes.targets.agent.service import (
    LONGEST_NAME,
    AgentRequest,
    Exchange,
    clean,
    error_text,
    parsed,
    short,
)
from chimes.targets.base import State, TargetError
from chimes.targets.remote import PollDelay
from chimes.triggers import format_moment

PATH = "/runs"
WHO = _("the run pipeline")
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.5, 5.0, 1.5
#: Seconds between two checks for a callback.
HEARING = 0.5
_TOKEN_BYTES = 32
_UNDER_WAY = frozenset(
    {"", "queued", "pending", "created", "accepted", "scheduled", "submitted", "waiting"}
    | {"running", "started", "in_progress", "processing"}
)


async def run_there(exchange: Exchange, request: AgentRequest) -> None:
    """Fills the answer; TargetError if there is none."""
    state = request.call.state
    kept = decode_agent_checkpoint(await state.read() if state is not None else None)
    if kept.pipeline_run_id:
        found: Mapping[str, object] = {"status": ""}
        request.log("info", _("going on with run {id} of the pipeline", id=kept.pipeline_run_id))
    else:
        kept, found = await _begun(exchange, request, kept)
    request.answer.pipeline_run_id = kept.pipeline_run_id
    await _followed(exchange, request, kept, found)


async def cancel_there(exchange: Exchange, request: AgentRequest) -> None:
    """Best effort."""
    path = f"{PATH}/{quote(request.answer.pipeline_run_id, safe='')}/cancel"
    async with exchange.ask(
        request.config, "POST", path, who=WHO, now=request.now(), body={}
    ) as response:
        response.close()


async def _begun(
    exchange: Exchange, request: AgentRequest, kept: AgentCheckpoint
) -> tuple[AgentCheckpoint, Mapping[str, object]]:
    state, run = request.call.state, request.call.run
    if request.config.callback_url and state is not None and not kept.token:
        # Stored before sending: another attempt must send the same token.
        kept = replace(kept, token=secrets.token_urlsafe(_TOKEN_BYTES))
        await _keep(state, kept)
    found = await exchange.document(
        request.config,
        "POST",
        PATH,
        who=WHO,
        now=request.now(),
        body=_request(request, kept),
        headers={"Accept": "application/json", "Idempotency-Key": run.id},
    )
    given = found.get("run_id") or found.get("id")
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise TargetError(
            "bad_answer", _("{who} did not say which run it made", who=WHO), retryable=True
        )
    kept = replace(kept, pipeline_run_id=str(given))
    if len(kept.pipeline_run_id) > MAX_PIPELINE_ID_LENGTH or clean(str(given)) != str(given):
        raise TargetError("bad_answer", _("{who} gave an id that cannot be used", who=WHO))
    if state is not None:
        await _keep(state, kept)
    request.log("info", _("handed over: run {id} of the pipeline", id=kept.pipeline_run_id))
    return kept, found


async def _keep(state: State, kept: AgentCheckpoint) -> None:
    """Another node holds the run and follows the same remote run, so it is not canceled."""
    if not await state.keep(kept.to_text()):
        raise TargetError("lost", _("the run belongs to another node by now"))


def _request(request: AgentRequest, kept: AgentCheckpoint) -> dict[str, object]:
    """The same for every attempt: a pipeline may compare bodies with one key."""
    run, config = request.call.run, request.config
    body: dict[str, object] = {
        "prompt": request.target.prompt,
        "schedule_id": run.schedule_id,
        "run_id": run.id,
        "owner": str(run.owner),
        "metadata": {
            "schedule_name": run.schedule_name,
            "namespace": run.namespace,
            "origin": run.origin.value,
            "slot": format_moment(run.slot or run.planned_at),
        },
    }
    if config.model:
        body["model"] = config.model
    if config.max_tokens:
        body["max_tokens"] = config.max_tokens
    if kept.token:
        body["callback_url"] = callback_url(config.callback_url, run.id, kept.token)
    return body


async def _followed(
    exchange: Exchange, request: AgentRequest, kept: AgentCheckpoint, found: Mapping[str, object]
) -> None:
    """Polls and waits for a callback until the remote run ends."""
    path = f"{PATH}/{quote(kept.pipeline_run_id, safe='')}"
    delay = PollDelay(seconds=FIRST_PAUSE, longest=LONGEST_PAUSE, growth=GROWTH)
    seen = ""
    while not _taken(found, request):
        status = short(found.get("status"), 50)
        if status != seen:
            seen = status
            known = status.lower() in _UNDER_WAY
            request.log(
                "info" if known else "warning", _("the pipeline says: {status}", status=status)
            )
        heard = await _heard(request, kept, delay.next())
        if heard is not None:
            found = heard
            continue
        try:
            found = await exchange.document(
                request.config,
                "GET",
                path,
                who=WHO,
                now=request.now(),
                headers={"Accept": "application/json"},
            )
        except TargetError as error:
            if error.status in (404, 410):
                raise TargetError(
                    "run_not_found",
                    _(
                        "{who} no longer knows run {id}",
                        who=WHO,
                        id=kept.pipeline_run_id,
                    ),
                ) from None
            if not error.retryable:
                raise
            # The remote run continues; poll again until the deadline.
            request.log("warning", error.text)
            if error.retry_after is not None:
                delay.seconds = min(error.retry_after.total_seconds(), LONGEST_PAUSE)
            found = {"status": seen}


async def _heard(
    request: AgentRequest, kept: AgentCheckpoint, pause: float
) -> Mapping[str, object] | None:
    """The callback result if it arrives within `pause`."""
    state = request.call.state
    if not kept.token or state is None:
        await asyncio.sleep(pause)
        return None
    until = request.clock() + pause
    while True:
        said = await state.heard()
        if said is not None:
            return parsed(said, who=WHO)
        left = until - request.clock()
        if left <= 0:
            return None
        await asyncio.sleep(min(left, HEARING))


def _taken(found: Mapping[str, object], request: AgentRequest) -> bool:
    """False while the remote run has not ended."""
    status = short(found.get("status"), 50)
    end = pipeline_end(status)
    if end is None:
        return False
    answer = request.answer
    answer.finish_reason = status
    answer.model = short(found.get("model"), LONGEST_NAME) or answer.model
    answer.add(_output(found.get("output")))
    answer.add_usage(found.get("usage"))
    answer.add_cost(found.get("cost"))
    if left_out := answer.add_artifacts(found.get("artifacts")):
        request.log(
            "warning",
            counted("{count} artifact is left out", "{count} artifacts are left out", left_out),
        )
    why = error_text(found.get("error"))
    if end is PipelineEnd.CANCELED:
        raise TargetError(
            "pipeline_canceled",
            _("canceled in the pipeline: {why}", why=why) if why else _("canceled in the pipeline"),
        )
    if end is PipelineEnd.FAILED:
        raise TargetError("pipeline_failed", why or _("the pipeline says: {status}", status=status))
    return True


def _output(given: object) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        for name in ("text", "content", "output"):
            if isinstance(given.get(name), str):
                return str(given[name])
    return json.dumps(given, ensure_ascii=False)
