"""Stored JSON of schedules, policies, targets, recipients and owners: a `Codec` for each Struct,
and envelopes around their secrets (ADR 52).

Reading is strict: a value of the wrong type and an unknown field are errors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from datetime import UTC, datetime, time, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, NewType, TypeVar, get_origin

from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import asdict
from msgspec.structs import replace as replace_struct

from chimes.clock import EPOCH, MICROSECOND
from chimes.envelope import Keyring, key_of, open_sealed
from chimes.errors import InvalidInput, message_of
from chimes.i18n import _, from_stored, to_stored
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.fields import MESSAGE, Field, clock_text, fields_of, is_enum, is_struct
from chimes.model.policy import Policy
from chimes.model.recipient import Digest, Recipient
from chimes.model.routing import NO_ROUTING, Routing
from chimes.model.run import Cause, Run, RunDefinition
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import TARGETS, ActionTarget, HttpTarget, Target, TaskTarget
from chimes.redaction import SEALED, has_secrets, is_sealed, may_have_secrets, replace_secrets
from chimes.triggers import Trigger, trigger_from_dict

# --- strict reading of JSON data ------------------------------------------------------------------
T = TypeVar("T")
Plain = dict[str, object]


def to_text(moment: datetime) -> str:
    second, micros = divmod((moment - EPOCH) // MICROSECOND, 1_000_000)
    return f"{_second(second)}.{micros:06}Z" if micros else f"{_second(second)}Z"


# Cached: many times share the same second.
@lru_cache(maxsize=1024)
def _second(number: int) -> str:
    return (EPOCH + timedelta(seconds=number)).isoformat()[:-6]


def maybe_text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def drop_empty(data: Mapping[str, object]) -> Plain:
    """Drop None, "", 0, False and empty collections. `Reader` uses these as defaults, so rows stay
    small and old rows still load."""
    return {name: value for name, value in data.items() if value}


class Reader:
    """Typed access to one JSON object; `done` rejects keys that were not read."""

    def __init__(self, data: object) -> None:
        self._data = _object(data)
        self._read_names: set[str] = set()

    def done(self) -> None:
        reject_unknown(self._data.keys() - self._read_names)

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        return self._get(name, str, default)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._get(name, int, default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._get(name, bool, default)

    def mapping(self, name: str) -> dict[str, object]:
        return self._get(name, dict, {})

    def items(self, name: str) -> list[object]:
        return self._get(name, list, [])

    def time(self, name: str) -> datetime:
        return self.read(name, moment)

    def maybe_time(self, name: str) -> datetime | None:
        return self.time(name) if self._present(name) else None

    def read(self, name: str, how: Callable[[object], T]) -> T:
        self._read_names.add(name)
        found: T = Part(name, how)(self._data.get(name))
        return found

    def _present(self, name: str) -> bool:
        self._read_names.add(name)
        return self._data.get(name) is not None

    def _get(self, name: str, kind: type[T], default: T | None) -> T:
        if not self._present(name):
            if default is None:
                raise missing_field(name)
            return default
        found: T = checked(name, kind)(self._data[name])
        return found


def moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise InvalidInput(_("expected a time, got {type}", type=type(value).__name__))
    parsed = datetime.fromisoformat(value)
    if parsed.tzinfo is None:
        raise InvalidInput(_("{value!r} has no offset", value=value), code="naive_time")
    return parsed.astimezone(UTC)


# --- codec of Structs -----------------------------------------------------------------------------
Read = Callable[[Any], Any]
Write = Callable[[Any], Any]
S = TypeVar("S", bound=Struct)


class Codec(Generic[S]):
    """Converts a Struct to plain JSON data and back, as its fields are declared.

    A field without a value is read as its default. A field that equals an empty default (None, "",
    0, False, an empty collection) is not written, so that rows stay small and a new field changes
    no row; one with another default is always written, so that rows keep their meaning when the
    default changes. The arguments name the exceptions.
    """

    def __init__(
        self,
        kind: type[S],
        *,
        always: Collection[str] = (),
        unless_default: Collection[str] = (),
        required: Collection[str] = (),
        missing: Mapping[str, object] = MappingProxyType({}),
        without: Collection[str] = (),
        read: Mapping[str, Read] = MappingProxyType({}),
        name_of: Callable[[Field], str] = attrgetter("stored"),
        reader: Callable[[Field, str], Read] | None = None,
    ) -> None:
        """`always`: written even if empty; `unless_default`: not written if it has its default;
        `required`: an error if missing, in spite of a default; `missing`: what a missing one means;
        `without`: neither read nor written; `read`: readers of single fields. `name_of` and
        `reader` are for another form of JSON than the stored one, which is only read."""
        self.kind = kind
        self._without = tuple(without)
        #: Field, name, reader, value if missing (UNSET: that of the Struct; NODEFAULT: an error).
        self._readers: list[tuple[str, str, Read, Any]] = []
        #: Always written: field and writer.
        self._converted: list[tuple[str, Write]] = []
        #: Not written if it has this value: field, value, writer.
        self._optional: list[tuple[str, Any, Write | None]] = []
        self._renamed: list[tuple[str, str]] = []
        for each in fields_of(kind):
            if each.name in without:
                continue
            default = each.default
            if each.name in required or default is not NODEFAULT:
                meaning: Any = NODEFAULT if each.name in required else UNSET
            else:
                meaning = default = None if each.nullable else NODEFAULT
            meaning = missing.get(each.name, meaning)
            stored = name_of(each)
            item_reader = read.get(each.name) or (reader or field_reader)(each, stored)
            self._readers.append((each.name, stored, item_reader, meaning))
            write, usual = _writer(each), missing.get(each.name, default)
            if each.name in unless_default or (not usual and each.name not in always):
                self._optional.append((each.name, usual, write))
            elif write is not None:
                self._converted.append((each.name, _or_none(write) if each.nullable else write))
            if stored != each.name:
                self._renamed.append((each.name, stored))
        self.names = frozenset(stored for _name, stored, _read, _default in self._readers)

    def encode(self, value: S) -> Plain:
        plain: Plain = asdict(value)
        for name in self._without:
            del plain[name]
        for name, write in self._converted:
            plain[name] = write(plain[name])
        for name, usual, optional_write in self._optional:
            if plain[name] == usual:
                del plain[name]
            elif optional_write is not None:
                plain[name] = optional_write(plain[name])
        for name, stored in self._renamed:
            if name in plain:
                plain[stored] = plain.pop(name)
        return plain

    def decode(self, data: object, /, *, beside: Set[str] = frozenset(), **more: Any) -> S:
        """`beside`: names of other values in the same object; `more`: fields that are not read."""
        if not isinstance(data, dict):
            data = _object(data)
        for name, stored, read, meaning in self._readers:
            value = data.get(stored)
            if value is not None:
                more[name] = read(value)
            elif meaning is NODEFAULT:
                more[name] = _read_missing(stored, read)
            elif meaning is not UNSET:
                more[name] = meaning
        if not data.keys() <= self.names:
            reject_unknown(data.keys() - self.names - beside)
        return self.kind(**more)


def _or_none(write: Write) -> Write:
    return lambda value: None if value is None else write(value)


def _read_missing(stored: str, read: Read) -> object:
    if isinstance(read, Part):
        # The error says what is expected.
        return read(None)
    raise missing_field(stored)


def missing_field(name: str) -> InvalidInput:
    return InvalidInput(_("{field} is missing", field=name), field=name, code="missing")


def reject_unknown(names: Iterable[object]) -> None:
    """Unknown keys would be lost at the next write."""
    if unknown := sorted(str(name) for name in names):
        raise InvalidInput(
            _("unknown field {unknown!r}", unknown=unknown[0]), field=unknown[0], code="unknown"
        )


class Part:
    """Reads a part of an object, also a missing one; errors name the part."""

    def __init__(self, name: str, read: Read) -> None:
        self._name = name
        self._read = read

    def __call__(self, value: object) -> Any:
        try:
            return self._read(value)
        except InvalidInput as error:
            raise error.within(self._name) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(message_of(error), field=self._name) from None


class _Trigger(Part):
    """Errors name the fields of the trigger, not the trigger."""

    def __call__(self, value: object) -> object:
        return self._read({} if value is None else value)


def field_reader(field: Field, name: str) -> Read:
    """The reader of a field in stored JSON."""
    kind, item = field.type, field.item
    if part := _part_reader(kind):
        return Part(name, part)
    if get_origin(kind) is Mapping:
        return _mapping_reader(item, name)
    if item is not None:
        each = _item_reader(item)
        return checked(name, list, lambda given: tuple([each(one) for one in given]))
    if is_enum(kind):
        member = _enum_reader(kind)
        if field.nullable:
            return checked(name, str, lambda text: member(text) if text else None)
        return checked(name, str, member)
    if isinstance(kind, NewType):
        return checked(name, str, (lambda id: id or None) if field.nullable else None)
    if kind is timedelta:
        return checked(name, int, lambda micros: timedelta(microseconds=micros))
    if kind is time:
        return checked(name, str, time.fromisoformat)
    if field.mark == MESSAGE:
        return checked(name, str, from_stored)
    if get_origin(kind) is Literal:
        return checked(name, str)
    assert kind in (str, int, bool), f"{name}: there is no stored form of {kind}"
    return checked(name, kind)


def _mapping_reader(item: Any, name: str) -> Read:
    if item is object:
        return checked(name, dict)
    if item is str:
        return checked(name, dict, lambda given: {n: str(v) for n, v in given.items()})
    return Part(name, labels_from_plain)


def _part_reader(kind: Any) -> Read | None:
    if kind is datetime:
        return moment
    if kind == Target:
        return target_from_plain
    return codec_of(kind).decode if is_struct(kind) else None


def _item_reader(kind: Any) -> Read:
    if is_struct(kind):
        return codec_of(kind).decode
    if is_enum(kind):
        member = _enum_reader(kind)
        return lambda value: member(str(value))
    if kind is int:
        return _int
    if kind is object:
        return _any_json
    return str if kind is str else _object


def _enum_reader(kind: type[Enum]) -> Read:
    # Faster than the constructor, which is only called for its error.
    members = {each.value: each for each in kind}
    return lambda value: members.get(value) or kind(value)


def checked(name: str, expected: type, convert: Read | None = None) -> Read:
    """A reader of one type of JSON values; a flag is no number."""

    def read(value: object) -> object:
        if type(value) is not expected and (
            not isinstance(value, expected) or isinstance(value, bool)
        ):
            raise wrong_type(name, expected, value)
        return value if convert is None else convert(value)

    return read


def wrong_type(name: str, expected: type, value: object) -> InvalidInput:
    return InvalidInput(
        _(
            "{field}: expected {expected}, got {given}",
            field=name,
            expected=expected.__name__,
            given=type(value).__name__,
        ),
        field=name,
    )


def _writer(field: Field) -> Write | None:
    """None: written as it is."""
    kind, item = field.type, field.item
    if field.mark == MESSAGE:
        return to_stored
    if get_origin(kind) is tuple:
        each = _item_writer(item)
        return list if each is None else lambda values: [each(one) for one in values]
    return dict if item is not None else _item_writer(kind)


def _item_writer(kind: Any) -> Write | None:
    if is_struct(kind):
        return codec_of(kind).encode
    if is_enum(kind):
        # In C, unlike `value`.
        return attrgetter("_value_")
    if kind == Target:
        return target_to_plain
    if get_origin(kind) is Mapping:
        return dict
    if kind == Trigger:
        return lambda trigger: trigger.to_dict()
    writers: Mapping[Any, Write] = {timedelta: _micros, datetime: to_text, time: clock_text}
    return writers.get(kind)


#: Codecs with exceptions; other Structs have none.
_CODECS: dict[type[Struct], Codec[Any]] = {}


def codec_of(kind: type[S]) -> Codec[S]:
    if kind not in _CODECS:
        _CODECS[kind] = Codec(kind)
    return _CODECS[kind]


def declare_codec(kind: type[S], **exceptions: Any) -> Codec[S]:
    _CODECS[kind] = Codec(kind, **exceptions)
    return _CODECS[kind]


# Cached: few different durations are in use.
@lru_cache(maxsize=1024)
def _micros(duration: timedelta) -> int:
    return duration // MICROSECOND


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(_("expected a whole number, got {value!r}", value=value))
    return value


def _any_json(value: object) -> object:
    return value


def _object(data: object) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise InvalidInput(_("expected an object, got {type}", type=type(data).__name__))
    return data


def labels_from_plain(data: object) -> dict[str, str | None]:
    found = {} if data is None else _object(data)
    return {str(name): None if value is None else str(value) for name, value in found.items()}


# --- schedules and their parts --------------------------------------------------------------------
_owner = codec_of(Owner)
owner_to_plain = _owner.encode


def owner_from_plain(data: object) -> Owner:
    return SYSTEM_OWNER if data is None else _owner.decode(data)


# The time of a digest was always written.
declare_codec(Digest, required=("at",))
# Only written if set, so that older versions can read recipients without it.
_recipient = declare_codec(
    Recipient, unless_default=("late_after", "envelope", "after"), missing={"on": ()}
)
recipient_to_plain = _recipient.encode
recipient_from_plain = _recipient.decode

_routing = codec_of(Routing)
routing_to_plain = _routing.encode


def routing_from_text(text: str | None) -> Routing:
    """From the value of the checkpoint; no rules if it cannot be read."""
    try:
        return _routing.decode(json.loads(text)) if text else NO_ROUTING
    except (ValueError, TypeError, KeyError, InvalidInput):
        return NO_ROUTING


_policy = declare_codec(Policy, always=("max_concurrent_runs", "burst_allowed", "max_retries"))
policy_to_plain = _policy.encode
policy_from_plain = _policy.decode

declare_codec(HttpTarget, unless_default=("verify_tls",))
declare_codec(ActionTarget, missing={"branch": ""})


def target_to_plain(target: Target) -> Plain:
    return codec_of(type(target)).encode(target)


def target_from_plain(data: object) -> Target:
    kind = _object(data).get("kind")
    if kind is None:
        raise missing_field("kind")
    if not isinstance(kind, str):
        raise wrong_type("kind", str, kind)
    if kind not in TARGETS:
        raise InvalidInput(_("unknown kind of target {kind!r}", kind=kind), field="kind")
    return codec_of(TARGETS[kind]).decode(data)


def dependency_from_plain(data: Mapping[str, object]) -> Dependency | None:
    return codec_of(Dependency).decode(data) if data else None


_schedule = declare_codec(
    Schedule,
    required=("policy",),
    missing={"name": ""},
    read={
        "trigger": _Trigger("trigger", checked("trigger", dict, trigger_from_dict)),
        "depends_on": checked("depends_on", dict, dependency_from_plain),
    },
)
schedule_to_plain = _schedule.encode
schedule_from_plain = _schedule.decode


_cause = codec_of(Cause)
cause_to_plain = _cause.encode
cause_from_plain = _cause.decode


# --- definitions of runs --------------------------------------------------------------------------
# Stores keep equal definitions once, under a key that is computed from their contents. The
# arguments of a task that was enqueued without a schedule are not part of its definition but of the
# run: all runs of the task share one definition.

#: A definition in use is marked as used once in this time. Retention deletes definitions whose mark
#: is older than the history, so that it never deletes one that a process still uses.
USED_INTERVAL = timedelta(days=1)


def content_digest(text: str) -> str:
    """Practically unique for the text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def split_args(run: Run) -> tuple[RunDefinition, Mapping[str, object] | None]:
    """The definition to store, and the arguments that are stored with the run."""
    definition = run.definition
    target = definition.target
    if definition.schedule_id is None and type(target) is TaskTarget:
        return replace(definition, target=replace(target, args={})), target.args
    return definition, None


