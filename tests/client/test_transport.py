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


class Driven:
    """Plays the world: answers each call in turn and notes what was waited."""

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


def exchanged(*answers: Reply | NoReply, method: str = "POST", patience: float = 60.0) -> Driven:
    world = Driven(answers)
    world(Exchange(patience=patience).send(Call(method=method, path="/x", body={"a": 1})))
    return world


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_a_lost_answer_is_asked_for_again(method: str) -> None:
    world = exchanged(LOST, LOST, reply(), method=method)
    assert len(world.calls) == 3
    assert world.calls[0] == world.calls[1] == world.calls[2]
    assert ("Idempotency-Key" in world.calls[0].headers) == (method == "POST")
    assert 0 < world.waits[0] <= 0.2
    assert world.waits[1] <= 0.4


def test_each_verb_has_a_key_of_its_own() -> None:
    keys = {exchanged(reply()).calls[0].headers["Idempotency-Key"] for _ in range(5)}
    assert len(keys) == 5


def test_waits_grow_and_are_bounded() -> None:
    with pytest.raises(errors.Unreachable, match="gone"):
        exchanged(*[LOST] * 100, patience=30)
    world = Driven([LOST] * 100)
    with pytest.raises(errors.Unreachable):
        world(Exchange(patience=30).send(Call(method="GET", path="/x")))
    assert sum(world.waits) <= 30
    assert max(world.waits) <= 5
    assert len(world.calls) > 5


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(status: int) -> None:
    world = exchanged(problem(status, retry_after="3"), reply())
    assert world.waits == [3.0]


def test_a_wait_beyond_the_patience_is_not_begun() -> None:
    with pytest.raises(errors.RateLimited) as caught:
        exchanged(problem(429, retry_after="120"))
    assert caught.value.retry_after == timedelta(seconds=120)


def test_a_request_that_is_still_under_way_is_asked_for_again() -> None:
    assert exchanged(problem(409, "request_under_way", retry_after="1"), reply()).waits == [1.0]


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
def test_problems_are_errors_and_not_repeated(
    status: int, code: str, kind: type[errors.ChimesError]
) -> None:
    world = Driven([problem(status, code)])
    with pytest.raises(kind, match="told") as caught:
        world(Exchange(patience=60).send(Call(method="POST", path="/x")))
    assert type(caught.value) is kind
    assert world.waits == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("store_read_only", errors.StoreReadOnly),
        ("store_unavailable", errors.StoreUnavailable),
        ("answer_timeout", errors.StoreUnavailable),
    ],
)
def test_a_store_that_stays_away(code: str, kind: type[errors.ChimesError]) -> None:
    with pytest.raises(kind) as caught:
        exchanged(*[problem(503, code, retry_after="5")] * 9, patience=12)
    assert type(caught.value) is kind


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"x"', b"\xff"])
def test_answers_of_somebody_else(body: bytes) -> None:
    world = Driven([Reply(status=200, headers={}, body=body)])
    with pytest.raises(errors.Unreachable, match="is not from Chimes"):
        world(Exchange(patience=60).send(Call(method="GET", path="/x")))


def test_an_answer_of_another_version_is_said_to_be_one() -> None:
    verbs = Operations(namespace="default", patience=0, monotonic=lambda: 0.0)
    with pytest.raises(errors.Unreachable, match="another version"):
        Driven([reply(body={"items": [{"id": 5}]})])(verbs.nodes())


# Two clients create the same name at once; the loser finds what the winner made.
def test_an_upsert_that_comes_second() -> None:
    verbs = Operations(namespace="default", patience=0, monotonic=lambda: 0.0)
    empty, taken = reply(body={"items": []}), problem(409, "already_exists")
    there = reply(body={"items": [{"id": "s1"}]})
    world = Driven([empty, taken, there, there, problem(422, "invalid")])
    with pytest.raises(errors.InvalidInput):
        world(verbs.schedule("n", "every 1h", "greet"))
    assert [call.method for call in world.calls] == ["GET", "POST", "GET", "GET", "PATCH"]
    assert world.calls[-1].path == "/schedules/s1"


@pytest.mark.parametrize(
    "url", ["localhost:7100", "ftp://h", "http://", "http://u:hush@h", "http://h/?key=hush"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        checked_url(url)
    assert "hush" not in str(caught.value)


def test_both_clients_have_the_same_verbs() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(Client) - {"aio"} == verbs(AsyncClient)
    public = {name for name in vars(Operations) if not name.startswith("_")}
    assert public <= verbs(Client)


def test_nobody_there_is_said_soon() -> None:
    with (
        Client("http://127.0.0.1:1", patience=0.1) as client,
        pytest.raises(errors.Unreachable, match="cannot be reached"),
    ):
        client.list_schedules()


def test_it_needs_no_server_code() -> None:
    code = (
        "import sys, chimes.client\n"
        "heavy = {'fastapi', 'starlette', 'sqlalchemy', 'pydantic', 'aiohttp', 'uvicorn'}\n"
        "print(*(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
