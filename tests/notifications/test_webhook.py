"""The webhook channel: signed POST, egress rules, no redirects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import jsonschema_rs
import pytest
from standardwebhooks import Webhook as Verifier

from chimes.egress import Egress
from chimes.model.recipient import Channel
from chimes.model.run import RunStatus
from chimes.notifications.base import Refused, Retry, Sent
from chimes.notifications.webhook import Webhook
from tests.builders import NOW
from tests.notifications.attempts import a_recipient, an_attempt, an_ended_run
from tests.targets.sinks import OK, OPEN, SERVER, Sink, answer, serving

OLD, NEW = "whsec_" + "QUJD" * 8, "whsec_" + "WFla" * 8


@asynccontextmanager
async def channel(egress: Egress = OPEN, **given: Any) -> AsyncIterator[Webhook]:
    webhook = Webhook(egress=egress, user_agent="Chimes/test", **given)
    await webhook.open()
    try:
        yield webhook
    finally:
        await webhook.close()


async def send_to_sink(
    answers: Sequence[bytes] = (OK,), *, egress: Egress = OPEN, **given: Any
) -> tuple[object, Sink]:
    sink = Sink(list(answers))
    async with serving(sink.handle) as sink.port, channel(egress) as webhook:
        recipient = a_recipient(Channel.WEBHOOK, to=f"{sink.url}/hook?a=1", **given)
        return await webhook.send(an_attempt(recipient=recipient)), sink


async def test_body_is_signed_with_all_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = an_ended_run("**done**", artifacts=[{"name": "a", "url": "https://x.example/a"}])
    sink = Sink()
    async with serving(sink.handle) as sink.port, channel() as webhook:
        recipient = a_recipient(
            Channel.WEBHOOK, to=f"{sink.url}/hook?a=1", signing_secrets=(OLD, NEW)
        )
        attempt = an_attempt(run, recipient)
        assert await webhook.send(attempt) == Sent(receipt="200")
    received = sink.last
    assert (received.method, received.target) == ("POST", "/hook?a=1")
    assert received.headers["webhook-id"] == attempt.delivery_id
    assert received.headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    monkeypatch.setattr(Verifier, "_Webhook__verify_timestamp", lambda self, header: NOW)
    for secret in (OLD, NEW):
        Verifier(secret).verify(received.body, received.headers)
    body = json.loads(received.body)
    assert body["type"] == "run.succeeded"
    assert body["timestamp"].startswith(NOW.date().isoformat())
    data = body["data"]
    assert data["delivery_id"] == attempt.delivery_id
    assert data["schedule"] == {"id": run.schedule_id, "name": "Morning report"}
    assert (data["run"]["id"], data["run"]["output"]) == (run.id, "**done**")
    assert data["text"].endswith("done")
    assert data["artifacts"] == [{"name": "a", "url": "https://x.example/a"}]


#: The attributes of the JSON schema of CloudEvents 1.0 that every event has, and those used here.
CLOUDEVENT = {
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "format": "uri-reference", "minLength": 1},
        "specversion": {"const": "1.0"},
        "type": {"type": "string", "minLength": 1},
        "datacontenttype": {"type": "string", "minLength": 1},
        "time": {"type": "string", "format": "date-time", "minLength": 1},
        "data": {"type": "object"},
    },
    # Names of attributes are lower-case letters and digits.
    "propertyNames": {"pattern": "^[a-z0-9]{1,20}$"},
    "additionalProperties": False,
}


async def test_body_may_be_a_cloudevent() -> None:
    plain, _sink = await send_to_sink()
    assert isinstance(plain, Sent)
    own = json.loads(_sink.last.body)
    result, sink = await send_to_sink(envelope="cloudevents")
    assert isinstance(result, Sent)
    assert sink.last.headers["content-type"] == "application/cloudevents+json"
    event = json.loads(sink.last.body)
    validator = jsonschema_rs.validator_for(CLOUDEVENT, validate_formats=True)
    assert [error.message for error in validator.iter_errors(event)] == []
    assert event["id"] == sink.last.headers["webhook-id"] == event["data"]["delivery_id"]
    assert event["type"] == f"chimes.{own['type']}"
    assert event["source"] == f"chimes/schedules/{event['data']['schedule']['id']}"
    assert event["data"].keys() == own["data"].keys()


async def test_no_signature_without_a_secret() -> None:
    result, sink = await send_to_sink()
    assert isinstance(result, Sent)
    assert "webhook-signature" not in sink.last.headers


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.MISSED, RunStatus.CANCELED])
async def test_event_type_is_the_run_status(status: RunStatus) -> None:
    sink = Sink()
    async with serving(sink.handle) as sink.port, channel() as webhook:
        recipient = a_recipient(Channel.WEBHOOK, to=sink.url)
        run = an_ended_run(status=status, result=None, error="why")
        await webhook.send(an_attempt(run, recipient))
    assert json.loads(sink.last.body)["type"] == f"run.{status}"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("204 No Content", Sent(receipt="204")),
        ("410 Gone", Refused(error="HTTP 410 Gone", code="gone")),
        ("404 Not Found", Refused(error="HTTP 404 Not Found", code="http_404")),
        ("302 Found", Refused(error="HTTP 302 Found: redirects are not followed", code="redirect")),
        ("408 Request Timeout", Retry(error="HTTP 408 Request Timeout", code="http_408")),
        ("500 Oops", Retry(error="HTTP 500 Oops", code="http_500")),
    ],
)
async def test_http_statuses_map_to_results(status: str, expected: object) -> None:
    result, sink = await send_to_sink([answer(status, Location="http://127.0.0.1:1/")])
    assert result == expected
    assert len(sink.requests) == 1


async def test_retry_after_delays_the_retry() -> None:
    result, _ = await send_to_sink([answer("429 Slow Down", Retry_After="90")])
    assert isinstance(result, Retry)
    assert (result.after, result.rate_limited) == (timedelta(seconds=90), True)


async def test_private_addresses_are_refused_with_keys() -> None:
    result, sink = await send_to_sink(egress=SERVER)
    assert isinstance(result, Refused)
    assert (result.code, sink.connections) == ("egress_denied", 0)


async def test_unreachable_or_silent_receiver_is_retried() -> None:
    recipient = a_recipient(Channel.WEBHOOK, to="http://127.0.0.1:9/")
    async with channel() as webhook:
        result = await webhook.send(an_attempt(recipient=recipient))
    assert result == Retry(error="connection refused", code="connect_failed")

    sink = Sink()

    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    sink.then = silent
    async with serving(sink.handle) as sink.port, channel(seconds=0.1) as webhook:
        recipient = a_recipient(Channel.WEBHOOK, to=sink.url)
        result = await webhook.send(an_attempt(recipient=recipient))
    assert result == Retry(error="timed out after 0.1 s", code="timeout")


async def test_an_address_saved_under_older_rules_is_a_permanent_failure() -> None:
    recipient = a_recipient(Channel.WEBHOOK, to="ftp://example.com/")
    async with channel() as webhook:
        result = await webhook.send(an_attempt(recipient=recipient))
    assert isinstance(result, Refused)
    assert result.code == "invalid_url"
