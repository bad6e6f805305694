"""Response models of the native API, for its documentation; tests check responses against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from chimes.model.access import OwnerType, Role, Scope
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap
from chimes.model.recipient import Channel, NotifyOn, Period
from chimes.model.run import AttemptEnd, Origin, RunStatus
from chimes.web.api.schemas import TRIGGER_SCHEMA


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


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
    pipeline: str = Field(description="`openai` or `runs`; empty for the configured one.")
    model: str = Field(description="Empty for the configured one.")
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
    account: AccountOut = Field(description="The account that the action is executed for.")


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
    but: list[NotifyOn] = Field(alias="except")


class DigestOut(Out):
    every: Period
    at: str
    on: str
    zone: str
    but: list[NotifyOn] = Field(alias="except")


class RecipientOut(Out):
    channel: Channel
    to: str
    on: list[NotifyOn]
    language: str = Field(description="Empty for the language of the owner.")
    signing_secrets: list[Literal["***"]]
    late_after: str
    quiet: QuietOut | None
    digest: DigestOut | None


Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Duration = Annotated[str, WithJsonSchema({"type": "string", "format": "duration"})]
TriggerOut = Annotated[dict[str, object], WithJsonSchema(TRIGGER_SCHEMA)]
#: Responses of a route in the documentation.
Responses = dict[int | str, dict[str, Any]]


class FieldProblem(Out):
    pointer: str | None = Field(default=None, description="JSON pointer into the body.")
    parameter: str | None = Field(default=None, description="Name of a query parameter.")
    header: str | None = None
    detail: str
    code: str
    hint: str | None = None


class Clarification(Out):
    missing: list[str] = Field(
        description="time, date, past, ambiguous, contradiction, residue, interval, unit"
    )
    message: str
    examples: list[str]


class ProblemOut(Out):
    """RFC 9457."""

    type: str = Field(examples=["urn:chimes:problem:invalid_input"])
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FieldProblem] = Field(default_factory=list)
    clarification: Clarification | None = Field(
        default=None, description="For an ambiguous sentence: what is missing."
    )
    quota: str | None = Field(default=None, description="The exceeded quota.")
    limit: int | None = None


class OwnerOut(Out):
    type: OwnerType
    id: str


class PolicyOut(Out):
    misfire: Misfire
    misfire_grace: Duration
    catch_up_limit: int
    overlap: Overlap
    max_concurrent_runs: int | None
    burst_allowed: bool
    concurrency_key: str | None
    max_retries: int
    retry_backoff: Duration
    backoff: Backoff
    backoff_cap: Duration
    timeout: Duration
    on_lost: OnLost
    pause_on_gone: bool


class PauseOut(Out):
    note: str
    until: Moment | None


class DependencyOut(Out):
    schedule_id: str
    within: Duration


class DeclaredOut(Out):
    """The code that declares a schedule."""

    at: str = Field(description="File and line, for example shop/tasks.py:12.")
    detached: bool = Field(
        description="It was edited elsewhere, so that the code no longer overwrites it."
    )


class ScheduleOut(Out):
    id: str
    namespace: str
    name: str
    owner: OwnerOut
    trigger: TriggerOut
    timezone: str
    words: str
    target: TargetOut
    policy: PolicyOut
    priority: int
    labels: dict[str, str | None] | list[str]
    enabled: bool
    pause: PauseOut | None
    depends_on: DependencyOut | None
    delivery: list[RecipientOut]
    next_run_at: Moment | None
    next_slot: Moment | None
    last_slot: Moment | None = Field(
        description="The latest slot that was fired, skipped or missed."
    )
    last_run_at: Moment | None
    last_enqueued_at: Moment | None
    last_status: RunStatus | None
    last_error: str
    fired_count: int
    version: int
    created_at: Moment
    created_by: str
    updated_at: Moment
    updated_by: str
    declared: DeclaredOut | None


class SchedulePage(Out):
    items: list[ScheduleOut]
    next_cursor: str | None


class AttemptOut(Out):
    number: int
    fence: int
    node: str
    started_at: Moment
    finished_at: Moment
    duration_ms: float
    end: AttemptEnd
    error: str


class RunOut(Out):
    id: str
    schedule_id: str | None
    schedule_name: str
    namespace: str
    owner: OwnerOut
    slot: Moment | None
    origin: Origin
    status: RunStatus
    attempt: int
    fence: int
    priority: int
    planned_at: Moment
    created_at: Moment
    available_at: Moment
    claimed_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    duration_ms: float | None
    lag_ms: float | None
    node: str | None
    blocked: bool
    cancel_requested: bool
    result: dict[str, object] | None
    error: str
    reason: str
    missed_count: int
    missed_until: Moment | None
    retry_of: str | None
    parent_id: str | None
    step: str
    target: TargetOut
    attempts: list[AttemptOut]


class RunPage(Out):
    items: list[RunOut]
    next_cursor: str | None


class LogOut(Out):
    number: int
    at: Moment
    level: str
    message: str


class LogPage(Out):
    items: list[LogOut]
    next_after: int | None = Field(
        description="Value of `after` for the next page; null on the last page."
    )


class BackfillOut(Out):
    slots: list[Moment]
    runs: list[RunOut]


class FireOut(Out):
    at: Moment
    local: Moment
    note: str | None = None
    words: str | None = Field(default=None, description="The note in words.")


class PreviewOut(Out):
    fires: list[FireOut]
    words: str
    warnings: list[str]
    timezone: str


class TemplateOut(Out):
    id: str = Field(description="Stable id; name and description are translated.")
    name: str
    description: str
    cron_spec: str | None = Field(description="Null if the trigger is not cron.")
    trigger: TriggerOut
    timezone: str
    words: str = Field(description="The trigger in words.")
    example: str = Field(description="A sentence for `POST /api/v1/parse` with the same meaning.")
    target: dict[str, object] | None = Field(description="Null for a template of a trigger only.")
    delivery: list[dict[str, object]] = Field(description="Recipients.")
    next_fires: list[Moment]


class TemplatePage(Out):
    items: list[TemplateOut]


class ExplainOut(Out):
    words: str
    warnings: list[str]
    timezone: str
    trigger: TriggerOut


class UpcomingOut(Out):
    schedule_id: str
    name: str
    at: Moment
    local: Moment
    timezone: str
    owner: OwnerOut


class UpcomingPage(Out):
    items: list[UpcomingOut]


class NodeOut(Out):
    id: str
    version: str
    roles: list[str]
    capacity: int
    started_at: Moment
    heartbeat_at: Moment
    lease_until: Moment
    alive: bool
    state: str = Field(description="alive, draining, drained, gone")
    drain: bool = Field(description="Whether draining was requested.")
    running: int | None = Field(
        description="Runs in flight; null if the node does not report its load."
    )
    sending: int | None = Field(description="Notifications being sent.")
    claims_per_minute: float | None
    memory_bytes: int | None
    queues: list[str] | None = Field(description="Queues that it claims from; empty for all.")
    clock_offset_seconds: float = Field(
        description="Difference of its clock to that of the store at its last heartbeat."
    )
    offers: list[str] = Field(
        description="Capabilities: http, agent, task:NAME, flow:NAME, sync:SOURCE."
    )


class NodePage(Out):
    items: list[NodeOut]


class AuditOut(Out):
    number: int
    at: Moment
    actor: str
    interface: str
    verb: str
    object_kind: str
    object_id: str
    owner: str
    changes: dict[str, object]
    reason: str
    address: str
    allowed: bool
    previous_hash: str
    prev_hash: str = Field(description="Same as `previous_hash`.")
    hash: str


class AuditPage(Out):
    items: list[AuditOut]
    next_before: int | None


class AuditVerification(Out):
    ok: bool
    checked: int
    first_bad: int | None = Field(
        description="Number of the oldest entry whose hash or link to the entry before is wrong."
    )


class KeyOut(Out):
    id: str
    name: str
    role: Role
    scopes: list[Scope] = Field(description="Empty for all rights of the role.")
    owner: OwnerOut
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None


class NewKeyOut(KeyOut):
    key: str = Field(description="Shown once.")


class KeyPage(Out):
    items: list[KeyOut]


class StoreOut(Out):
    kind: str
    location: str
    schema_version: str
    degraded: str


class SystemOut(Out):
    version: str
    now: Moment
    open_mode: bool
    default_timezone: str
    ready: bool
    not_ready: str
    store: StoreOut
    schedules: dict[str, int]
    runs: dict[str, int]


def problem(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/problem+json": {"schema": PROBLEM_REF}},
    }


PROBLEM_REF = {"$ref": "#/components/schemas/ProblemOut"}
#: Error responses of every route.
COMMON_ERRORS: Responses = {
    401: problem("A valid key is required"),
    403: problem("The key does not have the right to do that"),
    422: problem("The input is not valid"),
    429: problem("Too many requests"),
    503: problem("The store cannot answer at the moment"),
}
NOT_FOUND: Responses = {404: problem("Not found, or not visible to the caller")}
CONFLICT: Responses = {409: problem("Not possible in the current state")}
STALE_VERSION: Responses = {412: problem("Changed by another request in the meantime")}
#: A run request that starts no new run is 200.
ACTIVE_SYNC = "Sync target: the active run of this source and collection"
BODY_ERRORS: Responses = {
    400: problem("The body is not JSON"),
    413: problem("The body is too large"),
    415: problem("The body is not application/json"),
}


def returns(model: type[Out], status: int = 200, **more: str) -> Responses:
    return {status: {"model": model, "description": more.get("description", "Done")}}
