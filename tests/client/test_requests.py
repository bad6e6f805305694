"""Conversion of arguments to JSON of the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from chimes.client.requests import (
    Options,
    delivery_json,
    duration_text,
    moment_text,
    owner_json,
    path_of,
    policy_json,
    target_json,
    trigger_json,
)
from chimes.client.values import cron_spec, schedule_info
from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.target import AgentTarget, FlowTarget, HttpTarget, TaskTarget
from chimes.triggers import Cron, Every
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from
from tests.builders import ACTION, FULL_HOOK, ODD_JSON

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "options", "wanted"),
    [
        ("0 9 * * *", {}, {"kind": "cron", "expression": "0 9 * * *"}),
        (
            "0 9 * * *",
            {"timezone": "Asia/Bangkok"},
            {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"},
        ),
        ("every 5m", {"timezone": "Asia/Bangkok"}, {"kind": "every", "every": "PT5M"}),
        (
            Every("5m"),
            {"jitter": timedelta(seconds=3), "start_at": NOON, "max_runs": 4},
            {
                "kind": "every",
                "every": "PT5M",
                "jitter": "PT3S",
                "start_at": "2030-01-01T12:00:00Z",
                "max_runs": 4,
            },
        ),
        (
            {"kind": "cron", "expression": "@daily", "timezone": "UTC"},
            {"timezone": "Asia/Bangkok", "exclude": ({"weekly": []},)},
            {
                "kind": "cron",
                "expression": "@daily",
                "timezone": "UTC",
                "exclude": [{"weekly": []}],
            },
        ),
        (
            Cron("@daily", timezone="Asia/Bangkok"),
            {"end_at": "2031-01-01T00:00:00Z", "jitter": "1s"},
            {
                "kind": "cron",
                "expression": "@daily",
                "timezone": "Asia/Bangkok",
                "end_at": "2031-01-01T00:00:00Z",
                "jitter": "1s",
            },
        ),
    ],
)
def test_triggers_become_json(given: Any, options: Options, wanted: dict[str, object]) -> None:
    found = trigger_json(given, options)
    assert {name: found.get(name) for name in wanted} == wanted
    assert set(found) - set(wanted) <= {"timezone", "anchor", "dialect", "dst"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("greet", {"kind": "task", "name": "greet", "args": {}}),
        ("task:greet", {"kind": "task", "name": "greet", "args": {}}),
        ("flow:pipe", {"kind": "flow", "name": "pipe", "input": {}}),
        (TaskTarget(name="t", args={"a": 1}), {"kind": "task", "name": "t", "args": {"a": 1}}),
        (FlowTarget(name="f"), {"kind": "flow", "name": "f", "input": {}}),
        ({"kind": "http", "url": "http://h/"}, {"kind": "http", "url": "http://h/"}),
        (
            "https://h/x",
            {"kind": "http", "url": "https://h/x", "method": "POST", "headers": {}, "body": ""},
        ),
    ],
)
def test_targets_become_json(given: Any, wanted: dict[str, object]) -> None:
    assert target_json(given) == wanted


def test_separate_arguments_override_those_of_the_target() -> None:
    assert target_json("greet", {"a": 1})["args"] == {"a": 1}
    assert target_json("flow:f", None, {"b": 2})["input"] == {"b": 2}
    secrets = ("whsec_x",)
    http = target_json(HttpTarget(url="http://h/", signing_secrets=secrets, verify_tls=False))
    assert (http["signing_secrets"], http["verify_tls"]) == (["whsec_x"], False)


def test_policy_options_use_the_names_of_the_api() -> None:
    options: Options = {
        "catch_up": "all",
        "retries": 2,
        "timeout": 1.5,
        "retry_backoff": "2s",
        "misfire_grace": timedelta(minutes=1),
        "concurrency_key": "k",
        "burst_allowed": False,
        "priority": 5,
    }
    assert policy_json(options) == {
        "misfire": "all",
        "max_retries": 2,
        "timeout": "PT1.5S",
        "retry_backoff": "PT2S",
        "misfire_grace": "PT1M",
        "concurrency_key": "k",
        "burst_allowed": False,
    }


def test_times_durations_owners_and_paths_become_text() -> None:
    bangkok = timezone(timedelta(hours=7))
    assert moment_text(datetime(2030, 1, 1, 19, tzinfo=bangkok), "at") == "2030-01-01T12:00:00Z"
    assert moment_text("tomorrow-ish", "at") == "tomorrow-ish"
    assert duration_text(90, "timeout") == "PT1M30S"
    assert owner_json("user:al:ice") == {"type": "user", "id": "al:ice"}
    with pytest.raises(InvalidInput):
        owner_json("alice")
    with pytest.raises(InvalidInput):
        duration_text("soon", "timeout")
    assert path_of("schedules", "a/b ?#%é") == "/schedules/a%2Fb%20%3F%23%25%C3%A9"


def test_cron_spec_of_triggers() -> None:
    assert cron_spec({"kind": "once", "at": "2030-01-01T00:00:00Z"}) == "2030-01-01T00:00:00Z"
    assert cron_spec({"kind": "every", "every": "PT5M"}) == "@every 5m0s"


def test_labels_are_read_in_both_formats() -> None:
    times = dict.fromkeys(("next_run_at", "last_slot", "last_enqueued_at"), None)
    data: dict[str, object] = {
        **dict.fromkeys(("id", "name", "namespace", "timezone", "last_error"), "x"),
        **times,
        "target": {"kind": "http", "url": "http://h/"},
        "trigger": {"kind": "cron", "expression": "@daily"},
        "policy": {"misfire": "one", "max_concurrent_runs": 2},
        "last_status": "failed",
        "enabled": True,
        "priority": 0,
        "labels": ["a"],
        "owner": {"type": "user", "id": "u"},
        "version": 1,
        "created_at": "2030-01-01T12:00:00Z",
        "updated_at": "2030-01-01T12:00:00Z",
    }
    assert schedule_info(data).labels == {"a": None}
    found = schedule_info(data | {"labels": {"a": "1", "b": None}})
    assert (found.labels, found.last_status) == ({"a": "1", "b": None}, "failed")
    assert (found.created_at, found.max_concurrent_runs) == (NOON, 2)


def test_action_target_is_sent_completely() -> None:
    assert target_json(ACTION) == {
        "kind": "action",
        "action_type_id": ACTION.action_type_id,
        "kn_id": "kn1",
        "branch": "dev/2",
        "identities": [{"id": "pod-1"}, ODD_JSON],
        "params": ODD_JSON,
        "account": {"id": "u-1", "type": "user"},
    }


def test_agent_target_and_recipients_are_sent_completely() -> None:
    assert target_json(AgentTarget(prompt="x", model="big", max_tokens=5)) == {
        "kind": "agent",
        "prompt": "x",
        "pipeline": "",
        "model": "big",
        "max_tokens": 5,
    }
    plain = {"channel": "inbox"}
    recipient = Recipient(channel=Channel.TELEGRAM, to="42", on=(NotifyOn.FAILURE,), language="th")
    assert delivery_json([plain, recipient]) == [
        plain,
        {
            "channel": "telegram",
            "to": "42",
            "on": ["failure"],
            "language": "th",
            "signing_secrets": [],
        },
    ]


def test_notification_options_of_a_recipient_are_sent() -> None:
    """The server reads the same recipient."""
    recipient = replace(FULL_HOOK, signing_secrets=())
    (sent,) = delivery_json([recipient])
    assert recipients_from([RecipientIn.model_validate(sent)]) == (recipient,)
