"""Retries of requests, without a socket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from chimes import errors
from chimes.client import AsyncClient, Client
from chimes.client.client import checked_url
from chimes.client.operations import Operations
from chimes.client.transport import Call, Exchange, NoReply, Reply, Steps, Wait

LOST = NoReply("gone")


def reply(status: int = 200, body: object = None, **headers: str) -> Reply:
    content = json.dumps({} if body is None else body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=named, body=content)


def problem(status: int, code: str = "", **headers: str) -> Reply:
    return reply(status, {"detail": "told", "code": code}, **headers)


class ScriptedTransport:
    """Drives the steps with scripted answers and records calls and waits."""

    def __init__(self, answers: Sequence[Reply | NoReply]) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []
        self.waits: list[float] = []

    def __call__(self, steps: Steps[Any]) -> Any:
        came: Reply | NoReply | None = None
        while True:
            try:
                wanted = steps.send(came)
            except StopIteration as done:
                return done.value
            if isinstance(wanted, Wait):
                self.waits.append(wanted.seconds)
                came = None
            else:
                self.calls.append(wanted)
                came = self.answers.pop(0)


def exchange(
    *answers: Reply | NoReply, method: str = "POST", patience: float = 60.0
) -> ScriptedTransport:
    transport = ScriptedTransport(answers)
    transport(Exchange(patience=patience).send(Call(method=method, path="/x", body={"a": 1})))
    return transport


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_lost_response_is_retried(method: str) -> None:
    transport = exchange(LOST, LOST, reply(), method=method)
    assert len(transport.calls) == 3
    assert transport.calls[0] == transport.calls[1] == transport.calls[2]
    assert ("Idempotency-Key" in transport.calls[0].headers) == (method == "POST")
    assert 0 < transport.waits[0] <= 0.2
    assert transport.waits[1] <= 0.4


def test_each_request_has_its_own_idempotency_key() -> None:
    keys = {exchange(reply()).calls[0].headers["Idempotency-Key"] for _ in range(5)}
    assert len(keys) == 5


def test_waits_are_limited() -> None:
    with pytest.raises(errors.Unreachable, match="gone"):
        exchange(*[LOST] * 100, patience=30)
    transport = ScriptedTransport([LOST] * 100)
    with pytest.raises(errors.Unreachable):
        transport(Exchange(patience=30).send(Call(method="GET", path="/x")))
    assert sum(transport.waits) <= 30
    assert max(transport.waits) <= 5
    assert len(transport.calls) > 5


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(status: int) -> None:
    transport = exchange(problem(status, retry_after="3"), reply())
    assert transport.waits == [3.0]


def test_wait_beyond_the_patience_is_an_error() -> None:
    with pytest.raises(errors.RateLimited) as caught:
        exchange(problem(429, retry_after="120"))
    assert caught.value.retry_after == timedelta(seconds=120)


def test_request_in_progress_is_retried() -> None:
    assert exchange(problem(409, "request_under_way", retry_after="1"), reply()).waits == [1.0]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad_json", errors.InvalidInput),
        (401, "not_authenticated", errors.NotAuthenticated),
        (403, "not_allowed", errors.NotAllowed),
        (404, "not_found", errors.NotFound),
        (409, "already_exists", errors.AlreadyExists),
        (409, "quota_exceeded", errors.QuotaExceeded),
        (409, "paused", errors.Conflict),
        (412, "stale_version", errors.StaleVersion),
        (413, "body_too_large", errors.InvalidInput),
        (422, "never_fires", errors.InvalidInput),
        (500, "internal_error", errors.ChimesError),
    ],
)
def test_problem_responses_raise_errors_without_retry(
    status: int, code: str, kind: type[errors.ChimesError]
) -> None:
    transport = ScriptedTransport([problem(status, code)])
    with pytest.raises(kind, match="told") as caught:
        transport(Exchange(patience=60).send(Call(method="POST", path="/x")))
    assert type(caught.value) is kind
    assert transport.waits == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("store_read_only", errors.StoreReadOnly),
        ("store_unavailable", errors.StoreUnavailable),
        ("answer_timeout", errors.StoreUnavailable),
    ],
)
def test_unavailable_store_is_an_error_after_the_patience(
    code: str, kind: type[errors.ChimesError]
) -> None:
    with pytest.raises(kind) as caught:
        exchange(*[problem(503, code, retry_after="5")] * 9, patience=12)
    assert type(caught.value) is kind


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"x"', b"\xff"])
def test_response_of_another_server_is_an_error(body: bytes) -> None:
    transport = ScriptedTransport([Reply(status=200, headers={}, body=body)])
    with pytest.raises(errors.Unreachable, match="is not from Chimes"):
        transport(Exchange(patience=60).send(Call(method="GET", path="/x")))


def test_response_of_another_version_is_an_error() -> None:
    verbs = Operations(namespace="default", patience=0, monotonic=lambda: 0.0)
    with pytest.raises(errors.Unreachable, match="another version"):
        ScriptedTransport([reply(body={"items": [{"id": 5}]})])(verbs.nodes())


# Two clients create the same name: the second finds the schedule of the first and updates it.
def test_upsert_updates_a_schedule_created_concurrently() -> None:
    verbs = Operations(namespace="default", patience=0, monotonic=lambda: 0.0)
    empty, taken = reply(body={"items": []}), problem(409, "already_exists")
    there = reply(body={"items": [{"id": "s1"}]})
    transport = ScriptedTransport([empty, taken, there, there, problem(422, "invalid")])
    with pytest.raises(errors.InvalidInput):
        transport(verbs.schedule("n", "every 1h", "greet"))
    assert [call.method for call in transport.calls] == ["GET", "POST", "GET", "GET", "PATCH"]
    assert transport.calls[-1].path == "/schedules/s1"


@pytest.mark.parametrize(
    "url", ["localhost:7100", "ftp://h", "http://", "http://u:hush@h", "http://h/?key=hush"]
)
def test_invalid_urls_are_rejected(url: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        checked_url(url)
    assert "hush" not in str(caught.value)


def test_both_clients_have_the_same_methods() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(Client) - {"aio"} == verbs(AsyncClient)
    public = {name for name in vars(Operations) if not name.startswith("_")}
    assert public <= verbs(Client)


def test_unreachable_server_is_an_error() -> None:
    with (
        Client("http://127.0.0.1:1", patience=0.1) as client,
        pytest.raises(errors.Unreachable, match="cannot be reached"),
    ):
        client.list_schedules()


def test_client_imports_no_server_code() -> None:
    code = (
        "import sys, chimes.client\n"
        "heavy = {'fastapi', 'starlette', 'sqlalchemy', 'pydantic', 'aiohttp', 'uvicorn'}\n"
        "print(*(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
