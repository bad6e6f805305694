"""JSON Schema of a task's arguments, for the form of the editor."""

from __future__ import annotations

import json
from datetime import date
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel

from chimes.targets.python.context import Context
from chimes.targets.python.registry import MAX_SCHEMA_LENGTH, Task, argument_schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    city: str
    floors: list[int] = []


def report(
    context: Context,
    day: date,
    kind: Literal["short", "long"],
    colour: Colour = Colour.RED,
    count: int = 7,
    ratio: float | None = None,
    loud: bool = False,
    place: Place | None = None,
    api_token: str = "hunter2",
    anything: object = None,
) -> None:
    """Writes the report
    of a day.

    More of it.
    """


def test_schema_has_types_and_defaults_but_no_secrets() -> None:
    found = argument_schema(Task(name="report", function=report))
    properties = found["properties"]
    assert isinstance(properties, dict)
    assert found["required"] == ["day", "kind"]
    assert found["additionalProperties"] is False
    assert found["description"] == "Writes the report of a day."
    assert list(properties) == [
        *("day", "kind", "colour", "count", "ratio", "loud", "place", "api_token", "anything"),
    ]
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["kind"]["enum"] == ["short", "long"]
    assert (properties["count"]["type"], properties["count"]["default"]) == ("integer", 7)
    assert properties["colour"]["default"] == "red"
    assert properties["loud"] == {"type": "boolean", "default": False}
    assert "default" not in properties["api_token"]
    assert properties["anything"] == {"default": None}
    assert "hunter2" not in json.dumps(found)


def test_schema_of_keyword_arguments_is_open_and_oversized_schema_is_empty() -> None:
    def takes_all(**values: int) -> None: ...

    assert argument_schema(Task(name="all", function=takes_all))["additionalProperties"] is True

    def wordy(text: str = "x" * MAX_SCHEMA_LENGTH) -> None: ...

    assert argument_schema(Task(name="wordy", function=wordy)) == {}
