"""Targets and recipients as the native API answers them, for its documentation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from chimes.doors.api.out import Out
from chimes.model.recipient import Channel, Occasion
from chimes.model.telling_times import Period


class HttpTargetOut(Out):
    kind: Literal["http"]
    url: str
    method: str
    headers: dict[str, str]
    body: str
    expected_status: list[int]
    signing_secrets: list[Literal["***"]]
    verify_tls: bool


class TaskTargetOut(Out):
    kind: Literal["task"]
    name: str
    args: dict[str, object]


class FlowTargetOut(Out):
    kind: Literal["flow"]
    name: str
    input: dict[str, object]


class SyncTargetOut(Out):
    kind: Literal["sync"]
    source: str
    collection: str


class AgentTargetOut(Out):
    kind: Literal["agent"]
    prompt: str
    pipeline: str = Field(description="`openai` or `runs`; empty: as configured.")
    model: str = Field(description="Empty: as configured.")
    max_tokens: int | None


class AccountOut(Out):
    id: str
    type: str


class ActionTargetOut(Out):
    kind: Literal["action"]
    action_type_id: str
    kn_id: str
    branch: str
    identities: list[dict[str, object]]
    params: dict[str, object]
    account: AccountOut = Field(description="On whose behalf the action is executed.")


class MessageTargetOut(Out):
    kind: Literal["message"]
    text: str = Field(description="Markdown.")


TargetOut = Annotated[
    HttpTargetOut
    | TaskTargetOut
    | FlowTargetOut
    | SyncTargetOut
    | AgentTargetOut
    | ActionTargetOut
    | MessageTargetOut,
    Field(discriminator="kind"),
]


class QuietOut(Out):
    start: str = Field(alias="from")
    end: str = Field(alias="to")
    zone: str
    but: list[Occasion] = Field(alias="except")


class DigestOut(Out):
    every: Period
    at: str
    on: str
    zone: str
    but: list[Occasion] = Field(alias="except")


class RecipientOut(Out):
    channel: Channel
    to: str
    on: list[Occasion]
    language: str = Field(description="Empty: as the owner likes it.")
    signing_secrets: list[Literal["***"]]
    late_after: str
    quiet: QuietOut | None
    digest: DigestOut | None
