"""Request models of the native API."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import NODEFAULT, Struct
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    PlainValidator,
    RootModel,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from typing_extensions import TypeAliasType

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import OwnerType, Role, Scope
from chimes.model.fields import About, is_enum
from chimes.model.fields import Field as ModelField
from chimes.model.ids import DEFAULT_NAMESPACE
from chimes.model.policy import Policy
from chimes.model.recipient import (
    SELECTABLE_EVENTS,
    Digest,
    NotifyOn,
    Period,
    QuietHours,
    Recipient,
)
from chimes.model.schedule import Dependency
from chimes.model.target import (
    TARGETS,
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
from chimes.model.validation import ID_LIMIT, MAX_IDENTITIES, MAX_RECIPIENTS
from chimes.triggers import Trigger as TriggerValue
from chimes.triggers import parse_duration, trigger_from_dict
from chimes.triggers.values import suggest_name
from chimes.web.api.derived import DerivedModel, leaf_type, type_in_json
from chimes.web.problems import validation_error

T = TypeVar("T")
TARGET_KINDS = tuple(TARGETS)

#: Aliases of the fields of an action.
ACTION_ALIASES = {
    "unique_identities": "identities",
    "_instance_identities": "identities",
    "dynamic_params": "params",
}


#: Default that is never read: omitted fields are not in `model_fields_set`. Unlike `| None`, null
#: is refused.
OMITTED: Any = None
#: Enumerations are sent as strings; other types are exact.
EnumField = Field(strict=False)
#: Named in the document, so that generated clients have one type for all of them.
JsonObject = TypeAliasType("JsonObject", dict[str, JsonValue])
LabelMap = TypeAliasType("LabelMap", dict[str, str | None])


class Body(DerivedModel):
    """Base of request bodies: exact types ("5" is not 5, true is not 1), no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    parts: ClassVar[dict[Any, Any]] = {}
    #: Fields of the response that a request must not have.
    read_only: ClassVar[frozenset[str]] = frozenset()

    @staticmethod
    def derive(struct: type[Struct], field: ModelField) -> tuple[Any, Any]:
        return request_type(struct, field), request_default(field, field.about.description)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown(cls, data: object) -> object:
        if isinstance(data, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for name in data:
                if name in cls.read_only:
                    raise validation_error(
                        "read_only", _("{field} cannot be set", field=name), field=name
                    )
                if name not in known:
                    raise unknown_field(str(name)[:64], known)
        return data


class ActionBody(Body):
    """Accepts the KWeaver names of the fields of an action."""

    @model_validator(mode="before")
    @classmethod
    def _resolve_aliases(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        found: dict[object, object] = {}
        for name, value in data.items():
            ours = ACTION_ALIASES.get(name, name) if isinstance(name, str) else name
            if ours in found and found[ours] != value:
                raise validation_error(
                    "given_twice",
                    _("{field} is given twice with different values", field=ours),
                    field=str(ours),
                )
            found[ours] = value
        return found


def unknown_field(name: str, known: Iterable[str]) -> PydanticCustomError:
    return validation_error(
        "unknown_field",
        _("{field} is not a known field", field=name),
        field=name,
        hint=suggest_name(name, known),
    )


def without_defaults(schema: dict[str, Any]) -> None:
    """Removes defaults from the schema: omitted fields keep their value."""
    for field in schema["properties"].values():
        field.pop("default", None)


def with_kind(value: object) -> object:
    """A target without `kind` is an HTTP callback."""
    if not isinstance(value, dict):
        raise validation_error("wrong_type", _("expected an object"))
    kind = value.get("kind", "http")
    if kind not in TARGET_KINDS:
        raise validation_error(
            "unknown_kind",
            _("a target is one of {kinds}", kinds=", ".join(TARGET_KINDS)),
            field="kind",
            hint=suggest_name(str(kind)[:64], TARGET_KINDS),
        )
    return {"kind": kind, **value}


def as_pydantic_error(check: Callable[[object], T]) -> Callable[[object], T]:
    """Turns InvalidInput of a check into a pydantic error with its location."""

    def checked(value: object) -> T:
        try:
            return check(value)
        except InvalidInput as error:
            raise validation_error(
                error.code, error.message, field=error.field, hint=error.hint
            ) from None

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
        # The field would be a parameter name of the parser.
        error.field = None
        raise


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(
            _("expected text, got {name}", name=type(value).__name__), code="wrong_type"
        )
    return value


def _labels(value: object) -> dict[str, str | None]:
    """An object of strings, or a list of `name` and `name=value`."""
    if isinstance(value, list):
        return _listed_labels([_text(each) for each in value])
    if isinstance(value, dict):
        return {name: each if each is None else _text(each) for name, each in value.items()}
    raise InvalidInput(_("expected an object of strings or a list of strings"), code="wrong_type")


def _listed_labels(words: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        wanted = value if equals else None
        if found.setdefault(name, wanted) != wanted:
            raise InvalidInput(_("the label {name!r} has two values", name=name), code="duplicate")
    return found


def _content(value: object) -> str:
    """Text, or JSON as text."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else _text(value)


class TriggerPart(BaseModel):
    """Base of the models that document triggers; `chimes.triggers` checks the values."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=without_defaults)


class WeeklyWindow(TriggerPart):
    """Hours of some weekdays."""

    days: list[str]
    start: str = Field(alias="from")
    end: str = Field(alias="to")


class CalendarEntry(TriggerPart):
    """Times that are not slots: exactly one of `dates`, `holidays`, `weekly`, `ranges` and
    `calendar`."""

    dates: list[str] = Field(default=OMITTED, min_length=1)
    holidays: str = OMITTED
    weekly: list[WeeklyWindow] = Field(default=OMITTED, min_length=1)
    ranges: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(
        default=OMITTED, min_length=1
    )
    calendar: str = OMITTED
    on_excluded: Literal["skip", "next", "previous"] = OMITTED


class BoundedTrigger(TriggerPart):
    start_at: str = OMITTED
    end_at: str = OMITTED
    max_runs: int = Field(default=OMITTED, ge=1)
    exclude: CalendarEntry | Annotated[list[CalendarEntry], Field(max_length=16)] = OMITTED
    jitter: str = OMITTED
    spread: str = OMITTED


class CronTrigger(BoundedTrigger):
    """Fires at the times of a cron expression."""

    kind: Literal["cron"]
    expression: str = Field(max_length=256)
    timezone: str = OMITTED
    dialect: Literal["auto", "unix", "seconds", "quartz"] = OMITTED
    dst: Literal["chimes", "vixie", "robfig"] = OMITTED
    anchor: str = OMITTED


class EveryTrigger(BoundedTrigger):
    """Fires at a fixed interval."""

    kind: Literal["every"]
    every: str
    anchor: str = OMITTED


class OnceTrigger(BoundedTrigger):
    """Fires once."""

    kind: Literal["once"]
    at: str
    timezone: str = OMITTED


class RRuleTrigger(BoundedTrigger):
    """Fires by a recurrence rule of RFC 5545."""

    kind: Literal["rrule"]
    rule: str = Field(max_length=2048)
    dtstart: str
    timezone: str = OMITTED
    exdates: list[str] = Field(default=OMITTED, max_length=1000)
    rdates: list[str] = Field(default=OMITTED, max_length=1000)


class BusinessDayTrigger(BoundedTrigger):
    """Fires on the nth, or nth last, business day of each month."""

    kind: Literal["business_day"]
    day: int = Field(ge=-23, le=23)
    at: str
    calendar: str = OMITTED
    timezone: str = OMITTED


class SunTrigger(BoundedTrigger):
    """Fires at sunrise or sunset."""

    kind: Literal["sun"]
    event: Literal["sunrise", "sunset"]
    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)
    offset: str = OMITTED
    timezone: str = OMITTED


class TimeTrigger(
    RootModel[
        Annotated[
            CronTrigger
            | EveryTrigger
            | OnceTrigger
            | RRuleTrigger
            | BusinessDayTrigger
            | SunTrigger,
            Field(discriminator="kind"),
        ]
    ]
):
    """A trigger with planned times, as part of a union; unions may be nested, too."""


class AnyTrigger(BoundedTrigger):
    """Fires when one of several triggers fires, unless one of others fires at the same instant."""

    kind: Literal["any"]
    of: list[TimeTrigger] = Field(min_length=1, max_length=32)
    except_: list[TimeTrigger] = Field(default=OMITTED, alias="except", max_length=32)


class BatchOptions(TriggerPart):
    """Collects events until there are `count` of them, or `within` after the first."""

    count: int = Field(ge=2, le=1000)
    within: str


class PacedTrigger(TriggerPart):
    debounce: str = OMITTED
    throttle: str = OMITTED
    batch: BatchOptions = OMITTED


class WebhookTrigger(PacedTrigger):
    """Fires on a request to the `hook_url` of the schedule."""

    kind: Literal["webhook"]
    scheme: Literal["none", "standard", "github", "stripe"] = OMITTED
    secret: str = OMITTED


class RunEndTrigger(PacedTrigger):
    """Fires when a run of another schedule ends."""

    kind: Literal["run_end"]
    schedule: str
    status: list[
        Literal["succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown"]
    ] = OMITTED


class FileTrigger(PacedTrigger):
    """Fires when a file appears or changes."""

    kind: Literal["file"]
    path: str = Field(max_length=4096)


class SqlTrigger(PacedTrigger):
    """Fires when a query begins to find something."""

    kind: Literal["sql"]
    connection: str
    query: str = Field(max_length=20_000)
    interval: str = OMITTED


TriggerModel = (
    CronTrigger
    | EveryTrigger
    | OnceTrigger
    | AnyTrigger
    | RRuleTrigger
    | BusinessDayTrigger
    | SunTrigger
    | WebhookTrigger
    | RunEndTrigger
    | FileTrigger
    | SqlTrigger
)


class Trigger(RootModel[Annotated[TriggerModel, Field(discriminator="kind")]]):
    """When a schedule fires; `kind` decides which fields it has."""


class DocumentedAs:
    """Documents a value that something else checks as this type."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(TypeAdapter(self._kind).core_schema)


DURATION_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "ISO 8601 (PT1H30M) or Go style (1h30m); responses have ISO 8601.",
    "examples": ["PT10S", "1h30m"],
}
MOMENT_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "RFC 3339, RFC 9557 (…[Asia/Bangkok]), or local time together with a timezone.",
    "examples": ["2030-02-10T09:00:00Z"],
}

if TYPE_CHECKING:
    _TriggerType = TriggerValue
else:
    # Pydantic would look into the values, which refer to each other.
    _TriggerType = Any
TriggerField = Annotated[
    _TriggerType, PlainValidator(as_pydantic_error(trigger_from_dict)), DocumentedAs(Trigger)
]
DurationField = Annotated[
    timedelta, PlainValidator(as_pydantic_error(_duration)), WithJsonSchema(DURATION_SCHEMA)
]
LabelsField = Annotated[
    dict[str, str | None],
    PlainValidator(as_pydantic_error(_labels)),
    DocumentedAs(LabelMap | list[str]),
]
ContentField = Annotated[
    str,
    PlainValidator(as_pydantic_error(_content)),
    DocumentedAs(str | JsonObject | list[JsonValue] | None),
]
#: Parsed later: the zone of a local time may be in another field.
MomentField = Annotated[str, WithJsonSchema(MOMENT_SCHEMA)]


# Action and message targets


class AccountIn(Body):
    id: str = ""
    type: str = ""


Identities = Annotated[
    list[dict[str, JsonValue]],
    Field(
        max_length=MAX_IDENTITIES,
        description="Objects of the action; aliases: `unique_identities`, `_instance_identities`.",
    ),
]
ActionParams = Annotated[dict[str, JsonValue], Field(description="Alias: `dynamic_params`.")]


# Recipients


def _clock(value: object) -> time:
    if isinstance(value, str):
        hour, colon, minute = value.partition(":")
        if colon and len(minute) == 2 and (hour + minute).isdecimal() and len(hour) <= 2:
            try:
                return time(int(hour), int(minute))
            except ValueError:
                pass
    raise validation_error("bad_clock", _("expected a time of day such as 07:30"))


def _notify_on(value: object) -> NotifyOn:
    for each in SELECTABLE_EVENTS:
        if value == each.value:
            return each
    raise validation_error(
        "unknown_occasion", _("expected success, failure, recovery, late or always")
    )


ClockField = Annotated[
    time,
    PlainValidator(_clock),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}$", "example": "07:30"}),
]
NotifyOnField = Annotated[
    NotifyOn,
    PlainValidator(_notify_on),
    WithJsonSchema({"type": "string", "enum": [each.value for each in SELECTABLE_EVENTS]}),
]


#: Types of fields that a request may send in another form than their type says.
_REQUEST_TYPES: Mapping[tuple[type[Struct], str], Any] = {
    (HttpTarget, "body"): ContentField,
    (HttpTarget, "method"): Annotated[str, AfterValidator(str.upper)],
    (AmqpTarget, "body"): ContentField,
    (NatsTarget, "body"): ContentField,
    (KafkaTarget, "body"): ContentField,
    (ActionTarget, "identities"): Identities,
    (ActionTarget, "params"): ActionParams,
    (Recipient, "to"): Annotated[str | int, AfterValidator(lambda value: str(value).strip())],
}


def request_type(struct: type[Struct], field: ModelField) -> Any:
    """The type of a field in requests, with its limits."""
    about = field.about
    if special := _REQUEST_TYPES.get((struct, field.name)):
        return special
    if about.words or about.texts:
        return Literal[about.words or about.texts]
    kind = type_in_json(field, lambda each: _request_value(each, about))
    at_most = len(SELECTABLE_EVENTS) if field.item is NotifyOn else about.at_most
    if at_most is not None:
        kind = Annotated[kind, Field(max_length=at_most)]
    return kind | None if field.nullable else kind


def _request_value(kind: Any, about: About) -> Any:
    if about.between is not None:
        least, most = about.between
        return Annotated[kind, Field(ge=least, le=most)]
    known = {timedelta: DurationField, time: ClockField, NotifyOn: NotifyOnField, **Body.parts}
    if is_enum(kind) and kind not in known:
        return Annotated[kind, EnumField]
    return JsonValue if kind is object else leaf_type(kind, known)


def request_default(field: ModelField, description: str | None) -> Any:
    more: dict[str, Any] = {} if field.json == field.name else {"alias": field.json}
    if description is not None:
        more["description"] = description
    default = field.default
    if default is NODEFAULT or (field.name == "kind" and default != "http"):
        return Field(**more)
    if isinstance(default, tuple | Mapping):
        plain = dict(default) if isinstance(default, Mapping) else list(default)
        return Field(default_factory=partial(copy.copy, plain), **more)
    return Field(default=field.about.words[default] if field.about.words else default, **more)


class QuietIn(Body):
    """Quiet hours: notifications wait for their end. They may span midnight."""

    structs = (QuietHours,)


class DigestIn(Body):
    """One message per period instead of one per run. The period alone is enough: `"day"`."""

    structs = (Digest,)

    @model_validator(mode="before")
    @classmethod
    def _from_period(cls, data: Any) -> Any:
        return {"every": data, "at": _default_at(data)} if isinstance(data, str) else data


def _default_at(every: str) -> str:
    return "00:00" if every == Period.HOUR else "08:00"


class RecipientIn(Body):
    """A recipient of notifications. `signing_secrets` of a webhook are returned as `***`; a sent
    `***` keeps the stored value."""

    structs = (Recipient,)


Namespace = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Remark = Annotated[str, Field(max_length=1000)]
PRIORITY_DESCRIPTION = "Default: that of the task or flow."

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
    type: Annotated[OwnerType, EnumField] = OwnerType.USER
    id: Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


class HttpTargetIn(Body):
    """An HTTP callback. `body` may be text or JSON; placeholders such as `{{run_id}}` are filled
    per attempt. `signing_secrets` are returned as `***`; a sent `***` keeps the stored value."""

    structs = (HttpTarget,)


class TaskTargetIn(Body):
    """A Python task of an application, by name. Secret values of `args` are returned as `***`; a
    sent `***` keeps the stored value."""

    structs = (TaskTarget,)


class FlowTargetIn(Body):
    """A flow of an application, by name; its steps are child runs."""

    structs = (FlowTarget,)


class SyncTargetIn(Body):
    """Synchronises a collection of a source in `chimes.yaml`. At most one run of a source and
    collection is active."""

    structs = (SyncTarget,)


class AgentTargetIn(Body):
    """A prompt for the configured agent pipeline (`CHIMES_AGENT_PIPELINE`). Its response is the
    result of the run; nothing in it is executed."""

    structs = (AgentTarget,)


class ActionTargetIn(ActionBody):
    """An action type of a knowledge network, executed by the configured action service
    (`CHIMES_ACTION_URL`). Secret values of `params` are returned as `***`; a sent `***` keeps the
    stored value."""

    structs = (ActionTarget,)

    account: AccountIn = Field(
        default_factory=AccountIn,
        description="Account that the action is executed for: X-Account-Id, X-Account-Type.",
    )


class MessageTargetIn(Body):
    """A text (Markdown), such as a reminder, for the recipients of the schedule; without recipients
    for the inbox of the owner."""

    structs = (MessageTarget,)


class CommandTargetIn(Body):
    """A program on a worker that allows commands (`CHIMES_ALLOW_COMMANDS`): either `command` or
    `shell`. Secret values of `env` are returned as `***`; a sent `***` keeps the stored value."""

    structs = (CommandTarget,)


class CeleryTargetIn(Body):
    """A task of Celery workers, with the run id as its id. The run ends as the task ends. Secret
    values are returned as `***`; a sent `***` keeps the stored value."""

    structs = (CeleryTarget,)


class DaskTargetIn(Body):
    """A function on the workers of a Dask cluster, with the run id as its key."""

    structs = (DaskTarget,)


class KubernetesTargetIn(Body):
    """A Job of a Kubernetes cluster, with a name made of the run id."""

    structs = (KubernetesTarget,)


class AmqpTargetIn(Body):
    """A message that an AMQP broker such as RabbitMQ confirms; `message_id` is the run id."""

    structs = (AmqpTarget,)


class NatsTargetIn(Body):
    """A message for NATS JetStream, acknowledged by it; `Nats-Msg-Id` is the run id."""

    structs = (NatsTarget,)


class RedisStreamTargetIn(Body):
    """An entry of a Redis stream; its field `message_id` is the run id."""

    structs = (RedisStreamTarget,)


class KafkaTargetIn(Body):
    """A record of a Kafka topic; its header `message-id` is the run id."""

    structs = (KafkaTarget,)


AnyTargetIn = (
    HttpTargetIn
    | TaskTargetIn
    | FlowTargetIn
    | SyncTargetIn
    | AgentTargetIn
    | ActionTargetIn
    | MessageTargetIn
    | CommandTargetIn
    | CeleryTargetIn
    | DaskTargetIn
    | KubernetesTargetIn
    | AmqpTargetIn
    | NatsTargetIn
    | RedisStreamTargetIn
    | KafkaTargetIn
)
TargetIn = TypeAliasType(
    "TargetIn",
    Annotated[AnyTargetIn, Field(discriminator="kind"), BeforeValidator(with_kind)],
)


def _refuse_scalar(value: object) -> object:
    """One error for the field. Pydantic reports one for each member of a union."""
    if not isinstance(value, dict | list):
        raise validation_error("dict_type", _("expected an object or a list"))
    return value


class TargetPatch(ActionBody):
    """Changes of a target. Without `kind`, or with the same kind, only the sent fields change;
    another kind replaces the target. Only fields of the kind are allowed."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    structs = tuple(TARGETS.values())

    kind: Literal[TARGET_KINDS] = "http"  # type: ignore[valid-type]
    account: AccountIn = Field(default_factory=AccountIn)
    #: Arguments of a task are named, those of Celery and Dask are a list.
    args: Annotated[dict[str, JsonValue] | list[JsonValue], BeforeValidator(_refuse_scalar)] = (
        Field(default_factory=dict)
    )

    @staticmethod
    def derive(struct: type[Struct], field: ModelField) -> tuple[Any, Any]:
        """Nothing is required; the fields are documented with their kind."""
        default = "" if field.default is NODEFAULT else field.default
        return request_type(struct, field), request_default(replace(field, default=default), None)


DeliveryField = Annotated[
    list[RecipientIn],
    Field(
        max_length=MAX_RECIPIENTS,
        description="Recipients of notifications; default for an agent: the inbox of the owner.",
    ),
]


class PolicyIn(Body):
    """Omitted fields default to those of the task or flow, else to those of the server; in a PATCH
    they stay as they are."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    structs = (Policy,)
    without = ("delivery",)


class DependencyIn(Body):
    """Runs only if the other schedule succeeded within this time."""

    structs = (Dependency,)


class ScheduleIn(Body):
    read_only: ClassVar[frozenset[str]] = SCHEDULE_READ_ONLY

    id: str | None = Field(default=None, description="Default: generated by the server.")
    namespace: Namespace = DEFAULT_NAMESPACE
    name: str
    owner: OwnerIn | None = Field(
        default=None, description="Default: the caller. Only an admin may set another owner."
    )
    trigger: TriggerField
    target: TargetIn
    policy: PolicyIn = Field(default_factory=PolicyIn)
    priority: int = Field(default=0, description=PRIORITY_DESCRIPTION)
    labels: LabelsField = Field(default_factory=dict)
    enabled: bool = True
    depends_on: DependencyIn | None = None
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_SCHEDULE]})


class AppliedScheduleIn(ScheduleIn):
    """A schedule of a set: the body of `POST /api/v1/schedules` without the name. Without `enabled`
    an existing schedule stays paused or active. A secret sent as `***` keeps the stored value."""

    read_only: ClassVar[frozenset[str]] = SCHEDULE_READ_ONLY | {"name"}

    name: str = ""

    @staticmethod
    def _describe(schema: dict[str, Any]) -> None:
        del schema["properties"]["name"]

    model_config = ConfigDict(json_schema_extra=_describe)


SchedulesField = Annotated[
    dict[str, AppliedScheduleIn], Field(max_length=1000, description="Schedules by name.")
]


class ScheduleFileIn(Body):
    """A file for `chimes apply`."""

    schedules: SchedulesField


class ApplyIn(Body):
    schedules: SchedulesField
    prune: bool = Field(
        default=False,
        description="Also delete schedules of the same origin that are not in `schedules`, in"
        " `namespace` and in the namespaces of the items.",
    )
    namespace: Namespace = Field(
        default=DEFAULT_NAMESPACE, description="Namespace of items that name none."
    )
    origin: Annotated[str, Field(max_length=ID_LIMIT)] = Field(
        default="api",
        description="Where the schedules come from, for example the name of a file. They are marked"
        " with it. Empty: mark nothing, as for an edit.",
    )
    expected_digest: str | None = Field(
        default=None, description="`digest` of the plan to apply; 409 if it has become another."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "schedules": {
                        str(EXAMPLE_SCHEDULE["name"]): {
                            name: value
                            for name, value in EXAMPLE_SCHEDULE.items()
                            if name != "name"
                        }
                    }
                }
            ]
        }
    )


class DuplicateIn(Body):
    name: str = Field(default="", description="Default: `NAME (2)`, or the next free number.")
    paused: bool = Field(default=False, description="Create the copy paused.")


class SchedulePatch(Body):
    """Omitted fields stay as they are. `trigger`, `labels` and `delivery` are replaced as a whole,
    `target` and `policy` are merged."""

    read_only: ClassVar[frozenset[str]] = SCHEDULE_READ_ONLY | {"id", "namespace", "owner"}

    name: str = ""
    trigger: TriggerField = OMITTED
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
    reason: Remark = Field(default="", description="Alias of `note`.")
    until: MomentField | None = None
    timezone: str | None = None


class BulkIn(Body):
    """One action on many schedules: those with these `ids`, or all that match the filter `q`."""

    action: Literal["pause", "resume", "delete", "run"] = Field(examples=["pause"])
    ids: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    q: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None,
        description="A filter, as `q` of the list; not empty.",
        examples=["label:billing status:enabled"],
    )
    reason: Remark = Field(default="", description="Reason of a pause.")
    until: MomentField | None = Field(default=None, description="When a pause ends by itself.")
    timezone: str | None = Field(default=None, description="Zone of `until` if it has none.")
    dry_run: bool = Field(default=False, description="Only list what would be done.")
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1000, description="At most this many schedules; `next_cursor` continues."
    )
    cursor: Annotated[str, Field(max_length=2000)] | None = Field(
        default=None, description="`next_cursor` of the request before, with the same body."
    )


class MaintenanceIn(Body):
    namespace: Namespace | None = Field(
        default=None, description="Only this namespace. Default: the whole instance."
    )
    until: MomentField | None = Field(default=None, description="When it ends by itself.")
    timezone: str | None = Field(default=None, description="Zone of `until` if it has none.")
    reason: Remark = Field(default="", description="Shown to all users.")
    silence: bool = Field(default=False, description="Send no notifications meanwhile.")


class ReasonIn(Body):
    reason: Remark = ""


class StartIn(Body):
    """A run without a schedule."""

    read_only: ClassVar[frozenset[str]] = frozenset({"id", "status", "result", "attempt", "fence"})

    target: TargetIn
    name: str = Field(default="", description="Name of the run in lists and notifications.")
    policy: PolicyIn = Field(default_factory=PolicyIn)
    namespace: Namespace = DEFAULT_NAMESPACE
    owner: OwnerIn | None = Field(
        default=None, description="Default: the caller. Only an admin may set another owner."
    )
    priority: int = Field(default=0, description=PRIORITY_DESCRIPTION)
    at: MomentField | None = Field(default=None, description="Default: now.")
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
        description="Start at once even if the limit of the schedule is reached; not for sync.",
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Values for this run only, merged by name into the arguments of a task, the"
        " input of a flow, the parameters of an action or the JSON body of an HTTP call.",
    )
    body: ContentField = Field(default="", description="Body of the HTTP call, for this run only.")
    prompt: str = Field(default="", description="Prompt of the agent, for this run only.")
    text: str = Field(default="", description="Text of the message, for this run only.")


class TimeIn(Body):
    to: MomentField
    timezone: str | None = None


class BackfillIn(Body):
    """A range of past slots; both ends are included."""

    start: MomentField = Field(alias="from")
    end: MomentField = Field(alias="to")
    timezone: str | None = None
    dry_run: bool = False
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="Maximum of concurrent runs; default: that of the schedule."
    )
    overlap: Literal["queue", "allow"] = Field(
        default="queue",
        description="queue: wait for other runs of the schedule; allow: run beside them.",
    )


class EmptyIn(Body):
    """An empty object or no body."""


LanguageField = Annotated[
    str | None,
    Field(description="Language of the text: en, th or zh; default: see Accept-Language."),
]


#: Triggers of one preview.
MAX_PREVIEWED = 5000


class PreviewIn(Body):
    """Either one trigger or many."""

    trigger: TriggerField = OMITTED
    triggers: Annotated[list[JsonObject], Field(min_length=1, max_length=MAX_PREVIEWED)] = Field(
        default=OMITTED,
        description="Many triggers instead of `trigger`. The answer has `items` in their order;"
        " an item that is not valid has `error` instead of fires. At most 100,000 fires together.",
    )
    lang: LanguageField = None
    count: Annotated[int, Field(ge=1, le=100)] = 5
    after: MomentField | None = Field(
        default=None, alias="from", description="Fires after this time; default: now."
    )
    id: str | None = Field(
        default=None,
        max_length=200,
        description="Id of the schedule, which decides hashed fields (`H`) of a cron expression.",
    )
    name: str | None = Field(
        default=None,
        max_length=200,
        description="Without an id, hashed fields are an example for this name.",
    )


class ExplainIn(Body):
    """Either a trigger or a cron expression."""

    trigger: TriggerField = OMITTED
    expression: str | None = None
    timezone: str | None = None
    lang: LanguageField = None


class KeyIn(Body):
    name: str = Field(json_schema_extra={"minLength": 1})
    role: Annotated[Role, EnumField]
    owner: OwnerIn | None = None
    scopes: list[Annotated[Scope, EnumField]] = Field(
        default_factory=list,
        max_length=len(Scope),
        description="Restricts the rights of the role; empty for all of them.",
    )
    expires_at: MomentField | None = None
    expires_in: DurationField = OMITTED
