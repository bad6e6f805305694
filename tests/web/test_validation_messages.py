"""Messages of pydantic are translated; in English they are those of pydantic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError
from pydantic_core._pydantic_core import list_all_errors

from chimes.i18n import Message
from chimes.web import api
from chimes.web.api.paging import Query
from chimes.web.api.schemas import Body
from chimes.web.problems import _MESSAGES, validation_message
from tests.tables import each_row

#: Values that some or all fields reject.
ODD: tuple[object, ...] = (
    None,
    True,
    -1,
    10**400,
    1.5,
    float("nan"),
    "",
    "x",
    "x" * 70_000,
    "\ud800",
    b"x",
    [],
    [None],
    ["x"] * 5000,
    {},
    {"x": None},
    {1: 2},
    {"kind": "x"},
    object(),
)
#: Contexts of pydantic errors; others are derived below.
CONTEXTS: Mapping[str, Mapping[str, object]] = {
    "enum": {"expected": "'a', 'b' or 'c'"},
    "literal_error": {"expected": "'a'"},
    "too_short": {"field_type": "List", "min_length": 1, "actual_length": 0},
    "too_long": {"field_type": "Dictionary", "max_length": 3, "actual_length": 4},
    "string_too_short": {"min_length": 1},
    "string_too_long": {"max_length": 5},
    "string_pattern_mismatch": {"pattern": "^[a-z]{2}$"},
    "model_type": {"class_name": "ScheduleIn"},
    "union_tag_invalid": {"discriminator": "'kind'", "tag": "x", "expected_tags": "'a', 'b'"},
    "union_tag_not_found": {"discriminator": "'kind'"},
}


def models() -> Iterator[type[BaseModel]]:
    """Models of all bodies and query parameters of the native API."""
    for path in Path(api.__path__[0]).glob("*.py"):
        import_module(f"{api.__name__}.{path.stem}")
    waiting: list[type[BaseModel]] = [Body, Query]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(found.__subclasses__())


def test_every_validation_error_of_the_models_is_translated() -> None:
    missing: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for model in models():
        for given in (*ODD, *({name: odd} for name in _names(model) for odd in ODD)):
            try:
                TypeAdapter(model).validate_python(given)
            except ValidationError as error:
                for each in error.errors(include_url=False):
                    context = each.get("ctx", {})
                    seen.add(each["type"])
                    is_message = isinstance(context.get("detail"), Message)
                    if not is_message and each["type"] not in _MESSAGES:
                        missing.add((model.__name__, each["type"]))
    assert missing == set()
    # The walk reached common error types.
    assert {"missing", "string_type", "int_parsing", "enum", "greater_than_equal"} <= seen


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


@each_row("kind", sorted(_MESSAGES))
def test_english_messages_are_those_of_pydantic(kind: str) -> None:
    known = {each["type"]: each for each in list_all_errors()}[kind]
    context = dict(CONTEXTS.get(kind) or known.get("example_context") or {})
    theirs = PydanticKnownError(kind, context or None).message()  # type: ignore[arg-type]
    said = validation_message(kind, context)
    assert isinstance(said, Message)
    assert said == theirs


def test_unknown_validation_error_has_a_message() -> None:
    for each in list_all_errors():
        context = each.get("example_context") or {}
        assert isinstance(validation_message(each["type"], context), Message), each["type"]
