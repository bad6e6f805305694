"""Validation of action targets."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.target import ActionTarget
from chimes.model.validation import MAX_IDENTITIES, MAX_IDENTITIES_BYTES, check_target
from tests.builders import ACTION
from tests.tables import each_row


def test_any_json_and_foreign_ids_are_valid() -> None:
    check_target(ACTION)
    check_target(ActionTarget(action_type_id="水" * 40, kn_id="a b/c?#%"))
    assert ACTION.requirement == "action"


@each_row(
    ("given", "field", "code"),
    [
        ({"action_type_id": ""}, "action_type_id", "missing"),
        ({"action_type_id": " "}, "action_type_id", "missing"),
        ({"action_type_id": "x" * 41}, "action_type_id", "too_long"),
        ({"action_type_id": ".."}, "action_type_id", "bad_name"),
        ({"kn_id": ""}, "kn_id", "missing"),
        ({"kn_id": "."}, "kn_id", "bad_name"),
        ({"kn_id": "a\nb"}, "kn_id", "not_text"),
        ({"kn_id": "a\x85b"}, "kn_id", "not_text"),
        ({"kn_id": "\ud83d"}, "kn_id", "not_text"),
        ({"branch": ""}, "branch", "missing"),
        ({"branch": "b" * 41}, "branch", "too_long"),
        ({"account_id": "a" * 41}, "account.id", "too_long"),
        ({"account_type": "a\r\nX: y"}, "account.type", "not_text"),
        ({"identities": ({}, "x")}, "identities[1]", "wrong_type"),
        ({"identities": ({"a": object()},)}, "identities[0].a", "wrong_type"),
        ({"identities": ({},) * (MAX_IDENTITIES + 1)}, "identities", "too_many"),
        ({"identities": ({"a": "x" * MAX_IDENTITIES_BYTES},)}, "identities", "too_long"),
        ({"params": {"a": "\0"}}, "params.a", "not_text"),
        ({"params": {"a": "x" * 70_000}}, "params", "too_long"),
    ],
)
def test_invalid_action_targets_are_rejected(given: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_target(replace(ACTION, **given))
    assert (caught.value.field, caught.value.code) == (field, code)
