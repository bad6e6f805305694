"""The fields of a Struct as the other layers see them: name, type, default and presentation.

A field is declared once, in its Struct. Codec, API, client, SDK, command line and forms read the
declaration through `fields_of`, so that a new field appears in all of them (ADR 41). Presentation
is optional and stands beside the Struct: a `ClassVar` named `about` maps names to `About`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time, timedelta
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, structs

from chimes.i18n import _
from chimes.redaction import HIDDEN, mask_arguments, mask_headers, mask_text, mask_values
from chimes.triggers import format_duration_iso, format_moment

Mark = Literal["", "message", "masked"]
#: Marks of types whose values are more than their Python type says.
MESSAGE: Final = "message"
MASKED: Final = "masked"
#: Text that may be a `Message`; stores keep its code and parameters.
MessageText = Annotated[str, MESSAGE]
#: Masked in responses: as a whole, by the names of their items, or the secrets in a text.
Secrets = Annotated[tuple[str, ...], MASKED]
SecretText = Annotated[str, MASKED]
SecretHeaders = Annotated[Mapping[str, str], MASKED]
SecretArguments = Annotated[Mapping[str, object], MASKED]
SecretValues = Annotated[tuple[object, ...], MASKED]
SecretObjects = Annotated[tuple[Mapping[str, object], ...], MASKED]

Group = Literal["main", "more"]


class Option(Struct, frozen=True, kw_only=True):
    """An option of `chimes add`."""

    #: Default: `--` and the name of the field.
    name: str = ""
    help: str | None = None
    #: In the order in which they are shown; default: that of the enumeration.
    choices: tuple[str, ...] = ()
    #: Options are shown by rank, then in the order of the fields.
    rank: int = 100


class About(Struct, frozen=True, kw_only=True):
    """Presentation of a field. All parts are optional."""

    #: Name in the API; default: the name of the field.
    json: str = ""
    #: Names of the numbers 0, 1, … in the API.
    words: tuple[str, ...] = ()
    #: The only texts that the API accepts.
    texts: tuple[str, ...] = ()
    #: Most items or characters in a request.
    at_most: int | None = None
    #: Least and greatest number of an item in a request.
    between: tuple[int, int] | None = None
    #: A list of names, entered one after another.
    names: bool = False
    #: In the documentation of requests and of responses.
    description: str | None = None
    response_description: str | None = None

    #: Name of the option of the SDK and the client; default: the name of the field.
    option: str = ""
    sdk: bool = True
    client: bool = True
    #: None: `chimes add` has no option for it.
    command: Option | None = Option()
    #: For durations given as options.
    allow_zero: bool = True

    #: Form of the dashboard: short name, longer label, words for the choices, hint, valid value.
    label: str = ""
    question: str = ""
    choices: Mapping[str, str] = {}
    hint: str = ""
    example: str = ""
    #: Show the example in the empty field.
    placeholder: bool = False
    group: Group = "more"


class Field(Struct, frozen=True, kw_only=True):
    name: str
    #: Name in stored JSON.
    stored: str
    #: Without `Annotated` and `| None`.
    type: Any
    mark: Mark
    nullable: bool
    #: NODEFAULT: required.
    default: Any
    about: About

    @property
    def json(self) -> str:
        return self.about.json or self.name

    @property
    def label(self) -> str:
        return self.about.label or self.name.replace("_", " ").capitalize()

    @property
    def item(self) -> Any:
        """The type of the items of a tuple, or of the values of a mapping; None for others."""
        origin, args = get_origin(self.type), get_args(self.type)
        if origin is tuple:
            return args[0]
        return args[1] if origin is Mapping else None

    @property
    def kind(self) -> Literal["flag", "number", "text", "choice", "duration", "names", "other"]:
        """What a person enters for it."""
        if self.about.names:
            return "names"
        if self.about.words:
            return "choice"
        if self.type is bool:
            return "flag"
        if self.type is int:
            return "number"
        if self.type is str:
            return "text"
        if self.type is timedelta:
            return "duration"
        return "choice" if is_enum(self.type) else "other"

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The values that can be chosen, with their words; empty if the value is entered."""
        if self.about.choices:
            return tuple(self.about.choices.items())
        if self.kind == "flag":
            return (("yes", _("yes")), ("no", _("no")))
        words = self.about.words or self.about.texts
        if is_enum(self.type):
            words = tuple(self.type)
        return tuple((str(each), str(each)) for each in words if each)