def with_args(definition: RunDefinition, args: Mapping[str, object]) -> RunDefinition:
    """The reverse of `split_args`."""
    target = definition.target
    assert isinstance(target, TaskTarget)
    return replace_struct(definition, target=replace_struct(target, args=args))


# --- secrets --------------------------------------------------------------------------------------
# Each value that redaction recognises is replaced by an envelope. A whole text, list or object is
# sealed, never a part of a text: a URL with a password is one envelope. What stores search and join
# by (names, owners, times) is never sealed. A text that looks like an envelope is sealed again, so
# that a copied envelope is never opened.

#: The parts of schedules, runs, definitions and deliveries that people fill in.
_PARTS = ("trigger", "target", "policy", "recipient", "door_data")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_REMEMBERED_LENGTH = 8 * 1024


def secrets_of(plain: Mapping[str, object]) -> list[object]:
    """The values that are sealed in stored data, and envelopes."""
    found: list[object] = []

    def note(_name: str, value: object) -> object:
        found.append(value)
        return value

    replace_secrets(plain, note)
    return found


# --- plain JSON data ------------------------------------------------------------------------------
def seal_plain(plain: Plain, keyring: Keyring) -> Plain:
    """A schedule, run, definition or delivery with its secrets sealed; the same object if it has
    none."""
    if not has_secret_parts(plain) or not keyring.can_seal:
        return plain
    return plain | replace_secrets(_parts(plain), _sealer(keyring))


