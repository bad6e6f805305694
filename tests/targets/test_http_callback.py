"""One attempt of an HTTP callback: the request, and the result that is stored."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook

from chimes.clock import SystemClock
from chimes.model.run import AttemptEnd
from chimes.targets.http.request import signatures
from tests.builders import NOW
from tests.targets.sinks import OK, Logged, a_call, a_sink, answer, callback_runner
from tests.targets.waiting import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


async def test_callback_sends_method_headers_body_and_run_identity() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        call = a_call(
            sink.url + "/hook?a=1",
            method="POST",
            headers={"X-One": "1", "authorization": "Bearer abcdefgh"},
            body='{"a": 1}',
            run={
                "id": "11111111-1111-5111-8111-111111111111",
                "schedule_id": "job-1",
                "slot": datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
                "attempt": 3,
                "fence": 7,
            },
        )
        outcome = await callback.execute(call)
    assert outcome.end is AttemptEnd.SUCCEEDED
    received = sink.last
    assert (received.method, received.target, received.body) == (
        "POST",
        "/hook?a=1",
        b'{"a": 1}',
    )
    assert received.headers == {
        "host": f"127.0.0.1:{sink.port}",
        "x-one": "1",
        "authorization": "Bearer abcdefgh",
        "user-agent": "Chimes/test",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "content-type": "application/json",
        "content-length": "8",
        "x-chimes-run-id": "11111111-1111-5111-8111-111111111111",
        "x-ksana-run-id": "11111111-1111-5111-8111-111111111111",
        "idempotency-key": "11111111-1111-5111-8111-111111111111",
        "webhook-id": "11111111-1111-5111-8111-111111111111",
        "webhook-timestamp": str(int(NOW.timestamp())),
        "x-chimes-attempt": "3",
        "x-chimes-fence": "7",
        "x-chimes-slot": "2030-01-02T03:04:05Z",
        "x-chimes-schedule-id": "job-1",
    }


async def test_manual_run_sends_its_planned_time_as_slot() -> None:
    async with a_sink() as sink, callback_runner(node_id="node-7") as callback:
        await callback.execute(a_call(sink.url, run={"planned_at": NOW + timedelta(seconds=1)}))
    assert sink.last.headers["x-chimes-slot"] == (
        (NOW + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    )
    assert "x-chimes-schedule-id" not in sink.last.headers
    assert sink.last.headers["x-chimes-node"] == "node-7"


# GET sends a body as well.
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"]
)
async def test_every_method_sends_its_body(method: str) -> None:
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with a_sink(empty) as sink, callback_runner() as callback:
        for body in ("hello", ""):
            outcome = await callback.execute(a_call(sink.url, method=method, body=body))
            assert outcome.end is AttemptEnd.SUCCEEDED
            assert (sink.last.method, sink.last.body) == (method, body.encode())
            assert ("content-type" in sink.last.headers) is bool(body)
    assert sink.connections == 1, "the second call had to use the pooled connection"


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ('{"a": 1}', {}, "application/json"),
        ("[1]", {}, "application/json"),
        ("\n  [1]", {}, "application/json"),
        ("hello", {}, "text/plain"),
        ('"text"', {}, "text/plain"),
        ('{"a": 1}', {"content-type": "application/x-own"}, "application/x-own"),
    ],
)
async def test_content_type_is_the_targets_own_or_inferred(
    body: str, headers: dict[str, str], expected: str
) -> None:
    async with a_sink() as sink, callback_runner() as callback:
        await callback.execute(a_call(sink.url, body=body, headers=headers))
    assert sink.last.headers["content-type"] == expected


async def test_user_agent_of_the_target_is_kept() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        await callback.execute(a_call(sink.url, headers={"USER-AGENT": "mine/1"}))
    assert sink.last.headers["user-agent"] == "mine/1"


async def test_placeholders_are_filled_in_url_headers_and_body() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        call = a_call(
            sink.url + "/{{run_id}}/x?at={{scheduled_at}}&n={{schedule_name}}&odd={{nobody}}",
            headers={"X-Run": "{{run_id}} {{ attempt }}", "X-Name": "{{schedule_name}}"},
            body='{"job_id": "<filled-by-service>", "triggered_at" :"<filled-by-service>",'
            ' "name": "{{schedule_name}}", "keep": "{{7*7}}"}',
            triggered_at=NOW + timedelta(milliseconds=250),
            run={
                "id": "run-1",
                "schedule_id": "job-1",
                "schedule_name": 'a "b"\r\nX-Evil: 1',
                "slot": NOW,
            },
        )
        await callback.execute(call)
    slot = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert sink.last.target == (
        f"/run-1/x?at={slot.replace(':', '%3A')}&n=a%20%22b%22%0D%0AX-Evil%3A%201"
        "&odd=%7B%7Bnobody%7D%7D"
    )
    assert sink.last.headers["x-run"] == "run-1 1"
    assert sink.last.headers["x-name"] == 'a "b"  X-Evil: 1'
    assert "x-evil" not in sink.last.headers
    assert json.loads(sink.last.body) == {
        "job_id": "job-1",
        "triggered_at": slot.removesuffix("Z") + ".250000Z",
        "name": 'a "b"\r\nX-Evil: 1',
        "keep": "{{7*7}}",
    }


@pytest.mark.parametrize(
    ("status", "end", "retryable", "code"),
    [
        ("200 OK", "succeeded", False, ""),
        ("204 No Content", "succeeded", False, ""),
        ("299 Fine", "succeeded", False, ""),
        ("400 Bad Request", "failed", False, "http_400"),
        ("404 Not Found", "failed", False, "http_404"),
        ("408 Request Timeout", "failed", True, "http_408"),
        ("409 Conflict", "failed", False, "http_409"),
        ("422 Unprocessable", "failed", False, "http_422"),
        ("429 Too Many Requests", "failed", True, "http_429"),
        ("500 Internal Server Error", "failed", True, "http_500"),
        ("501 Not Implemented", "failed", True, "http_501"),
        ("503 Service Unavailable", "failed", True, "http_503"),
        ("599 Odd", "failed", True, "http_599"),
    ],
)
async def test_response_status_decides_the_outcome(
    status: str, end: str, retryable: bool, code: str
) -> None:
    body = b"" if status.startswith("204") else b"said so"
    async with a_sink(answer(status, body)) as sink, callback_runner() as callback:
        call = a_call(sink.url + "/x")
        outcome = await callback.execute(call)
    assert (outcome.end, outcome.retryable, outcome.code) == (end, retryable, code)
    assert outcome.error == ("" if end == "succeeded" else f"HTTP {status}")
    assert outcome.result is not None
    assert outcome.result["status"] == int(status[:3])
    assert outcome.result["body"] == body.decode()
    assert not outcome.gone
    [(level, line)] = call.log.lines if isinstance(call.log, Logged) else []
    assert level == ("info" if end == "succeeded" else "error")
    said = status[:3] if end == "succeeded" else f"HTTP {status}"
    assert line.startswith(f"POST {sink.url}/x -> {said} in ")


async def test_expected_status_replaces_the_2xx_rule() -> None:
    async with a_sink(answer("302 Found", Location="/x")) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url, expected_status=(302, 404)))
        assert outcome.end is AttemptEnd.SUCCEEDED
        sink.answers = [OK]
        outcome = await callback.execute(a_call(sink.url, expected_status=(201,)))
        assert (outcome.end, outcome.retryable, outcome.code) == ("failed", False, "http_200")


async def test_410_fails_as_gone() -> None:
    async with a_sink(answer("410 Gone")) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert (outcome.end, outcome.gone, outcome.retryable, outcome.code) == (
        "failed",
        True,
        False,
        "gone",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", timedelta(seconds=7)),
        ("0", timedelta(0)),
        ("999999999", timedelta(days=365)),
        ("-5", None),
        ("soon", None),
        ("1e3", None),
        ("9" * 5000, None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Fri, 99 Foo 9999 99:99:99 GMT", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_retry_after_header_sets_the_delay(
    value: str, expected: timedelta | None, status: str
) -> None:
    async with a_sink(answer(status, Retry_After=value)) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.retry_after == expected
    assert outcome.retryable


async def test_retry_after_date_is_relative_to_the_store_clock() -> None:
    later = (NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    async with a_sink(answer("503 Busy", Retry_After=later)) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url, triggered_at=NOW))
        assert outcome.retry_after is not None
        assert timedelta(seconds=80) < outcome.retry_after <= timedelta(seconds=90)
        sink.answers = [answer("500 Oops", Retry_After="7")]
        assert (await callback.execute(a_call(sink.url))).retry_after is None


# The reference vector of the Standard Webhooks specification
def test_signature_matches_the_reference_vector() -> None:
    assert (
        signatures(
            [SECRET],
            message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
            timestamp=1614265330,
            body=b'{"test": 2432232314}',
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


async def test_only_callbacks_with_a_secret_are_signed() -> None:
    now = SystemClock().now()
    async with a_sink() as sink, callback_runner() as callback:
        await callback.execute(a_call(sink.url, body="x", triggered_at=now))
        assert "webhook-signature" not in sink.last.headers
        call = a_call(
            sink.url, body='{"r": "{{run_id}}"}', signing_secrets=(SECRET,), triggered_at=now
        )
        await callback.execute(call)
    said = Webhook(SECRET).verify(sink.last.body, sink.last.headers)
    assert said == {"r": call.run.id}


async def test_the_result_keeps_status_headers_body_and_duration() -> None:
    sent = answer("200 OK", "grüß".encode(), X_One="1", Set_Cookie="sid=topsecret", X_Two="2")
    async with a_sink(sent) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url + "/a?b=c"))
    assert outcome.result is not None
    result = dict(outcome.result)
    duration = result.pop("duration_ms")
    assert isinstance(duration, float)
    assert duration > 0
    assert result == {
        "url": f"{sink.url}/a?b=c",
        "status": 200,
        "headers": {
            "Content-Length": "6",
            "X-One": "1",
            "Set-Cookie": "***",
            "X-Two": "2",
        },
        "body": "grüß",
        "truncated": False,
    }
    json.dumps(outcome.result)


async def test_cookies_are_not_sent_back() -> None:
    async with (
        a_sink(answer("200 OK", Set_Cookie="sid=1; Path=/")) as sink,
        callback_runner() as callback,
    ):
        await callback.execute(a_call(sink.url))
        await callback.execute(a_call(sink.url))
    assert "cookie" not in sink.last.headers


# A target stored under older rules fails without a request.
async def test_an_invalid_target_in_the_store_fails_without_a_retry() -> None:
    async with callback_runner() as callback:
        outcome = await callback.execute(a_call("http://user:pw@127.0.0.1/"))
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", False, "invalid_target")


# Also for a target that was stored under older rules.
@pytest.mark.parametrize(
    "target",
    [
        {"headers": {"X-A": "1\r\nX-Evil: 1"}},
        {"headers": {"X-A": "1\nX-Evil: 1"}},
        {"headers": {"X-A": "1\x00"}},
        {"headers": {"Content-Length": "1"}},
        {"headers": {"host": "elsewhere.example"}},
        {"headers": {"X A": "1"}},
        {"method": "GET /other HTTP/1.1\r\n"},
        {"method": "GET /other"},
    ],
)
async def test_stored_target_cannot_inject_request_framing(target: dict[str, Any]) -> None:
    async with a_sink() as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url, **target))
        assert (await callback.execute(a_call(sink.url, method="post"))).code == ""
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", False, "invalid_target")
    assert [request.method for request in sink.requests] == ["POST"]


# Waiting for a connection counts towards the timeout.
async def test_connections_are_limited_and_waiting_times_out() -> None:
    release = asyncio.Event()

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(OK)

    async with a_sink(then=wait) as sink, callback_runner(max_connections=2) as callback:
        calls = [asyncio.create_task(callback.execute(a_call(sink.url))) for _ in range(2)]
        await until(lambda: len(sink.requests) == 2)
        late = await callback.execute(a_call(sink.url, timeout=0.2))
        assert late.end is AttemptEnd.TIMEOUT
        assert sink.connections == 2
        release.set()
        assert {(await call).end for call in calls} == {AttemptEnd.SUCCEEDED}


async def test_localhost_resolves() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(f"http://localhost:{sink.port}/x"))
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert sink.last.headers["host"] == f"localhost:{sink.port}"
