"""Recipients as text of the command line, parsed and formatted."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model.recipient import format_recipient, parse_recipient
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from, recipients_out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("inbox", {"channel": "inbox", "to": ""}),
        (
            "telegram:-42:on=late+failure",
            {"channel": "telegram", "to": "-42", "on": ["late", "failure"]},
        ),
        (
            "webhook:https://a.example:8/x?on=1",
            {"channel": "webhook", "to": "https://a.example:8/x?on=1"},
        ),
        (
            "email:a@b.example:late=5m:quiet=22:00-7:00:digest=weekly@friday@09:15:urgent=failure",
            {
                "channel": "email",
                "to": "a@b.example",
                "late_after": "5m",
                "quiet": {"from": "22:00", "to": "7:00", "except": ["failure"]},
                "digest": {"every": "weekly", "on": "friday", "at": "09:15", "except": ["failure"]},
            },
        ),
        ("inbox:digest=daily", {"channel": "inbox", "to": "", "digest": {"every": "daily"}}),
        (
            "telegram:7:digest=hourly@00:30",
            {"channel": "telegram", "to": "7", "digest": {"every": "hourly", "at": "00:30"}},
        ),
    ],
    ids=range(6),
)
def test_parse_recipient(text: str, found: dict[str, Any]) -> None:
    assert parse_recipient(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "inbox",
        "telegram:-42:on=late+failure",
        "webhook:https://a.example:8/x?on=1:late=PT5M",
        "email:a@b.example:quiet=22:00-07:00:digest=weekly@friday@09:15:urgent=failure",
        "inbox:digest=daily@08:00",
    ],
)
def test_recipient_text_round_trips(text: str) -> None:
    (recipient,) = recipients_from([RecipientIn.model_validate(parse_recipient(text))])
    (plain,) = recipients_out([recipient])
    assert format_recipient(plain) == text


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("telegram:7:urgent=failure", "urgent"),
        ("telegram:7:on=late:urgent=failure", "urgent"),
        ("telegram:7:on=failure:on=late", "on"),
        ("inbox:digest=daily:digest=weekly", "digest"),
    ],
)
def test_conflicting_options_are_rejected(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_recipient(text)
    assert refused.value.field == field


def test_format_of_a_digest_shorthand() -> None:
    assert format_recipient({"channel": "inbox", "digest": "daily"}) == "inbox:digest=daily"