def has_secret_parts(plain: Plain) -> bool:
    """Whether `seal_plain` seals anything."""
    return bool(secrets_of(_parts(plain)))


def _parts(plain: Plain) -> Plain:
    return {name: plain[name] for name in _PARTS if name in plain}


def seal_fields(plain: Plain, keyring: Keyring) -> Plain:
    """Any data with the secrets in all of its fields sealed."""
    if not secrets_of(plain) or not keyring.can_seal:
        return plain
    return replace_secrets(plain, _sealer(keyring))


def open_parts(plain: Any) -> Any:
    """The reverse of `seal_plain`. SecretUnreadable without the key. Other parts, such as results,
    stay as they are: an envelope in them was written by others."""
    if not isinstance(plain, dict):
        return plain
    return plain | {name: _open(name, value) for name, value in _parts(plain).items()}


def open_plain(value: Any) -> Any:
    """The reverse of `seal_fields`."""
    return _open("", value)


def _sealer(keyring: Keyring) -> Any:
    return lambda name, value: keyring.seal(value, name)


def _open(name: str, value: object) -> object:
    if isinstance(value, str):
        return open_sealed(value, name) if is_sealed(value) else value
    if isinstance(value, Mapping):
        return {key: _open(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_open(name, item) for item in value]
    return value


# --- the text of a JSON object --------------------------------------------------------------------
def seal_json(text: str, keyring: Keyring) -> str:
    if not has_secret_fields(text) or not keyring.can_seal:
        return text
    return _dumps(replace_secrets(json.loads(text), _sealer(keyring)))


def open_json(text: str) -> str:
    return _dumps(open_plain(json.loads(text))) if SEALED in text else text


def has_secret_fields(text: str) -> bool:
    """Whether `seal_json` seals anything."""
    return (_remembered if len(text) <= _REMEMBERED_LENGTH else _has_secret_fields)(text)


def _has_secret_fields(text: str) -> bool:
    if not may_have_secrets(text) and SEALED not in text:
        return False
    return bool(secrets_of(json.loads(text)))


#: Most definitions and policies are written many times.
_remembered = lru_cache(maxsize=4096)(_has_secret_fields)


def reseal_json(text: str, keyring: Keyring) -> str:
    """The text with all secrets under the current key; unchanged if they are, or if it is not a
    JSON object."""
    plain = _stale(text, keyring, lambda found: found)
    return text if plain is None else _dumps(seal_fields(open_plain(plain), keyring))


def reseal_parts(text: str, keyring: Keyring) -> str:
    """The same for the text of what `seal_plain` returns."""
    plain = _stale(text, keyring, _parts)
    return text if plain is None else _dumps(seal_plain(open_parts(plain), keyring))


def _stale(text: str, keyring: Keyring, parts: Callable[[Plain], Plain]) -> Plain | None:
    """The JSON object if one of its secrets has no envelope of the current key."""
    key = keyring.current()
    try:
        plain = json.loads(text)
    except ValueError:
        return None
    if key is None or not isinstance(plain, dict):
        return None
    return None if all(key_of(each) == key.id for each in secrets_of(parts(plain))) else plain


# --- any text: a checkpoint, a kept response ------------------------------------------------------
#: The field of a response that is kept for an Idempotency-Key.
RESPONSE = "response"
#: Documents with hashes of passwords, which must be readable without the key.
_HASHES = "dashboard:"


def seal_text(text: str, field: str, keyring: Keyring) -> str:
    """The whole text in an envelope if it contains a secret."""
    if field.startswith(_HASHES) or not (has_secrets(text) or is_sealed(text)):
        return text
    return str(keyring.seal(text, field))


def open_text(text: str, field: str) -> str:
    return str(open_sealed(text, field)) if is_sealed(text) else text


def reseal_text(text: str, field: str, keyring: Keyring) -> str:
    key = keyring.current()
    if key is None or key_of(text) == key.id:
        return text
    return seal_text(open_text(text, field), field, keyring)
