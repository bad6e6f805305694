"""Actions and messages as bodies of requests have them; the other targets are in `inputs.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from chimes.doors.api.fields import ActionNames, Body
from chimes.model.action_rules import MAX_IDENTITIES


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
