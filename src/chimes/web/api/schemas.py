"""What the native API takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import time, timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import OwnerType, Role, Scope
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import (
    DEFAULT_LATE_AFTER,
    SELECTABLE_EVENTS,
    WEEKDAYS,
    Channel,
    NotifyOn,
    Period,
)
from chimes.model.validation import MAX_IDENTITIES, MAX_RECIPIENTS
from chimes.services.validation import ID_LIMIT
from chimes.triggers import Trigger, parse_duration, trigger_from_dict
from chimes.triggers.json_values import nearest
from chimes.web.requests import refused

# @@ Kinds of fields in request bodies, and what all bodies have in common.

T = TypeVar("T")
TARGET_KINDS = ("http", "task", "flow", "sync", "agent", "action", "message")

#: Other names of the fields of an action, by name.
ACTION_NAMES = {
    "unique_identities": "identities",
    "_instance_identities": "identities",
    "dynamic_params": "params",
}


class Body(BaseModel):
    """Exact types ("5" is not 5, true is not 1) and no fields that nobody asked for."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    #: Fields of the answer that a caller may be tempted to send back.
    read_only: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, data: object) -> object:
        if isinstance(data, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for name in data:
                if name in cls.read_only:
                    raise refused("read_only", _("{field} cannot be set", field=name), field=name)
                if name not in known:
                    raise unknown_field(str(name)[:64], known)
        return data


class ActionNames(Body):
    """What seed 0 and its original call the fields of an action (C23)."""

    @model_validator(mode="before")
    @classmethod
    def _by_our_names(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        found: dict[object, object] = {}
        for name, value in data.items():
            ours = ACTION_NAMES.get(name, name) if isinstance(name, str) else name
            if ours in found and found[ours] != value:
                raise refused(
                    "given_twice",
                    _("{field} is given twice, and not alike", field=ours),
                    field=str(ours),
                )
            found[ours] = value
        return found


def unknown_field(name: str, known: Iterable[str]) -> PydanticCustomError:
    return refused(
        "unknown_field",
        _("{field} is not a known field", field=name),
        field=name,
        hint=nearest(name, known),
    )


def without_defaults(schema: dict[str, Any]) -> None:
    """For bodies in which a field that is left out does not have its default."""
    for field in schema["properties"].values():
        field.pop("default", None)


def with_kind(value: object) -> object:
    """A target that says nothing about its kind is an HTTP callback."""
    if not isinstance(value, dict):
        raise refused("wrong_type", _("expected an object"))
    kind = value.get("kind", "http")
    if kind not in TARGET_KINDS:
        raise refused(
            "unknown_kind",
            _("a target is one of {kinds}", kinds=", ".join(TARGET_KINDS)),
            field="kind",
            hint=nearest(str(kind)[:64], TARGET_KINDS),
        )
    return {"kind": kind, **value}


def told(check: Callable[[object], T]) -> Callable[[object], T]:
    """A check whose InvalidInput becomes one of pydantic's errors, which know their place."""

    def checked(value: object) -> T:
        try:
            return check(value)
        except InvalidInput as error:
            raise refused(error.code, error.message, field=error.field, hint=error.hint) from None

    return checked


def _duration(value: object) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise InvalidInput(
            _("a duration is text with a unit"),
            code="wrong_type",
            hint=_('such as "{value}s"', value=value),
        )
    try:
        return parse_duration(_text(value), allow_zero=True)
    except InvalidInput as error:
        # The name in the message would be that of the parser's parameter.
        error.field = None
        raise


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(
            _("expected text, got {name}", name=type(value).__name__), code="wrong_type"
        )
    return value


def _labels(value: object) -> dict[str, str | None]:
    """An object of texts, or a list of labels: `name`, or `name=value` as people write them
    everywhere else."""
    if isinstance(value, list):
        return _listed_labels([_text(each) for each in value])
    if isinstance(value, dict):
        return {name: each if each is None else _text(each) for name, each in value.items()}
    raise InvalidInput(_("expected an object of texts, or a list of texts"), code="wrong_type")


def _listed_labels(words: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        wanted = value if equals else None
        if found.setdefault(name, wanted) != wanted:
            raise InvalidInput(
                _("the label {name!r} is there with two values", name=name), code="duplicate"
            )
    return found


def _content(value: object) -> str:
    """Text as it is; JSON is written down."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else _text(value)


_bound = {
    "start_at": {"type": "string", "description": "First moment that counts, inclusive."},
    "end_at": {"type": "string", "description": "Last moment that counts, inclusive."},
    "max_runs": {"type": "integer", "minimum": 1},
    "exclude": {"type": "array", "items": {"type": "object"}, "maxItems": 16},
}
TRIGGER_SCHEMA: dict[str, object] = {
    "oneOf": [
        {
            "type": "object",
            "title": "Cron",
            "required": ["kind", "expression"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "cron"},
                "expression": {"type": "string", "maxLength": 256},
                "timezone": {"type": "string", "description": "IANA name"},
                "dialect": {"enum": ["auto", "unix", "seconds", "quartz"]},
                "dst": {"enum": ["chimes", "vixie", "robfig"]},
                "anchor": {"type": "string", "description": "Only for @every"},
                **_bound,
            },
        },
        {
            "type": "object",
            "title": "Every",
            "required": ["kind", "every"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "every"},
                "every": {"type": "string", "description": "PT1H30M or 1h30m"},
                "anchor": {"type": "string", "description": "The first slot, if it is ahead"},
                "jitter": {"type": "string"},
                **_bound,
            },
        },
        {
            "type": "object",
            "title": "Once",
            "required": ["kind", "at"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "once"},
                "at": {"type": "string", "description": "RFC 3339, RFC 9557, or local + timezone"},
                "timezone": {"type": "string", "description": "IANA name"},
                **_bound,
            },
        },
    ],
    "examples": [{"kind": "cron", "expression": "0 9 * * 1-5", "timezone": "Asia/Bangkok"}],
}
DURATION_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "ISO 8601 (PT1H30M) or Go style (1h30m); answered as ISO 8601.",
    "examples": ["PT10S", "1h30m"],
}
MOMENT_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "RFC 3339, RFC 9557 (…[Asia/Bangkok]), or local time where a timezone is given.",
    "examples": ["2030-02-10T09:00:00Z"],
}

TriggerField = Annotated[
    Trigger, PlainValidator(told(trigger_from_dict)), WithJsonSchema(TRIGGER_SCHEMA)
]
DurationField = Annotated[
    timedelta, PlainValidator(told(_duration)), WithJsonSchema(DURATION_SCHEMA)
]
LabelsField = Annotated[
    dict[str, str | None],
    PlainValidator(told(_labels)),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                {"type": "array", "items": {"type": "string"}},
            ],
            "description": "Answered in the shape that was sent.",
            "examples": [{"team": "billing"}, ["nightly"]],
        }
    ),
]
ContentField = Annotated[
    str,
    PlainValidator(told(_content)),
    WithJsonSchema(
        {
            "type": ["string", "object", "array", "null"],
            "description": "Text, or JSON, which is kept as its text.",
        }
    ),
]
#: Kept as text: the zone that places a local time may stand beside it.
MomentField = Annotated[str, WithJsonSchema(MOMENT_SCHEMA)]


# @@ Actions and messages as bodies of requests have them; the other targets are in `inputs.py`.


class AccountIn(Body):
    id: str = ""
    type: str = ""


Identities = Annotated[
    list[dict[str, JsonValue]],
    Field(
        max_length=MAX_IDENTITIES,
        description="The objects that the action is for; also as `unique_identities` or"
        " `_instance_identities`.",
    ),
]
ActionParams = Annotated[dict[str, JsonValue], Field(description="Also as `dynamic_params`.")]


class ActionTargetIn(ActionNames):
    """An action type of a knowledge network, executed by the action service that is configured
    (`CHIMES_ACTION_URL`). Values of `params` whose names look like secrets are answered as `***`
    and kept where `***` comes back."""

    kind: Literal["action"]
    action_type_id: str
    kn_id: str
    branch: str = "main"
    identities: Identities = Field(default_factory=list)
    params: ActionParams = Field(default_factory=dict)
    account: AccountIn = Field(
        default_factory=AccountIn,
        description="On whose behalf the action is executed: X-Account-Id, X-Account-Type.",
    )


class MessageTargetIn(Body):
    """A text (Markdown) for whom the schedule tells, such as a reminder; of a schedule that tells
    nobody it is for the inbox of its owner."""

    kind: Literal["message"]
    text: str


# @@ Recipients as the native API takes them.

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
ZoneField = Annotated[
    str, Field(max_length=64, description="Left out: that of the schedule, else the owner's.")
]


def _clock(value: object) -> time:
    if isinstance(value, str):
        hour, colon, minute = value.partition(":")
        if colon and len(minute) == 2 and (hour + minute).isdecimal() and len(hour) <= 2:
            try:
                return time(int(hour), int(minute))
            except ValueError:
                pass
    raise refused("bad_clock", _("a time of day such as 07:30"))


def _occasion(value: object) -> NotifyOn:
    for each in SELECTABLE_EVENTS:
        if value == each.value:
            return each
    raise refused("unknown_occasion", _("success, failure, recovery, late or always"))


ClockField = Annotated[
    time,
    PlainValidator(_clock),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}$", "example": "07:30"}),
]
OccasionField = Annotated[
    NotifyOn,
    PlainValidator(_occasion),
    WithJsonSchema({"type": "string", "enum": [each.value for each in SELECTABLE_EVENTS]}),
]
Occasions = Annotated[list[OccasionField], Field(max_length=len(SELECTABLE_EVENTS))]


class QuietIn(Body):
    """Hours in which nothing is sent there: it waits for their end. Over midnight if need be."""

    start: ClockField = Field(alias="from")
    end: ClockField = Field(alias="to")
    zone: ZoneField = ""
    but: Occasions = Field(
        default_factory=list, alias="except", description="Sent all the same, such as failure."
    )


class DigestIn(Body):
    """One message for each period instead of one for each run. The word alone will do."""

    every: Annotated[Period, Field(strict=False)]
    at: ClockField = Field(default=time(8), description="Of an hourly one only the minute counts.")
    on: Weekday = Field(default="monday", description="Of a weekly one.")
    zone: ZoneField = ""
    but: Occasions = Field(
        default_factory=list, alias="except", description="Told by themselves, at once."
    )

    @model_validator(mode="before")
    @classmethod
    def _by_its_word(cls, data: Any) -> Any:
        return {"every": data, "at": _usual_at(data)} if isinstance(data, str) else data

    @property
    def weekday(self) -> int:
        return WEEKDAYS.index(self.on)


def _usual_at(every: str) -> str:
    return "00:00" if every == Period.HOUR else "08:00"


class RecipientIn(Body):
    """Somebody who is told how a run ended. `signing_secrets`, of a webhook, are answered as `***`
    and kept where `***` comes back."""

    channel: Annotated[Channel, Field(strict=False)]
    to: str | int = Field(
        default="",
        description="A chat id or @name, a URL, an address; empty for the inbox of the owner.",
    )
    on: Occasions = Field(default_factory=lambda: [NotifyOn.ALWAYS])
    language: Literal["", "en", "th", "zh"] = Field(
        default="", description="Empty: as the owner likes it."
    )
    signing_secrets: list[str] = Field(default_factory=list, max_length=10)
    late_after: DurationField = Field(
        default=DEFAULT_LATE_AFTER,
        description="A run that begins later than that behind its time is `late`.",
    )
    quiet: QuietIn | None = None
    digest: DigestIn | None = None


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
        max_length=MAX_RECIPIENTS,
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
