"""What a task can be called with, as JSON Schema: for forms of people who do not see its code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from chimes.redaction import is_secret_name
from chimes.targets.python_task.arguments import parameters_of
from chimes.targets.python_task.registry import Task

#: Nodes tell it with what they offer; a longer one is not told, and its arguments are JSON.
LONGEST_SCHEMA = 8 * 1024
_LONGEST_DESCRIPTION = 300


def schema_of(task: Task) -> dict[str, object]:
    """An object with a property for each argument. A type that has no schema leaves its property
    open; one that is too long as a whole is empty."""
    parameters = parameters_of(task.function)
    signature = inspect.signature(task.function)
    properties: dict[str, object] = {}
    for name, parameter in parameters.named.items():
        found = _property(parameter.adapter)
        default = signature.parameters[name].default
        if not parameter.required and not is_secret_name(name):
            found |= _default(default)
        properties[name] = found
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": [name for name, each in parameters.named.items() if each.required],
        "additionalProperties": parameters.rest is not None,
    }
    if text := (inspect.getdoc(task.function) or "").partition("\n\n")[0]:
        schema["description"] = " ".join(text.split())[:_LONGEST_DESCRIPTION]
    return schema if len(json.dumps(schema)) <= LONGEST_SCHEMA else {}


def _property(adapter: TypeAdapter[object] | None) -> dict[str, object]:
    if adapter is None:
        return {}
    try:
        found: Mapping[str, object] = adapter.json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError, ValueError, TypeError):
        return {}
    return dict(found)


def _default(value: object) -> dict[str, object]:
    try:
        plain = to_jsonable_python(value)
        json.dumps(plain, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError):
        return {}
    return {"default": plain}
