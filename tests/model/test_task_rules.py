"""Validation of task and flow targets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chimes.egress import EgressRules
from chimes.errors import InvalidInput
from chimes.model.target import FlowTarget, HttpTarget, Target, TaskTarget
from chimes.model.validation import MAX_ARGUMENT_BYTES, check_target
from chimes.redaction import mask_arguments
from tests.builders import FLOW, ODD_JSON, TARGET, TASK


def rejection(target: Target) -> tuple[str | None, str]:
    with pytest.raises(InvalidInput) as caught:
        check_target(target)
    return caught.value.field, caught.value.code


@pytest.mark.parametrize(
    "name", ["greet", "shop.tasks.send", "a-b_c.d", "รายงาน", "报告", "x" * 200]
)
def test_valid_task_and_flow_names(name: str) -> None:
    check_target(TaskTarget(name=name))
    check_target(FlowTarget(name=name))


@pytest.mark.parametrize(
    "name",
    [
        *("", "os:system", "../evil.py", "/etc/passwd", "a b", "a/b", ".hidden", "-x", "a\n"),
        *("x" * 201, "a;b", "a`b`", "__import__('os')", "\0"),
    ],
)
def test_invalid_task_and_flow_names_are_rejected(name: str) -> None:
    assert rejection(TaskTarget(name=name)) == ("name", "bad_name")
    assert rejection(FlowTarget(name=name)) == ("name", "bad_name")


def test_any_json_arguments_are_valid() -> None:
    for target in (TASK, FLOW, TARGET):
        check_target(target)
    assert dict(TASK.args) == ODD_JSON


@pytest.mark.parametrize(
    ("value", "field", "code"),
    [
        (math.nan, "args.a", "bad_number"),
        (math.inf, "args.a", "bad_number"),
        ("\0", "args.a", "not_text"),
        ("\ud83d", "args.a", "not_text"),
        (b"bytes", "args.a", "wrong_type"),
        ({1: 2}, "args.a", "wrong_type"),
        ({"b": [1, object()]}, "args.a.b[1]", "wrong_type"),
        ("x" * MAX_ARGUMENT_BYTES, "args", "too_long"),
    ],
)
def test_invalid_arguments_are_rejected(value: Any, field: str, code: str) -> None:
    assert rejection(TaskTarget(name="t", args={"a": value})) == (field, code)


def test_deeply_nested_arguments_are_rejected() -> None:
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    assert rejection(FlowTarget(name="f", input={"a": deep}))[1] == "json_too_deep"


def test_argument_size_is_measured_in_bytes() -> None:
    fits = "ü" * (MAX_ARGUMENT_BYTES // 2 - 5)
    check_target(TaskTarget(name="t", args={"a": fits}))
    assert rejection(TaskTarget(name="t", args={"a": fits + "üü"})) == ("args", "too_long")


def test_egress_rules_apply_to_http_targets_only() -> None:
    rules = EgressRules(open_mode=False)
    check_target(TASK, egress=rules)
    with pytest.raises(InvalidInput):
        check_target(HttpTarget(url="http://127.0.0.1:8080/"), egress=rules)


def test_secrets_are_masked_at_any_depth() -> None:
    given = {"token": "t", "a": {"password": "p", "list": ({"api_key": 5},), "code": "x"}, "n": 1}
    assert mask_arguments(given) == {
        "token": "***",
        "a": {"password": "***", "list": [{"api_key": "***"}], "code": "x"},
        "n": 1,
    }
    assert mask_arguments({"token": "", "secret": None}) == {"token": "", "secret": None}
