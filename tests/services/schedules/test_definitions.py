"""Targets and recipients from JSON: the same result as through the HTTP API."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from chimes.errors import InvalidInput
from chimes.model.validation import check_recipients
from chimes.services.schedules.definitions import (
    assign_text,
    recipient_from_json,
    remove_field,
    target_from_json,
)
from chimes.web.api.schemas import AnyTargetIn, RecipientIn, TargetIn
from chimes.web.api.translate import recipients_from, target_from
from tests.tables import each_row

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
    api: TypeAdapter[AnyTargetIn] = TypeAdapter(TargetIn)
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


# --- fields from text -------------------------------------------------------------------------
def a_definition() -> dict[str, Any]:
    return {
        "name": "report",
        "trigger": {"kind": "cron", "expression": "0 9 * * *"},
        "target": {"kind": "http", "url": "http://x/", "headers": {"A": "1"}},
        "policy": {"timeout": "PT10S", "max_retries": 0},
        "labels": {},
    }


@each_row(
    ("path", "text", "value"),
    [
        ("name", "other", "other"),
        ("priority", "-5", -5),
        ("enabled", "no", False),
        ("policy.timeout", "30s", "30s"),
        ("policy.max_retries", "3", 3),
        ("policy.max_concurrent_runs", "null", None),
        ("policy.concurrency_key", "", None),
        ("policy.burst_allowed", "true", True),
        ("policy.overlap", "allow", "allow"),
        ("labels.team", "billing", "billing"),
        ("labels.a.b", "1", "1"),
        ("labels.nightly", "null", None),
        ("trigger.expression", "0 10 * * *", "0 10 * * *"),
        ("trigger.max_runs", "7", 7),
        ("trigger.exclude", '[{"weekdays": ["sat"]}]', [{"weekdays": ["sat"]}]),
        ("target.url", "http://y/", "http://y/"),
        ("target.headers.X-Day", "5", "5"),
        ("target.expected_status", "200, 204", [200, 204]),
        ("target.verify_tls", "off", False),
        ("depends_on.within", "2h", "2h"),
        ("delivery", "inbox", [{"channel": "inbox", "to": ""}]),
        ("policy", '{"timeout": "1m"}', {"timeout": "1m"}),
    ],
)
def test_text_becomes_the_declared_type(path: str, text: str, value: object) -> None:
    definition = a_definition()
    assign_text(definition, path, text)
    head, dot, rest = path.partition(".")
    found: Any = definition[head]
    if dot:
        for name in [rest] if head == "labels" else rest.split("."):
            found = found[name]
    assert found == value


def test_arguments_are_json_or_text() -> None:
    definition = a_definition() | {"target": {"kind": "task", "name": "t", "args": {"a": 1}}}
    assign_text(definition, "target.args.days", "7")
    assign_text(definition, "target.args.mode", "fast")
    assert definition["target"]["args"] == {"a": 1, "days": 7, "mode": "fast"}
    action = {"target": {"kind": "action", "action_type_id": "a", "kn_id": "k"}}
    assign_text(action, "target.account.id", "ada")
    assert action["target"]["account"] == {"id": "ada"}


@each_row(
    ("path", "text", "says"),
    [
        ("polcy.timeout", "1s", "policy"),
        ("policy.time_out", "1s", "timeout"),
        ("policy.max_retries", "many", "whole number"),
        ("enabled", "perhaps", "true or false"),
        ("target.prompt", "x", "no field"),
        ("target.url.x", "x", "no field"),
        ("name.x", "x", "no field"),
        ("trigger.every", "1h", "no field"),
        ("labels", "x", "JSON"),
    ],
)
def test_wrong_fields_are_named(path: str, text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as found:
        assign_text(a_definition(), path, text)
    assert found.value.field == path
    assert says in f"{found.value.message} {found.value.hint}"


def test_fields_are_removed() -> None:
    definition = a_definition()
    remove_field(definition, "policy.timeout")
    remove_field(definition, "target.headers.A")
    assert definition["policy"] == {"max_retries": 0}
    assert definition["target"]["headers"] == {}
    with pytest.raises(InvalidInput):
        remove_field(definition, "policy.timeout")
