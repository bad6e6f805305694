"""Targets and recipients from JSON: the same result as through the HTTP API."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from chimes.errors import InvalidInput
from chimes.model.validation import check_recipients
from chimes.services.schedules.definitions import recipient_from_json, target_from_json
from chimes.web.api.schemas import AnyTargetIn, RecipientIn, TargetField
from chimes.web.api.translate import recipients_from, target_from

TARGETS: list[dict[str, object]] = [
    {"url": "https://example.com/"},
    {
        "kind": "http",
        "url": "https://example.com/",
        "method": "put",
        "headers": {"X-Team": "billing"},
        "body": {"run": "{{run_id}}", "list": [1, None]},
        "expected_status": [200, 404],
        "signing_secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "verify_tls": False,
    },
    {"kind": "http", "url": "https://example.com/", "body": None},
    {"kind": "task", "name": "report", "args": {"day": "Monday"}},
    {"kind": "flow", "name": "nightly", "input": {"source": "a"}},
    {"kind": "sync", "source": "shop", "collection": "orders"},
    {"kind": "agent", "prompt": "Hello", "pipeline": "runs", "model": "m", "max_tokens": 5},
    {"kind": "agent", "prompt": "Hello", "max_tokens": None},
    {"kind": "message", "text": "Tea"},
    {"kind": "action", "action_type_id": "a", "kn_id": "k"},
    {
        "kind": "action",
        "action_type_id": "a",
        "kn_id": "k",
        "branch": "b",
        "unique_identities": [{"id": 1}],
        "dynamic_params": {"n": 5},
        "account": {"id": "u", "type": "user"},
    },
]
RECIPIENTS: list[dict[str, object]] = [
    {"channel": "inbox"},
    {"channel": "telegram", "to": 42, "on": ["failure", "late", "failure"], "language": "th"},
    {"channel": "email", "to": " ada@example.com ", "late_after": "5m", "digest": "hourly"},
    {
        "channel": "webhook",
        "to": "https://example.com/",
        "signing_secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "quiet": {"from": "22:00", "to": "7:30", "zone": "Asia/Bangkok", "except": ["failure"]},
        "digest": {"every": "weekly", "at": "09:15", "on": "friday", "except": ["recovery"]},
    },
    {"channel": "inbox", "digest": {"every": "daily"}, "quiet": None},
]


def test_targets_read_as_through_the_api() -> None:
    api: TypeAdapter[AnyTargetIn] = TypeAdapter(TargetField)
    for data in TARGETS:
        assert target_from_json(data) == target_from(api.validate_python(data)), data


def test_recipients_read_as_through_the_api() -> None:
    for data in RECIPIENTS:
        expected = recipients_from([RecipientIn.model_validate(data)])
        assert (recipient_from_json(data),) == expected, data


def test_invalid_targets_name_the_field() -> None:
    for data, field in (
        ({"kind": "http"}, "url"),
        ({"kind": "carrier"}, "kind"),
        ({"kind": "task", "name": "x", "arguments": {}}, "arguments"),
        ({"kind": "task", "name": 5}, "name"),
        ({"url": "https://example.com/", "body": 5}, "body"),
    ):
        with pytest.raises(InvalidInput) as error:
            target_from_json(data)
        assert error.value.field == field, data


def test_invalid_recipients_name_the_field() -> None:
    for data, field in (
        ({"to": "x"}, "channel"),
        ({"channel": "pigeon"}, "channel"),
        ({"channel": "inbox", "on": ["never"]}, "on"),
        ({"channel": "inbox", "late_after": 5}, "late_after"),
        ({"channel": "inbox", "quiet": {"from": "25:00", "to": "07:00"}}, "quiet.from"),
        ({"channel": "inbox", "digest": {"every": "yearly"}}, "digest"),
        ({"channel": "inbox", "when": "now"}, "when"),
    ):
        with pytest.raises(InvalidInput) as error:
            recipient_from_json(data)
        assert error.value.field == field, data


def test_an_empty_list_of_events_is_rejected() -> None:
    recipient = recipient_from_json({"channel": "inbox", "on": []})
    with pytest.raises(InvalidInput) as error:
        check_recipients((recipient,))
    assert error.value.code == "missing"