@cache
def fields_of(kind: type[Struct]) -> tuple[Field, ...]:
    """The fields of a Struct in the order of their declaration."""
    about: Mapping[str, About] = getattr(kind, "about", {})
    found = tuple(_field(each, about.get(each.name, _PLAIN)) for each in structs.fields(kind))
    unknown = about.keys() - {each.name for each in found}
    assert not unknown, f"{kind.__name__} has no {unknown}"
    return found


_PLAIN = About()


def _field(info: structs.FieldInfo, about: About) -> Field:
    kind, mark = _unmarked(info.type)
    nullable = False
    if get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind):
        nullable = True
        rest = tuple(each for each in get_args(kind) if each is not NoneType)
        kind, mark = _unmarked(rest[0] if len(rest) == 1 else Union[rest])  # noqa: UP007
    default = info.default if info.default_factory is NODEFAULT else info.default_factory()
    return Field(
        name=info.name,
        stored=info.encode_name,
        type=kind,
        mark=mark,
        nullable=nullable,
        default=default,
        about=about,
    )


def _unmarked(kind: Any) -> tuple[Any, Mark]:
    return get_args(kind)[:2] if get_origin(kind) is Annotated else (kind, "")


def is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


# --- JSON form of the API -------------------------------------------------------------------------
Json = dict[str, object]


def to_json(value: Struct, *, masked: bool = False, without: Collection[str] = ()) -> Json:
    """The value as the API shows it; `masked` hides secrets, `without` leaves out fields."""
    plain: Json = structs.asdict(value)
    for name in without:
        plain.pop(name, None)
    writers, renamed = _json_form(type(value), masked)
    for name, write in writers:
        item = plain.get(name)
        if item is not None:
            plain[name] = write(item)
    return _renamed(plain, renamed) if renamed else plain


def default_in_json(field: Field) -> object:
    """The default of a field as the API shows it."""
    write = _json_writer(field, masked=False)
    return field.default if write is None or field.default is None else write(field.default)


def _renamed(plain: Json, names: Mapping[str, str]) -> Json:
    found: Json = {}
    for name, item in plain.items():
        outer, dot, inner = names.get(name, name).partition(".")
        if dot:
            part = found.setdefault(outer, {})
            assert isinstance(part, dict)
            part[inner] = item
        else:
            found[outer] = item
    return found


@cache
def _json_form(
    kind: type[Struct], masked: bool
) -> tuple[tuple[tuple[str, Callable[[Any], object]], ...], Mapping[str, str]]:
    """The fields that are converted, with their writers; and those with another name."""
    fields = fields_of(kind)
    found = [(each.name, _json_writer(each, masked=masked)) for each in fields]
    return (
        tuple((name, write) for name, write in found if write is not None),
        {each.name: each.json for each in fields if each.json != each.name},
    )


def _json_writer(field: Field, *, masked: bool) -> Callable[[Any], object] | None:
    kind, item = field.type, field.item
    if masked and field.mark == MASKED:
        return _mask_writer(field)
    if field.about.words:
        return field.about.words.__getitem__
    if get_origin(kind) is not tuple:
        return dict if item is not None else _value_writer(kind, masked=masked)
    write = _value_writer(item, masked=masked)
    return list if write is None else lambda values: [write(each) for each in values]


def _mask_writer(field: Field) -> Callable[[Any], object]:
    if field.type is str:
        return mask_text
    if field.item is object:
        return mask_values if get_origin(field.type) is tuple else mask_arguments
    if get_origin(field.type) is Mapping:
        return mask_headers
    if field.item is str:
        return lambda texts: [HIDDEN] * len(texts)
    return lambda objects: [mask_arguments(each) for each in objects]


def _value_writer(kind: Any, *, masked: bool) -> Callable[[Any], object] | None:
    if is_struct(kind) or any(is_struct(each) for each in get_args(kind)):
        return partial(to_json, masked=masked)
    if is_enum(kind):
        return attrgetter("value")
    if get_origin(kind) is Mapping:
        return dict
    if kind is timedelta:
        return format_duration_iso
    if kind is datetime:
        return format_moment
    return clock_text if kind is time else None


def clock_text(at: time) -> str:
    return f"{at.hour:02}:{at.minute:02}"
