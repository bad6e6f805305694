"""Callback by which an agent pipeline reports the end of a run. It authenticates with the token of
the run instead of a key."""

from __future__ import annotations

import hmac
import json
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import InvalidInput, NotFound, StaleVersion
from chimes.i18n import _
from chimes.model.checkpoint import (
    CALLBACK_PATH,
    agent_callback_name,
    agent_checkpoint_name,
    decode_agent_checkpoint,
    pipeline_end,
)
from chimes.model.ids import RunId
from chimes.web.api.responses import BODY_ERRORS, COMMON_ERRORS, NOT_FOUND
from chimes.web.api.route import Context
from chimes.web.api.schemas import OMITTED, without_defaults
from chimes.web.requests import read_json

router = APIRouter(prefix=CALLBACK_PATH, tags=["agent"], responses=COMMON_ERRORS)


class PipelineArtifact(BaseModel):
    """A file that the pipeline made; other members are ignored."""

    model_config = ConfigDict(extra="allow", json_schema_extra=without_defaults)

    name: str = OMITTED
    url: str = OMITTED


class PipelineEnd(BaseModel):
    """The end of a run, as `GET /runs/{id}` of the pipeline responds; other members are ignored."""

    model_config = ConfigDict(extra="allow", json_schema_extra=without_defaults)

    status: str = Field(examples=["completed", "failed", "canceled"])
    output: JsonValue = OMITTED
    artifacts: list[PipelineArtifact] = OMITTED
    error: JsonValue = Field(default=OMITTED, description="Text, or an object with a message.")


@router.post(
    "/{run_id}",
    status_code=204,
    responses=NOT_FOUND | BODY_ERRORS,
    openapi_extra={
        "security": [],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/PipelineEnd"}}
            },
        },
    },
)
async def report_pipeline_end(
    request: Request, run_id: str, context: Context, token: Annotated[str, Query()] = ""
) -> Response:
    """Report the end of a run in the pipeline. The first end counts; other statuses are ignored."""
    run = RunId(run_id)
    if "\0" in run_id:
        raise NotFound()
    checkpoint = await context.store.get_checkpoint(agent_checkpoint_name(run))
    expected = decode_agent_checkpoint(checkpoint.value if checkpoint else None).token
    # Always compared, so that the response time does not reveal whether the run exists.
    right = hmac.compare_digest(token.encode(errors="replace"), expected.encode())
    if not right or not expected:
        raise NotFound(_("no run with this id expects a callback"))
    found = await read_json(request)
    if not isinstance(found, dict) or not isinstance(found.get("status"), str):
        raise InvalidInput(_("the status is missing"), field="status", code="missing")
    if pipeline_end(found["status"]):
        with suppress(StaleVersion):
            await context.store.set_checkpoint(
                agent_callback_name(run), json.dumps(found, ensure_ascii=False), expected=0
            )
    return Response(status_code=204)
