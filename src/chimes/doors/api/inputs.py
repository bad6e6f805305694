"""What the native API takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue

from chimes.doors.api.fields import (
    ActionNames,
    Body,
    ContentField,
    DurationField,
    LabelsField,
    MomentField,
    TriggerField,
    with_kind,
    without_defaults,
)
from chimes.doors.api.inputs_recipients import RecipientIn as RecipientIn
from chimes.doors.api.inputs_targets import (
    AccountIn,
    ActionParams,
    ActionTargetIn,
    Identities,
    MessageTargetIn,
)
from chimes.model.access import OwnerType, Role, Scope
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient_rules import MOST_RECIPIENTS
from chimes.service.rules import ID_LIMIT

#: Enumerations come as their words; everything else is exact.
Word = Field(strict=False)
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Remark = Annotated[str, Field(max_length=1000)]
#: Never read: what was not sent is not in `model_fields_set`. Unlike `| None`, null is refused.
LEFT_OUT: Any = None
_USUAL = Policy()
PRIORITY_LEFT_OUT = "Left out: as the task or flow has it itself."

SCHEDULE_READ_ONLY = frozenset(
    {
        "owner_id",
        "timezone",
        "pause",
        "next_run_at",
        "next_slot",
        "last_slot",
        "last_run_at",
        "last_enqueued_at",
        "last_status",
        "last_error",
        "fired_count",
        "version",
        "created_at",
        "created_by",
        "updated_at",
        "updated_by",
        "deleted_at",
        "declared",
        "status",
        "fence",
        "role",
        "words",
    }
)


EXAMPLE_SCHEDULE: dict[str, JsonValue] = {
    "name": "Morning report",
    "trigger": {"kind": "cron", "expression": "0 9 * * 1-5", "timezone": "Asia/Bangkok"},
    "target": {
        "kind": "http",
        "url": "https://example.com/report",
        "method": "POST",
        "body": '{"run":"{{run_id}}"}',
    },
    "policy": {"max_retries": 3, "timeout": "PT10S"},
}


class OwnerIn(Body):
    type: Annotated[OwnerType, Word] = OwnerType.USER
    id: Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


class HttpTargetIn(Body):
    """An HTTP callback. `body` may be text or JSON; placeholders such as `{{run_id}}` are filled
    at each attempt. `signing_secrets` are answered as `***` and kept where `***` comes back."""

    kind: Literal["http"] = "http"
    url: str
    method: str = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    body: ContentField = ""
    expected_status: list[Annotated[int, Field(ge=100, le=599)]] = Field(
        default_factory=list, max_length=50
    )
    signing_secrets: list[str] = Field(default_factory=list, max_length=10)
    verify_tls: bool = True


class TaskTargetIn(Body):
    """A Python task, by the name under which an application offers it. Values of `args` whose
    names look like secrets are answered as `***` and kept where `***` comes back."""

    kind: Literal["task"]
    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict)


class FlowTargetIn(Body):
    """A flow, by the name under which an application offers it; its steps become child runs."""

    kind: Literal["flow"]
    name: str
    input: dict[str, JsonValue] = Field(default_factory=dict)


class SyncTargetIn(Body):
    """Synchronise one collection of a source of `chimes.yaml`. At most one run of each pair is
    active, whoever asks for it."""

    kind: Literal["sync"]
    source: str
    collection: str


class AgentTargetIn(Body):
    """A prompt for the run pipeline that is configured (`CHIMES_AGENT_PIPELINE`). The answer is
    the result of the run; nothing in it is carried out."""

    kind: Literal["agent"]
    prompt: str
    pipeline: Literal["", "openai", "runs"] = Field(default="", description="Empty: as configured.")
    model: str = Field(default="", description="Empty: as configured.")
    max_tokens: int | None = Field(
        default=None, description="Of the answer; left out: as configured."
    )


AnyTargetIn = (
    HttpTargetIn
    | TaskTargetIn
    | FlowTargetIn
    | SyncTargetIn
    | AgentTargetIn
    | ActionTargetIn
    | MessageTargetIn
)
TargetField = Annotated[AnyTargetIn, Field(discriminator="kind"), BeforeValidator(with_kind)]


class TargetPatch(ActionNames):
    """Only what changes. Without `kind`, or with the one that it has, the target is changed field
    by field; another kind replaces it. The fields must be those of the kind."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    kind: Literal["http", "task", "flow", "sync", "agent", "action", "message"] = "http"
    url: str = ""
    method: str = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    body: ContentField = ""
    expected_status: list[Annotated[int, Field(ge=100, le=599)]] = Field(
        default_factory=list, max_length=50
    )
    signing_secrets: list[str] = Field(default_factory=list, max_length=10)
    verify_tls: bool = True
    name: str = ""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    input: dict[str, JsonValue] = Field(default_factory=dict)
    source: str = ""
    collection: str = ""
    prompt: str = ""
    pipeline: Literal["", "openai", "runs"] = ""
    model: str = ""
    max_tokens: int | None = None
    action_type_id: str = ""
    kn_id: str = ""
    branch: str = "main"
    identities: Identities = Field(default_factory=list)
    params: ActionParams = Field(default_factory=dict)
    account: AccountIn = Field(default_factory=AccountIn)
    text: str = ""


DeliveryField = Annotated[
    list[RecipientIn],
    Field(
        max_length=MOST_RECIPIENTS,
        description="Who is told how a run ended; of a prompt the inbox of its owner, unless told.",
    ),
]


