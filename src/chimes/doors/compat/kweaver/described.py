"""What the OpenAPI document says of the routes, beyond their paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chimes.doors.compat.kweaver.facts import MAIN, STATUSES
from chimes.doors.compat.kweaver.listing import MOST_LISTED, SORTED_BY

Schema = dict[str, Any]


def _asked(name: str, about: str, **schema: object) -> Schema:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": about,
        "schema": {"type": "string", **schema},
    }


def _body(required: tuple[str, ...], **properties: Schema) -> Schema:
    schema = {"type": "object", "required": list(required), "properties": properties}
    if not required:
        del schema["required"]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


_BRANCH = _asked("branch", "Of the knowledge network.", default=MAIN)
_STATUS: Schema = {"type": "string", "enum": list(STATUSES)}
_CHANGEABLE: dict[str, Schema] = {
    "name": {"type": "string", "maxLength": 100},
    "cron_expression": {"type": "string", "description": "Five fields; a TZ= prefix is taken."},
    "unique_identities": {
        "type": "array",
        "items": {"type": "object"},
        "description": "The objects; `_instance_identities` is another name.",
    },
    "dynamic_params": {"type": "object"},
}
_LIST = (
    _asked("name_pattern", "A part of the name."),
    _asked("action_type_id", "Only of this action type."),
    _asked("status", "Only those.", enum=list(STATUSES)),
    _asked("offset", "How many to leave out.", type="integer", default=0),
    _asked("limit", f"1 to {MOST_LISTED}; -1: all of them.", type="integer", default=10),
    _asked("sort", "By what.", enum=list(SORTED_BY), default="create_time"),
    _asked("direction", "Which way.", enum=["desc", "asc"], default="desc"),
)
#: By the name of a route.
DESCRIBED: Mapping[str, Schema] = {
    "create": {
        "parameters": [_BRANCH],
        "requestBody": _body(
            ("name", "action_type_id", "cron_expression", "unique_identities"),
            **_CHANGEABLE,
            action_type_id={"type": "string", "maxLength": 40},
            status=_STATUS,
        ),
    },
    "all": {"parameters": [_BRANCH, *_LIST]},
    "one": {"parameters": [_BRANCH]},
    "update": {"parameters": [_BRANCH], "requestBody": _body((), **_CHANGEABLE)},
    "delete": {"parameters": [_BRANCH]},
    "switch": {"parameters": [_BRANCH], "requestBody": _body(("status",), status=_STATUS)},
    "due": {"parameters": [_BRANCH]},
}
