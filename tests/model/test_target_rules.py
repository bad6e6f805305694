"""Validation of HTTP targets."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from chimes.egress import EgressRules
from chimes.errors import InvalidInput
from chimes.model.target import HttpTarget
from chimes.model.validation import check_http_target

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


def check(**given: Any) -> None:
    check_http_target(HttpTarget(**({"url": "http://example.com/"} | given)))


def rejection(**given: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidInput) as caught:
        check(**given)
    return caught.value.field, caught.value.code


def test_valid_http_targets() -> None:
    check(
        method="PATCH",
        headers={f"X-{n}": "v" * 8192 for n in range(97)}
        | {"Authorization": "Bearer ü\t!", "User-Agent": "x", "Content-Type": "text/x"},
        body="ü" * 32768,
        expected_status=(200, 404, 599),
        signing_secrets=(SECRET, "whsec_" + base64.b64encode(b"l" * 64).decode().rstrip("=")),
    )
    check(method="get", body="{{7*7}} {{secrets}}")


@pytest.mark.parametrize(
    "method",
    ["", "GET ", "G T", "GET\n", "CONNECT", "connect", "TRACE", "Track", "GÉT", "A" * 33, "G(T"],
)
def test_invalid_methods_are_rejected(method: str) -> None:
    assert rejection(method=method) == ("method", "method")


def test_invalid_bodies_are_rejected() -> None:
    assert rejection(body="x" * 65537) == ("body", "body_too_long")
    assert rejection(body="ü" * 32769) == ("body", "body_too_long")
    assert rejection(body="a\x00b") == ("body", "not_text")
    assert rejection(body="\ud800") == ("body", "not_text")


@pytest.mark.parametrize("statuses", [(199,), (600,), (0,), (-1,), tuple(range(200, 221))])
def test_invalid_expected_statuses_are_rejected(statuses: tuple[int, ...]) -> None:
    assert rejection(expected_status=statuses) == ("expected_status", "expected_status")


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "secret",
        base64.b64encode(b"k" * 24).decode(),
        "whsec_",
        "whsec_***",
        "whsec_ü",
        "whsec_" + base64.b64encode(b"k" * 23).decode(),
        "whsec_" + base64.b64encode(b"k" * 65).decode(),
    ],
)
def test_invalid_signing_secrets_are_rejected(secret: str) -> None:
    assert rejection(signing_secrets=(SECRET, secret)) == ("signing_secrets", "signing_secret")


def test_signing_secrets_are_limited_to_five() -> None:
    check(signing_secrets=(SECRET,) * 5)
    assert rejection(signing_secrets=(SECRET,) * 6) == ("signing_secrets", "signing_secret")


def test_denied_address_is_rejected_with_egress_rules() -> None:
    target = HttpTarget(url="http://127.0.0.1:8080/")
    check_http_target(target)
    check_http_target(target, egress=EgressRules(open_mode=True))
    with pytest.raises(InvalidInput, match=r'egress_allow: \["127\.0\.0\.1:8080"\]') as caught:
        check_http_target(target, egress=EgressRules(open_mode=False))
    assert (caught.value.field, caught.value.code) == ("url", "egress_denied")