class PolicyIn(Body):
    """What is left out is as the task or flow has it itself, else the default of the server; in a
    PATCH it stays as it is."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    misfire: Annotated[Misfire, Word] = Misfire.ONE
    misfire_grace: DurationField = _USUAL.misfire_grace
    catch_up_limit: int = 1000
    overlap: Annotated[Overlap, Word] = Overlap.SKIP
    max_concurrent_runs: int | None = None
    burst_allowed: bool = False
    concurrency_key: str | None = Field(
        default=None, description="Runs of all schedules with this key share the limit."
    )
    max_retries: int = 0
    retry_backoff: DurationField = _USUAL.retry_backoff
    backoff: Annotated[Backoff, Word] = Backoff.FIXED
    backoff_cap: DurationField = _USUAL.backoff_cap
    timeout: DurationField = _USUAL.timeout
    on_lost: Annotated[OnLost, Word] = OnLost.RETRY
    pause_on_gone: bool = True


class DependencyIn(Body):
    """Run only if the other schedule succeeded within this time."""

    schedule_id: str
    within: DurationField = timedelta(hours=1)


class ScheduleIn(Body):
    read_only: ClassVar[frozenset[str]] = SCHEDULE_READ_ONLY

    id: str | None = Field(default=None, description="Made by the server where none is sent.")
    namespace: Namespace = "native"
    name: str
    owner: OwnerIn | None = Field(default=None, description="Only an admin names another owner.")
    trigger: TriggerField
    target: TargetField
    policy: PolicyIn = Field(default_factory=PolicyIn)
    priority: int = Field(default=0, description=PRIORITY_LEFT_OUT)
    labels: LabelsField = Field(default_factory=dict)
    enabled: bool = True
    depends_on: DependencyIn | None = None
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_SCHEDULE]})


class SchedulePatch(Body):
    """What is left out stays. `trigger`, `labels` and `delivery` are replaced as a whole, `target`
    and `policy` field by field."""

    read_only: ClassVar[frozenset[str]] = SCHEDULE_READ_ONLY | {"id", "namespace", "owner"}

    name: str = ""
    trigger: TriggerField = LEFT_OUT
    target: TargetPatch = Field(default_factory=TargetPatch)
    policy: PolicyIn = Field(default_factory=PolicyIn)
    priority: int = 0
    labels: LabelsField = Field(default_factory=dict)
    enabled: bool = True
    depends_on: DependencyIn | None = None
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(json_schema_extra=without_defaults)


class PauseIn(Body):
    note: Remark = ""
    reason: Remark = Field(default="", description="Another word for `note`.")
    until: MomentField | None = None
    timezone: str | None = None


class ReasonIn(Body):
    reason: Remark = ""


class StartIn(Body):
    """A run without a schedule."""

    read_only: ClassVar[frozenset[str]] = frozenset({"id", "status", "result", "attempt", "fence"})

    target: TargetField
    name: str = Field(default="", description="For lists and messages.")
    policy: PolicyIn = Field(default_factory=PolicyIn)
    namespace: Namespace = "native"
    owner: OwnerIn | None = Field(default=None, description="Only an admin names another owner.")
    priority: int = Field(default=0, description=PRIORITY_LEFT_OUT)
    at: MomentField | None = Field(default=None, description="At once where it is left out.")
    timezone: str | None = None
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"target": {"kind": "task", "name": "greet", "args": {"name": "Ada"}}}]
        }
    )


class RunIn(Body):
    beside_others: bool = Field(
        default=False,
        description="At once, even while the schedule's limit is reached; never for a sync target.",
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="For this run only, instead of those of the same names: arguments of a task,"
        " input of a flow, parameters of an action, or members of the JSON body of a call.",
    )
    body: ContentField = Field(default="", description="For this run only: the body of the call.")
    prompt: str = Field(default="", description="For this run only: the prompt of the agent.")
    text: str = Field(default="", description="For this run only: the text of the message.")


class ToIn(Body):
    to: MomentField
    timezone: str | None = None


class BackfillIn(Body):
    """Both ends are included."""

    start: MomentField = Field(alias="from")
    end: MomentField = Field(alias="to")
    timezone: str | None = None
    dry_run: bool = False
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="At most so many of them at a time. Left out: as the schedule."
    )
    overlap: Literal["queue", "allow"] = Field(
        default="queue",
        description="queue: they wait for other runs of the schedule; allow: beside those.",
    )


class NothingIn(Body):
    """An empty object, or no body at all."""


LanguageField = Annotated[
    str | None,
    Field(description="en, th or zh: of the words; where it is left out, see Accept-Language."),
]


class PreviewIn(Body):
    trigger: TriggerField
    lang: LanguageField = None
    count: Annotated[int, Field(ge=1, le=100)] = 5
    after: MomentField | None = Field(
        default=None, alias="from", description="Fires after this moment; now where it is left out."
    )


class ExplainIn(Body):
    """Either a trigger, or a cron expression by itself."""

    trigger: TriggerField = LEFT_OUT
    expression: str | None = None
    timezone: str | None = None
    lang: LanguageField = None


class KeyIn(Body):
    name: str
    role: Annotated[Role, Word]
    owner: OwnerIn | None = None
    scopes: list[Annotated[Scope, Word]] = Field(
        default_factory=list,
        max_length=len(Scope),
        description="What it is for, within its role; none: all that the role may.",
    )
    expires_at: MomentField | None = None
    expires_in: DurationField = LEFT_OUT
