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
SERVICE = _("the run pipeline")
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.5, 5.0, 1.5
#: Seconds between two checks for a callback.
CALLBACK_POLL_SECONDS = 0.5
_TOKEN_BYTES = 32
_ACTIVE_STATUSES = frozenset(
    {"", "queued", "pending", "created", "accepted", "scheduled", "submitted", "waiting"}
    | {"running", "started", "in_progress", "processing"}
)


async def run_pipeline(exchange: Exchange, request: AgentRequest) -> None:
    """Creates the remote run, or resumes the one of an earlier attempt, and fills the answer.

    Raises TargetError if there is none."""
    state = request.call.state
    checkpoint = decode_agent_checkpoint(await state.read() if state is not None else None)
    if checkpoint.pipeline_run_id:
        document: Mapping[str, object] = {"status": ""}
        request.log(
            "info", _("going on with run {id} of the pipeline", id=checkpoint.pipeline_run_id)
        )
    else:
        checkpoint, document = await _create_run(exchange, request, checkpoint)
    request.answer.pipeline_run_id = checkpoint.pipeline_run_id
    await _follow_run(exchange, request, checkpoint, document)


async def cancel_pipeline(exchange: Exchange, request: AgentRequest) -> None:
    """Requests cancellation of the remote run; best effort."""
    path = f"{PATH}/{quote(request.answer.pipeline_run_id, safe='')}/cancel"
    async with exchange.send(
        request.config, "POST", path, who=SERVICE, now=request.now(), body={}
    ) as response:
        response.close()


async def _create_run(
    exchange: Exchange, request: AgentRequest, checkpoint: AgentCheckpoint
) -> tuple[AgentCheckpoint, Mapping[str, object]]:
    state, run = request.call.state, request.call.run
    if request.config.callback_url and state is not None and not checkpoint.token:
        # Stored before sending: another attempt must send the same token.
        checkpoint = replace(checkpoint, token=secrets.token_urlsafe(_TOKEN_BYTES))
        await _save_checkpoint(state, checkpoint)
    document = await exchange.fetch_document(
        request.config,
        "POST",
        PATH,
        who=SERVICE,
        now=request.now(),
        body=_request(request, checkpoint),
        headers={"Accept": "application/json", "Idempotency-Key": run.id},
    )
    remote_id = document.get("run_id") or document.get("id")
    if not isinstance(remote_id, str | int) or isinstance(remote_id, bool):
        raise TargetError(
            "bad_answer", _("{who} did not say which run it made", who=SERVICE), retryable=True
        )
    checkpoint = replace(checkpoint, pipeline_run_id=str(remote_id))
    if len(checkpoint.pipeline_run_id) > MAX_PIPELINE_ID_LENGTH or clean(str(remote_id)) != str(
        remote_id
    ):
        raise TargetError("bad_answer", _("{who} gave an id that cannot be used", who=SERVICE))
    if state is not None:
        await _save_checkpoint(state, checkpoint)
    request.log("info", _("handed over: run {id} of the pipeline", id=checkpoint.pipeline_run_id))
    return checkpoint, document


async def _save_checkpoint(state: State, checkpoint: AgentCheckpoint) -> None:
    """Raises TargetError if another node has claimed the run. That node follows the same remote
    run, so the remote run is not canceled."""
    if not await state.save(checkpoint.to_text()):
        raise TargetError("lost", _("the run belongs to another node by now"))


def _request(request: AgentRequest, checkpoint: AgentCheckpoint) -> dict[str, object]:
    """The body of the request. The same for every attempt, because a pipeline may compare the
    bodies of one Idempotency-Key."""
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
    if checkpoint.token:
        body["callback_url"] = callback_url(config.callback_url, run.id, checkpoint.token)
    return body


async def _follow_run(
    exchange: Exchange,
    request: AgentRequest,
    checkpoint: AgentCheckpoint,
    document: Mapping[str, object],
) -> None:
    """Polls and waits for a callback until the remote run ends."""
    path = f"{PATH}/{quote(checkpoint.pipeline_run_id, safe='')}"
    delay = PollDelay(seconds=FIRST_PAUSE, longest=LONGEST_PAUSE, growth=GROWTH)
    seen = ""
    while not _read_result(document, request):
        status = short(document.get("status"), 50)
        if status != seen:
            seen = status
            known = status.lower() in _ACTIVE_STATUSES
            request.log(
                "info" if known else "warning", _("the pipeline says: {status}", status=status)
            )
        callback = await _wait_for_callback(request, checkpoint, delay.next())
        if callback is not None:
            document = callback
            continue
        try:
            document = await exchange.fetch_document(
                request.config,
                "GET",
                path,
                who=SERVICE,
                now=request.now(),
                headers={"Accept": "application/json"},
            )
        except TargetError as error:
            if error.status in (404, 410):
                raise TargetError(
                    "run_not_found",
                    _(
                        "{who} no longer knows run {id}",
                        who=SERVICE,
                        id=checkpoint.pipeline_run_id,
                    ),
                ) from None
            if not error.retryable:
                raise
            # The remote run continues; poll again until the deadline.
            request.log("warning", error.text)
            if error.retry_after is not None:
                delay.seconds = min(error.retry_after.total_seconds(), LONGEST_PAUSE)
            document = {"status": seen}


async def _wait_for_callback(
    request: AgentRequest, checkpoint: AgentCheckpoint, pause: float
) -> Mapping[str, object] | None:
    """The callback result if it arrives within `pause`."""
    state = request.call.state
    if not checkpoint.token or state is None:
        await asyncio.sleep(pause)
        return None
    until = request.clock() + pause
    while True:
        callback = await state.read_callback()
        if callback is not None:
            return parsed(callback, who=SERVICE)
        left = until - request.clock()
        if left <= 0:
            return None
        await asyncio.sleep(min(left, CALLBACK_POLL_SECONDS))


def _read_result(document: Mapping[str, object], request: AgentRequest) -> bool:
    """Fills the answer from an ended remote run; False while it has not ended. Raises TargetError
    if it failed or was canceled."""
    status = short(document.get("status"), 50)
    end = pipeline_end(status)
    if end is None:
        return False
    answer = request.answer
    answer.finish_reason = status
    answer.model = short(document.get("model"), LONGEST_NAME) or answer.model
    answer.add(_output(document.get("output")))
    answer.add_usage(document.get("usage"))
    answer.add_cost(document.get("cost"))
    if left_out := answer.add_artifacts(document.get("artifacts")):
        request.log(
            "warning",
            counted("{count} artifact is left out", "{count} artifacts are left out", left_out),
        )
    why = error_text(document.get("error"))
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
