"""The pipeline `runs`: a run is made there, and asked for until it has ended (R1.10).

Handed over under the id of our run as Idempotency-Key, and its own id is kept at once: however
often an attempt is lost, there is one run over there (R1.32).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from chimes.i18n import _, counted
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
    Exchange,
    Handing,
    Trouble,
    clean,
    error_text,
    parsed,
    short,
)
from chimes.targets.base import State
from chimes.triggers import format_moment

PATH = "/runs"
WHO = _("the run pipeline")
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.5, 5.0, 1.5
#: Seconds between two looks for a callback.
HEARING = 0.5
_TOKEN_BYTES = 32
_UNDER_WAY = frozenset(
    {"", "queued", "pending", "created", "accepted", "scheduled", "submitted", "waiting"}
    | {"running", "started", "in_progress", "processing"}
)


async def run_there(exchange: Exchange, handing: Handing) -> None:
    """Fills the answer; Trouble if there is none."""
    state = handing.call.state
    kept = decode_agent_checkpoint(await state.read() if state is not None else None)
    if kept.pipeline_run_id:
        found: Mapping[str, object] = {"status": ""}
        handing.log("info", _("going on with run {id} of the pipeline", id=kept.pipeline_run_id))
    else:
        kept, found = await _begun(exchange, handing, kept)
    handing.answer.pipeline_run_id = kept.pipeline_run_id
    await _followed(exchange, handing, kept, found)


async def cancel_there(exchange: Exchange, handing: Handing) -> None:
    """As far as the pipeline can."""
    path = f"{PATH}/{quote(handing.answer.pipeline_run_id, safe='')}/cancel"
    async with exchange.ask(
        handing.config, "POST", path, who=WHO, now=handing.now(), body={}
    ) as response:
        response.close()


async def _begun(
    exchange: Exchange, handing: Handing, kept: AgentCheckpoint
) -> tuple[AgentCheckpoint, Mapping[str, object]]:
    state, run = handing.call.state, handing.call.run
    if handing.config.callback_url and state is not None and not kept.token:
        # Kept before it is sent: another attempt has to send the very same.
        kept = replace(kept, token=secrets.token_urlsafe(_TOKEN_BYTES))
        await _keep(state, kept)
    found = await exchange.document(
        handing.config,
        "POST",
        PATH,
        who=WHO,
        now=handing.now(),
        body=_request(handing, kept),
        headers={"Accept": "application/json", "Idempotency-Key": run.id},
    )
    given = found.get("run_id") or found.get("id")
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise Trouble(
            "bad_answer", _("{who} did not say which run it made", who=WHO), retryable=True
        )
    kept = replace(kept, pipeline_run_id=str(given))
    if len(kept.pipeline_run_id) > MAX_PIPELINE_ID_LENGTH or clean(str(given)) != str(given):
        raise Trouble("bad_answer", _("{who} gave an id that cannot be used", who=WHO))
    if state is not None:
        await _keep(state, kept)
    handing.log("info", _("handed over: run {id} of the pipeline", id=kept.pipeline_run_id))
    return kept, found


async def _keep(state: State, kept: AgentCheckpoint) -> None:
    """The run over there is the new holder's, by the same key: nothing is said about it there, and
    the store takes no verdict of this attempt."""
    if not await state.keep(kept.to_text()):
        raise Trouble("lost", _("the run belongs to another node by now"))


def _request(handing: Handing, kept: AgentCheckpoint) -> dict[str, object]:
    """The same for every attempt: a pipeline may compare what comes under one key."""
    run, config = handing.call.run, handing.config
    body: dict[str, object] = {
        "prompt": handing.target.prompt,
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
    exchange: Exchange, handing: Handing, kept: AgentCheckpoint, found: Mapping[str, object]
) -> None:
    """Until the pipeline says how it ended, asked or unasked, whichever comes first."""
    path = f"{PATH}/{quote(kept.pipeline_run_id, safe='')}"
    pause, seen = FIRST_PAUSE, ""
    while not _taken(found, handing):
        status = short(found.get("status"), 50)
        if status != seen:
            seen = status
            known = status.lower() in _UNDER_WAY
            handing.log(
                "info" if known else "warning", _("the pipeline says: {status}", status=status)
            )
        heard = await _heard(handing, kept, pause)
        pause = min(pause * GROWTH, LONGEST_PAUSE)
        if heard is not None:
            found = heard
            continue
        try:
            found = await exchange.document(
                handing.config,
                "GET",
                path,
                who=WHO,
                now=handing.now(),
                headers={"Accept": "application/json"},
            )
        except Trouble as trouble:
            if trouble.status in (404, 410):
                raise Trouble(
                    "run_not_found",
                    _(
                        "{who} no longer knows run {id}",
                        who=WHO,
                        id=kept.pipeline_run_id,
                    ),
                ) from None
            if not trouble.retryable:
                raise
            # The run over there goes on: asking again costs nothing, and the deadline holds.
            handing.log("warning", trouble.text)
            if trouble.retry_after is not None:
                pause = min(trouble.retry_after.total_seconds(), LONGEST_PAUSE)
            found = {"status": seen}


async def _heard(handing: Handing, kept: AgentCheckpoint, pause: float) -> Mapping[str, object] | None:
    """What the pipeline says by itself within `pause`."""
    state = handing.call.state
    if not kept.token or state is None:
        await asyncio.sleep(pause)
        return None
    until = handing.clock() + pause
    while True:
        said = await state.heard()
        if said is not None:
            return parsed(said, who=WHO)
        left = until - handing.clock()
        if left <= 0:
            return None
        await asyncio.sleep(min(left, HEARING))


def _taken(found: Mapping[str, object], handing: Handing) -> bool:
    """False: it has not ended."""
    status = short(found.get("status"), 50)
    end = pipeline_end(status)
    if end is None:
        return False
    answer = handing.answer
    answer.finish_reason = status
    answer.model = short(found.get("model"), LONGEST_NAME) or answer.model
    answer.add(_output(found.get("output")))
    answer.add_usage(found.get("usage"))
    answer.add_cost(found.get("cost"))
    if left_out := answer.add_artifacts(found.get("artifacts")):
        handing.log(
            "warning",
            counted("{count} artifact is left out", "{count} artifacts are left out", left_out),
        )
    why = error_text(found.get("error"))
    if end is PipelineEnd.CANCELED:
        raise Trouble(
            "pipeline_canceled",
            _("canceled in the pipeline: {why}", why=why) if why else _("canceled in the pipeline"),
        )
    if end is PipelineEnd.FAILED:
        raise Trouble("pipeline_failed", why or _("the pipeline says: {status}", status=status))
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
