"""What an action must look like to be saved. Lengths are those of seed 0's columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.model.json_rules import check_arguments, check_json, check_size, encoded
from chimes.model.target import ActionTarget
from chimes.wording import say

#: R0.4, R0.6-R0.8, R0.17.
MAX_ID_LENGTH = 40
MAX_IDENTITIES = 10_000
MAX_IDENTITIES_BYTES = 128 * 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_action_target(target: ActionTarget) -> None:
    check_action_id(target.action_type_id, "action_type_id")
    check_action_id(target.kn_id, "kn_id")
    check_action_id(target.branch, "branch")
    _check_identities(target.identities)
    check_arguments(target.params, "params")
    for value, field in ((target.account_id, "account.id"), (target.account_type, "account.type")):
        if value:
            check_action_id(value, field)


def check_action_id(value: str, field: str) -> None:
    """Ids are of others' making: any text that fits into a path and a header."""
    if not value.strip():
        raise InvalidInput(say("{field} is needed", field=field), field=field, code="missing")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(
            say(
                "{field} has at most {most} characters",
                field=field,
                most=MAX_ID_LENGTH,
            ),
            field=field,
            code="too_long",
        )
    if value in (".", ".."):
        # In a path they mean another one.
        raise InvalidInput(
            say("{field} cannot be {value!r}", field=field, value=value),
            field=field,
            code="bad_name",
        )
    if _CONTROL.search(value):
        raise InvalidInput(
            say("{field} holds a control character", field=field), field=field, code="not_text"
        )
    encoded(value, field)


def _check_identities(identities: tuple[object, ...]) -> None:
    if len(identities) > MAX_IDENTITIES:
        raise InvalidInput(
            say("more than {most} identities", most=MAX_IDENTITIES),
            field="identities",
            code="too_many",
        )
    for place, identity in enumerate(identities):
        if not isinstance(identity, Mapping):
            raise InvalidInput(
                say("an identity is a JSON object"),
                field=f"identities[{place}]",
                code="wrong_type",
            )
    check_json(identities, "identities")
    check_size(identities, "identities", MAX_IDENTITIES_BYTES)
