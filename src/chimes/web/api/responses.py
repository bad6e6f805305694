"""Response models of the native API, for its documentation; tests check responses against them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, get_origin

from msgspec import Struct
from pydantic import ConfigDict, Field, WithJsonSchema
from typing_extensions import TypeAliasType

from chimes.model.access import Owner, Role, Scope
from chimes.model.fields import MASKED
from chimes.model.fields import Field as ModelField
from chimes.model.policy import Policy
from chimes.model.recipient import Digest, QuietHours, Recipient
from chimes.model.run import Attempt, Cause, LogEntry, Run, RunDefinition
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    DaskTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    RedisStreamTarget,
    SyncTarget,
    TaskTarget,
)
from chimes.services.audit import CheckpointState
from chimes.web.api.derived import DerivedModel, leaf_type, type_in_json
from chimes.web.api.schemas import DocumentedAs, JsonObject, LabelMap, Trigger

Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Duration = Annotated[str, WithJsonSchema({"type": "string", "format": "duration"})]


class Out(DerivedModel):
    model_config = ConfigDict(extra="forbid")

    parts: ClassVar[dict[Any, Any]] = {}

    @staticmethod
    def derive(struct: type[Struct], field: ModelField) -> tuple[Any, Any]:
        more: dict[str, Any] = {} if field.json == field.name else {"alias": field.json}
        return _response_type(struct, field), Field(
            description=field.about.response_description, **more
        )


def _response_type(struct: type[Struct], field: ModelField) -> Any:
    if special := _RESPONSE_TYPES.get((struct, field.name)):
        return special
    if field.mark == MASKED and field.item is str and get_origin(field.type) is tuple:
        return list[Literal["***"]]
    if field.about.words:
        return str
    known = {timedelta: Duration, time: str, datetime: Moment, **Out.parts}
    kind = type_in_json(field, lambda each: leaf_type(each, known))
    return kind | None if field.nullable else kind


#: Durations of recipients are documented as text.
_RESPONSE_TYPES: Mapping[tuple[type[Struct], str], Any] = {(Recipient, "late_after"): str}


class HttpTargetOut(Out):
    structs = (HttpTarget,)


class TaskTargetOut(Out):
    structs = (TaskTarget,)


class FlowTargetOut(Out):
    structs = (FlowTarget,)


class SyncTargetOut(Out):
    structs = (SyncTarget,)


class AgentTargetOut(Out):
    structs = (AgentTarget,)


class AccountOut(Out):
    id: str
    type: str


class ActionTargetOut(Out):
    structs = (ActionTarget,)

    account: AccountOut = Field(description="The account that the action is executed for.")


class MessageTargetOut(Out):
    structs = (MessageTarget,)


class CommandTargetOut(Out):
    structs = (CommandTarget,)


class CeleryTargetOut(Out):
    structs = (CeleryTarget,)


class DaskTargetOut(Out):
    structs = (DaskTarget,)


class KubernetesTargetOut(Out):
    structs = (KubernetesTarget,)


class AmqpTargetOut(Out):
    structs = (AmqpTarget,)


class NatsTargetOut(Out):
    structs = (NatsTarget,)


class RedisStreamTargetOut(Out):
    structs = (RedisStreamTarget,)


class KafkaTargetOut(Out):
    structs = (KafkaTarget,)


TargetOut = TypeAliasType(
    "TargetOut",
    Annotated[
        HttpTargetOut
        | TaskTargetOut
        | FlowTargetOut
        | SyncTargetOut
        | AgentTargetOut
        | ActionTargetOut
        | MessageTargetOut
        | CommandTargetOut
        | CeleryTargetOut
        | DaskTargetOut
        | KubernetesTargetOut
        | AmqpTargetOut
        | NatsTargetOut
        | RedisStreamTargetOut
        | KafkaTargetOut,
        Field(discriminator="kind"),
    ],
)


class QuietOut(Out):
    structs = (QuietHours,)


class DigestOut(Out):
    structs = (Digest,)


class RecipientOut(Out):
    structs = (Recipient,)


TriggerOut = Annotated[dict[str, object], DocumentedAs(Trigger)]
StringMap = TypeAliasType("StringMap", dict[str, str])
IntegerMap = TypeAliasType("IntegerMap", dict[str, int])
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


class HealthOut(Out):
    """Liveness of the process."""

    status: Literal["ok", "degraded"]
    reason: str = Field(default="", description="Why it is degraded.")


class ReadinessOut(Out):
    """Whether a node should get traffic."""

    status: Literal["ready", "not ready"]
    reason: str = Field(default="", description="Why it is not ready.")


class JsonObjects(Out):
    """Names of objects without fixed fields; no response has this model."""

    json_object: JsonObject
    strings: StringMap
    integers: IntegerMap


class OwnerOut(Out):
    structs = (Owner,)


class PolicyOut(Out):
    structs = (Policy,)
    without = ("delivery",)


class PauseOut(Out):
    note: str
    until: Moment | None


class DependencyOut(Out):
    structs = (Dependency,)


class DeclaredOut(Out):
    """The code that declares a schedule, or the file that it was made from."""

    at: str = Field(
        description="File and line, for example shop/tasks.py:12, or the origin of a file."
    )
    kind: Literal["code", "file"]
    detached: bool = Field(
        description="It was edited elsewhere: code no longer overwrites it, `apply` of the file"
        " does."
    )


class WarningOut(Out):
    code: str = Field(
        description="`channel_not_configured`, `no_pipeline`, `no_action_service`, "
        "`commands_not_allowed`, `no_worker`, `no_connection`, `egress_denied` or `masked`; of a "
        "change also `duplicate_name`, `made_from_file`, `declared_in_code` or "
        "`edited_elsewhere`."
    )
    field: str
    message: str = Field(description="What is wrong, and what to do.")


class ScheduleOut(Out):
    structs = (Schedule,)
    without = (
        *("pause_note", "pause_until", "compat_data", "last_success_at", "purged_until"),
        "deleted_at",
    )

    trigger: TriggerOut
    hook_url: str | None = Field(
        description="Address of its webhook; null for other triggers, and for callers that may not"
        " run it."
    )
    timezone: str
    words: str
    target: TargetOut
    labels: LabelMap | list[str]
    pause: PauseOut | None
    delivery: list[RecipientOut]
    last_slot: Moment | None = Field(
        description="The latest slot that was fired, skipped or missed."
    )
    declared: DeclaredOut | None
    warnings: list[WarningOut] = Field(
        description="Why it cannot work as it is, although it is valid; empty: nothing is missing."
    )


class SchedulePage(Out):
    items: list[ScheduleOut]
    next_cursor: str | None


class FireChangesOut(Out):
    added: int
    dropped: int
    moved: int = Field(description="Fires that take place at another time instead.")
    until: Moment = Field(
        description="End of the compared period: seven days from now, or earlier for a schedule"
        " that fires very often."
    )


class ChangesetItemOut(Out):
    action: Literal["create", "update", "delete", "none"]
    name: str
    namespace: str
    id: str
    version: int | None = Field(description="The current version; null if it does not exist.")
    fields: dict[str, list[object]] = Field(
        description="Path of a field, such as `policy.timeout`, with its value before and after."
    )
    fires: FireChangesOut
    marked: bool = Field(description="Whether it is marked as made from a file already.")
    warnings: list[WarningOut]


class ChangesetOut(Out):
    plan: list[ChangesetItemOut]
    applied: bool
    digest: str = Field(description="Identifies the plan: `expected_digest` of a later request.")


class BulkErrorOut(Out):
    status: int = Field(description="Status of the same action on this schedule alone.")
    code: str
    detail: str


class BulkItemOut(Out):
    id: str
    name: str | None = Field(description="Null if the schedule was not found.")
    result: Literal["done", "planned", "failed"] = Field(
        description="`planned`: it would be done, in a dry run."
    )
    run_id: str | None = Field(description="The run that was queued.")
    error: BulkErrorOut | None = Field(description="Why it failed.")


class BulkOut(Out):
    action: Literal["pause", "resume", "delete", "run"]
    dry_run: bool
    items: list[BulkItemOut]
    done: int = Field(description="Items that did not fail.")
    failed: int = Field(description="Items that failed.")
    next_cursor: str | None = Field(
        description="Not null: there are more, which the same request with this `cursor` processes."
    )


class ExportOut(Out):
    schedules: dict[str, dict[str, object]] = Field(
        description="By name, as `POST /api/v1/apply` takes them; secrets are `***`."
    )
    skipped: list[str] = Field(description="Names of schedules that code declares.")


class AttemptOut(Out):
    structs = (Attempt,)

    duration_ms: float


class CauseOut(Out):
    structs = (Cause,)
    without = ("payload",)


class HookOut(Out):
    run_id: str | None


class RunOut(Out):
    structs = (RunDefinition, Run)
    without = (
        *("definition", "policy", "schedule_version", "catch_up", "concurrency_key"),
        *("concurrency_limit", "holder", "started", "trace", "labels"),
    )

    target: TargetOut
    cause: CauseOut | None
    node: str | None
    duration_ms: float | None
    lag_ms: float | None


class RunPage(Out):
    items: list[RunOut]
    next_cursor: str | None


class LogOut(Out):
    structs = (LogEntry,)


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
    example: bool = Field(
        default=False,
        description="Whether hashed fields are an example: the id of the schedule decides them.",
    )


class PreviewErrorOut(Out):
    detail: str
    code: str
    field: str | None = Field(description="The key of the trigger that is wrong.")
    hint: str | None


class PreviewItemOut(Out):
    fires: list[FireOut]
    words: str | None = Field(description="The trigger in words; null if it is not valid.")
    warnings: list[str]
    timezone: str | None
    example: bool = Field(default=False, description="Whether hashed fields are an example.")
    error: PreviewErrorOut | None = Field(description="Why the trigger is not valid.")


class PreviewListOut(Out):
    items: list[PreviewItemOut] = Field(description="In the order of the triggers.")


PreviewAnswerOut = TypeAliasType("PreviewAnswerOut", PreviewOut | PreviewListOut)


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


class SlotExplanationOut(Out):
    """What became of one slot."""

    schedule: str = Field(description="Id of the schedule.")
    slot: Moment
    outcome: Literal["ran", "skipped", "missed", "paused", "pending", "not_due"]
    reason: str = Field(
        description="A stable code: why the slot did not run, or the status of its run."
    )
    message: str = Field(description="The reason as a sentence.")
    run_id: str | None = Field(
        description="The run or the row of the slot; one row may stand for several missed slots."
    )


#: Of one slot, or of each slot of a day.
SlotExplanationsOut = TypeAliasType(
    "SlotExplanationsOut", SlotExplanationOut | list[SlotExplanationOut]
)


class MaintenanceOut(Out):
    namespace: str | None = Field(description="null: the whole instance.")
    since: Moment
    until: Moment | None = Field(description="When it ends by itself; null: never.")
    reason: str
    by: str
    silence: bool = Field(description="Whether notifications are not sent meanwhile.")


class MaintenanceList(Out):
    items: list[MaintenanceOut] = Field(description="What is on now; empty: nothing.")


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
    checkpoint: CheckpointState = Field(
        description="State of the signed checkpoint that stands for pruned entries: `unchecked` if "
        "this server has no `audit_key`."
    )
    pruned_until: int | None = Field(description="Number of the newest pruned entry.")
    pruned_at: Moment | None
    pruned: int = Field(description="How many entries were pruned.")


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


class ScheduleWarningOut(WarningOut):
    schedule_id: str
    schedule_name: str


class NewKeyOut(KeyOut):
    key: str = Field(description="Shown once.")
    warnings: list[ScheduleWarningOut] = Field(
        description="Schedules whose callbacks are denied once keys are required."
    )


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
    warnings: list[ScheduleWarningOut] = Field(
        description="Schedules that cannot work: a setting is missing, or a callback is denied."
    )


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


def returns(
    model: type[Out] | TypeAliasType | UnionType, status: int = 200, **more: str
) -> Responses:
    return {status: {"model": model, "description": more.get("description", "Done")}}
