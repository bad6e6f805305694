"""Outgoing callbacks: SSRF, header injection, signatures, secrets.

Tests of denied calls use a canary: a real listener that must receive nothing.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import fields
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from chimes.clock import SystemClock
from chimes.egress import Denial, EgressRules, ModeEgress
from chimes.errors import InvalidInput
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import HttpTarget
from chimes.model.validation import check_http_target
from tests.builders import NOW
from tests.tables import each_row
from tests.targets.sinks import (
    OPEN,
    SERVER,
    Logged,
    Sink,
    a_call,
    a_sink,
    answer,
    callback_runner,
    serving,
)

KEYS = tuple("whsec_" + base64.b64encode(bytes([n]) * 24).decode() for n in (1, 2, 3))


def resolve_to_loopback(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


def validation_error(egress: EgressRules | None = None, **target: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check_http_target(HttpTarget(**({"url": "http://h/"} | target)), egress=egress)
    return caught.value


def is_denied(outcome: Outcome) -> bool:
    return (outcome.end, outcome.code, outcome.retryable) == ("failed", "egress_denied", False)


# Success depends on status codes only, so users cannot supply expensive patterns.
def test_http_target_has_no_user_defined_pattern() -> None:
    assert {field.name for field in fields(HttpTarget)} == {
        "kind",
        "url",
        "method",
        "headers",
        "body",
        "expected_status",
        "signing_secrets",
        "verify_tls",
    }


LITERALS = [
    "127.0.0.1", "[::1]", "0", "127.1", "0x7f.1", "2130706433", "0177.0.0.1",
    "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "100.64.0.1", "224.0.0.1",
    "[fec0::1]", "169.254.169.254", "localhost", "metadata.google.internal",
]  # fmt: skip


@pytest.mark.parametrize("host", LITERALS)
async def test_private_addresses_are_denied_in_server_mode(host: str) -> None:
    assert validation_error(SERVER, url=f"http://{host}:8080/").code == "egress_denied"
    async with a_sink() as canary, callback_runner(SERVER) as callback:
        outcome = await callback.execute(a_call(f"http://{host}:{canary.port}/"))
    assert is_denied(outcome)
    assert canary.connections == 0


# A name that resolves to a private address.
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "169.254.169.254", "0.0.0.0"],
)
async def test_names_that_resolve_to_private_addresses_are_denied_in_server_mode(
    address: str,
) -> None:
    async with a_sink() as canary, callback_runner(SERVER, lookup=lambda _: [address]) as callback:
        outcome = await callback.execute(a_call(f"http://innocent.example:{canary.port}/"))
    assert is_denied(outcome)
    assert address not in outcome.error, "the error does not reveal the address"
    assert canary.connections == 0


# Open mode allows loopback, but none of these.
@pytest.mark.parametrize("host", ["0", "169.254.169.254", "224.0.0.1", "[fe80::1]"])
async def test_link_local_and_multicast_addresses_are_denied_in_open_mode(host: str) -> None:
    assert validation_error(OPEN, url=f"http://{host}:8080/").code == "egress_denied"
    async with callback_runner(OPEN) as callback:
        assert is_denied(await callback.execute(a_call(f"http://{host}:8080/")))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "localhost", "own.example"])
async def test_own_port_is_denied_under_every_name(host: str) -> None:
    async with a_sink() as canary:
        rules = EgressRules(open_mode=True, own_ports=frozenset({("127.0.0.1", canary.port)}))
        async with callback_runner(rules, lookup=resolve_to_loopback) as callback:
            assert is_denied(await callback.execute(a_call(f"http://{host}:{canary.port}/")))
        assert canary.connections == 0


def own_addresses() -> Iterator[str]:
    yield "127.0.0.2"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        yield probe.getsockname()[0]


async def test_own_port_on_another_address_of_the_machine_is_denied() -> None:
    received: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(100))

    async with serving(listen, host="0.0.0.0") as port:
        rules = EgressRules(open_mode=True, own_ports=frozenset({("0.0.0.0", port)}))
        async with callback_runner(rules) as callback:
            for address in own_addresses():
                outcome = await callback.execute(a_call(f"http://{address}:{port}/"))
                assert is_denied(outcome), address
    assert set(received) <= {b""}


class OwnMachineDenied(EgressRules):
    """Denies what `own_ports` denies on an address that only the connection shows to be own."""

    def check_address(self, *args: Any, same_machine: bool = False, **given: Any) -> Denial | None:
        return Denial(text="own") if same_machine else None


async def test_connection_between_equal_addresses_is_to_the_own_machine() -> None:
    sink = Sink()
    async with (
        serving(sink.handle, host="0.0.0.0") as port,
        callback_runner(OwnMachineDenied()) as callback,
    ):
        assert is_denied(await callback.execute(a_call(f"http://127.0.0.1:{port}/")))
        assert sink.requests == []
        # The other end of this connection is 127.0.0.1.
        outcome = await callback.execute(a_call(f"http://127.0.0.2:{port}/"))
        assert outcome.end is AttemptEnd.SUCCEEDED


# The first key ends open mode while connections to private addresses are pooled.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "innocent.example"])
async def test_pooled_connection_is_denied_after_open_mode_ends(host: str) -> None:
    modes = [True]
    rules = ModeEgress(open_mode=lambda: modes[-1], while_open=OPEN, with_keys=SERVER)
    async with a_sink() as sink, callback_runner(rules, lookup=resolve_to_loopback) as callback:
        call = a_call(f"http://{host}:{sink.port}/")
        for _ in range(2):
            assert (await callback.execute(call)).end is AttemptEnd.SUCCEEDED
        assert (sink.connections, len(sink.requests)) == (1, 2), "kept alive"
        modes.append(False)
        assert is_denied(await callback.execute(call))
        assert (sink.connections, len(sink.requests)) == (1, 2)
        modes.append(True)
        assert (await callback.execute(call)).end is AttemptEnd.SUCCEEDED


async def test_allow_list_opens_a_private_address_for_its_port_only() -> None:
    async with a_sink() as sink, a_sink() as canary:
        rules = EgressRules(open_mode=False, allow=(f"127.0.0.0/8:{sink.port}",))
        async with callback_runner(rules, lookup=resolve_to_loopback) as callback:
            for host in ("127.0.0.1", "ci.corp.example"):
                outcome = await callback.execute(a_call(f"http://{host}:{sink.port}/"))
                assert outcome.end is AttemptEnd.SUCCEEDED
                assert is_denied(await callback.execute(a_call(f"http://{host}:{canary.port}/")))
        assert canary.connections == 0


@pytest.mark.parametrize("order", [1, -1])
async def test_name_with_one_private_address_is_denied(order: int) -> None:
    async with a_sink() as canary:
        addresses = ["8.8.8.8", "127.0.0.1"][::order]
        async with callback_runner(SERVER, lookup=lambda _: addresses) as callback:
            outcome = await callback.execute(a_call(f"http://mixed.example:{canary.port}/"))
        assert is_denied(outcome)
        assert canary.connections == 0


# The allowed 127.0.0.2 stands for a public address; 127.0.0.1 must not be called.
async def test_dns_rebinding_reaches_only_the_checked_address() -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]]
    asked = 0

    def rebinding(host: str) -> Sequence[str]:
        nonlocal asked
        asked += 1
        return answers[min(asked, len(answers)) - 1]

    seen: list[str] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(writer.get_extra_info("sockname")[0])
        writer.write(answer("200 OK", Connection="close"))
        await writer.drain()

    async with serving(respond, host="0.0.0.0") as port:
        rules = EgressRules(open_mode=False, allow=(f"127.0.0.2/32:{port}",))
        async with callback_runner(rules, lookup=rebinding) as callback:
            first = await callback.execute(a_call(f"http://rebind.example:{port}/"))
            assert (first.end, asked) == (AttemptEnd.SUCCEEDED, 1), "looked up once, dialled as is"
            assert is_denied(await callback.execute(a_call(f"http://rebind.example:{port}/")))
    assert seen == ["127.0.0.2"]


async def test_pooled_connection_is_not_reused_for_a_denied_name() -> None:
    async with a_sink() as sink:
        rules = EgressRules(open_mode=False, allow=(f"trusted.example:{sink.port}",))
        async with callback_runner(rules, lookup=resolve_to_loopback) as callback:
            trusted = await callback.execute(a_call(f"http://trusted.example:{sink.port}/"))
            other = await callback.execute(a_call(f"http://other.example:{sink.port}/"))
            literal = await callback.execute(a_call(f"http://127.0.0.1:{sink.port}/"))
    assert trusted.end is AttemptEnd.SUCCEEDED
    assert is_denied(other)
    assert is_denied(literal)
    assert sink.connections == 1
    assert len(sink.requests) == 1


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
async def test_redirects_are_not_followed(status: str) -> None:
    async with a_sink() as canary:
        where = f"{canary.url}/steal?token=abcdefghij"
        async with (
            a_sink(answer(f"{status} Moved", Location=where)) as sink,
            callback_runner() as callback,
        ):
            outcome = await callback.execute(a_call(sink.url, body="secret body"))
        assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "redirect", False)
        assert outcome.result is not None
        assert outcome.result["location"] == where
        assert canary.connections == 0
        assert len(sink.requests) == 1


async def test_redirect_loop_and_refresh_header_cause_one_request() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        sink.answers = [answer("302 Found", Location=sink.url)]
        assert (await callback.execute(a_call(sink.url))).code == "redirect"
        sink.answers = [answer("200 OK", Refresh=f"0; url={sink.url}/again")]
        outcome = await callback.execute(a_call(sink.url))
        assert outcome.end is AttemptEnd.SUCCEEDED
        assert len(sink.requests) == 2


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://h/",
        "ftp://h/",
        "javascript:alert(1)",
        "http://user:pw@host/",
        "http://a@b@c",
        "http://host:22",
        "http://host#@evil",
        "http://host\\@evil",
        "http://ho\tst/",
        "http://host/\n",
        "http://host/\r\nX: y",
        "http://host/" + "x" * 2048,
    ],
)
async def test_invalid_urls_are_rejected(url: str) -> None:
    assert validation_error(OPEN, url=url).field == "url"
    async with callback_runner() as callback:
        outcome = await callback.execute(a_call(url))
    assert (outcome.end, outcome.retryable) == ("failed", False)


@each_row(
    ("name", "value", "code"),
    [
        ("X-A", "a\rb", "header_value"),
        ("X-A", "a\nb", "header_value"),
        ("X-A", "a\r\nX-Evil: 1", "header_value"),
        ("X-A", "a\x00b", "header_value"),
        ("X-A", "a\x1bb", "header_value"),
        ("X-A", "a\x7fb", "header_value"),
        ("X-A", "\ud800", "not_text"),
        ("X-A", "x" * 8193, "header_too_long"),
        ("X A", "v", "header_name"),
        ("X-A:", "v", "header_name"),
        ("X-A\r\nX-B", "v", "header_name"),
        ("X-\x00", "v", "header_name"),
        ("X-Ü", "v", "header_name"),
        ("", "v", "header_name"),
        ("(x)", "v", "header_name"),
    ],
)
def test_invalid_headers_are_rejected(name: str, value: str, code: str) -> None:
    error = validation_error(headers={name: value})
    assert error.code == code
    assert error.field is not None
    assert error.field.startswith("headers")


def test_more_than_a_hundred_headers_are_rejected() -> None:
    check_http_target(HttpTarget(url="http://h/", headers={f"X-{n}": "v" for n in range(100)}))
    many = {f"X-{n}": "v" for n in range(101)}
    assert validation_error(headers=many).code == "too_many_headers"


@each_row(
    "name",
    [
        "Host", "Content-Length", "Transfer-Encoding", "Connection", "Proxy-Authorization",
        "Proxy-Connection", "webhook-id", "Webhook-Signature", "WEBHOOK-TIMESTAMP", "Cookie",
        "cookie", "X-Ksana-Run-Id", "Idempotency-Key", "X-Chimes-Fence", "x-chimes-anything",
        "Upgrade", "TE", "Trailer", "Expect", "Keep-Alive",
    ],
)  # fmt: skip
def test_reserved_headers_are_rejected(name: str) -> None:
    error = validation_error(headers={name: "v"})
    assert (error.code, error.field) == ("header_reserved", f"headers.{name}")


# Two spellings of one header would be two headers on the wire.
def test_header_given_in_two_spellings_is_rejected() -> None:
    assert validation_error(headers={"X-A": "1", "x-a": "2"}).code == "header_twice"


@pytest.mark.parametrize("tail", ["/a\r\nX-Evil: 1", "/a b", "/?q=a\nb", "/\x00"])
def test_control_characters_and_spaces_in_a_path_are_rejected(tail: str) -> None:
    assert validation_error(url=f"http://h{tail}").code == "url_character"


async def test_hostile_url_and_placeholder_values_are_encoded_into_one_request() -> None:
    evil = "/ü/%0d%0aX-Evil:%201/<>\"'^`{|}?q=ä%0D%0A%0D%0AGET%20/evil&p=100%&n={{schedule_name}}"
    call_run = {"schedule_name": "x\r\n\r\nGET /evil HTTP/1.1\r\nX-Evil: 1\r\n\r\n"}
    async with a_sink() as sink, callback_runner() as callback:
        outcome = await callback.execute(
            a_call(
                sink.url + evil,
                method="POST",
                headers={"X-Name": "{{schedule_name}}"},
                body="{{schedule_name}}",
                run=call_run,
            )
        )
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert len(sink.requests) == 1
    raw = sink.last.raw
    head, _, body = raw.partition(b"\r\n\r\n")
    assert body == call_run["schedule_name"].encode()
    assert b"\nX-Evil" not in head
    assert head.split(b"\r\n")[0].count(b" ") == 2
    assert all(0x20 < byte < 0x7F for byte in sink.last.target.encode())


async def test_signature_verifies_with_each_secret_during_rotation() -> None:
    async with a_sink() as sink, callback_runner() as callback:
        call = a_call(
            sink.url,
            body='{"run_id": "<filled-by-service>", "ü": "{{slot}}"}',
            signing_secrets=KEYS[:2],
            triggered_at=SystemClock().now(),
        )
        await callback.execute(call)
    assert len(sink.last.headers["webhook-signature"].split(" ")) == 2
    for key in KEYS[:2]:
        payload = Webhook(key).verify(sink.last.body, sink.last.headers)
        assert payload["run_id"] == call.run.id
    with pytest.raises(WebhookVerificationError):
        Webhook(KEYS[2]).verify(sink.last.body, sink.last.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(KEYS[0]).verify(sink.last.body + b" ", sink.last.headers)


def test_short_signing_secrets_are_rejected() -> None:
    short = "whsec_" + base64.b64encode(b"x" * 23).decode()
    error = validation_error(signing_secrets=(short,))
    assert (error.field, error.code) == ("signing_secrets", "signing_secret")


async def test_retry_has_the_same_id_a_new_timestamp_and_a_higher_fence() -> None:
    async with a_sink(answer("503 Busy"), answer("200 OK")) as sink, callback_runner() as callback:
        for attempt in (1, 2):
            await callback.execute(
                a_call(
                    sink.url,
                    signing_secrets=KEYS[:1],
                    triggered_at=NOW + timedelta(seconds=5 * attempt),
                    run={"id": "run-1", "attempt": attempt, "fence": attempt + 3},
                )
            )
    first, second = (request.headers for request in sink.requests)
    for name in ("webhook-id", "idempotency-key", "x-ksana-run-id"):
        assert first[name] == second[name] == "run-1"
    assert int(second["webhook-timestamp"]) == int(first["webhook-timestamp"]) + 5
    assert (first["x-chimes-fence"], second["x-chimes-fence"]) == ("4", "5")
    assert (first["x-chimes-attempt"], second["x-chimes-attempt"]) == ("1", "2")
    assert first["webhook-signature"] != second["webhook-signature"]


# The clock of this machine differs from the store's by years.
async def test_webhook_timestamp_is_the_store_time() -> None:
    stores_time = datetime.fromisoformat("2031-05-06T07:08:09.900000+00:00")
    async with a_sink() as sink, callback_runner() as callback:
        await callback.execute(a_call(sink.url, triggered_at=stores_time, body="{{triggered_at}}"))
    assert sink.last.headers["webhook-timestamp"] == str(int(stores_time.timestamp()))
    assert sink.last.body == b"2031-05-06T07:08:09.900000Z"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_proxy_in_the_environment_is_ignored(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_sink() as canary, a_sink() as sink:
        monkeypatch.setenv(name, canary.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with callback_runner() as callback:
            outcome = await callback.execute(a_call(sink.url))
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert canary.connections == 0
    assert len(sink.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<script>alert(1)</script>" * 200_000,
        b"\x1b[31mred\x1b]52;c;aGk=\x07" * 10_000,
        b"\xff\xfe\x80abc" * 100_000,
        b"a\x00b" * 100_000,
        "ü".encode() * 50_000,
        b"x" + "ü".encode() * 50_000,
        b"\xed\xa0\x80" * 1000,
        b"",
    ],
    ids=["script", "terminal", "not utf-8", "nul", "letters", "odd letters", "surrogates", "empty"],
)
@pytest.mark.parametrize(("status", "end"), [("200 OK", "succeeded"), ("500 Oops", "failed")])
async def test_hostile_response_body_is_stored_truncated_as_plain_text(
    body: bytes, status: str, end: str
) -> None:
    async with a_sink(answer(status, body)) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.end == end
    assert outcome.result is not None
    kept = outcome.result["body"]
    assert isinstance(kept, str)
    assert len(kept.encode()) <= 65536
    assert "\x00" not in kept
    assert outcome.result["truncated"] is (len(body) > 65536)
    if body.startswith((b"<script", b"\x1b", "ü".encode())):
        assert body.decode().startswith(kept)
        assert len(kept.encode()) > 65000 or not outcome.result["truncated"]


async def test_hostile_response_headers_are_stored_sanitised() -> None:
    raw = (
        b"HTTP/1.1 400 N\xff\xfeo\r\nX-Bad: \xff\xfe\r\nX-Long: "
        + b"y" * 5000
        + b"\r\nContent-Length: 0\r\n\r\n"
    )
    async with a_sink(raw) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.result is not None
    headers = outcome.result["headers"]
    assert isinstance(headers, dict)
    assert headers["X-Bad"] == "\ufffd\ufffd"
    assert len(headers["X-Long"]) <= 1024
    outcome.error.encode()


@pytest.mark.parametrize(
    "target",
    [
        {"url": "http://h/{{secret.}}"},
        {"body": "{{ secret:X }}"},
        {"headers": {"Authorization": "Bearer {{secret X}}"}},
    ],
)
def test_malformed_placeholder_of_a_secret_is_rejected(target: dict[str, Any]) -> None:
    assert validation_error(**target).code == "unknown_secret"


async def test_secrets_of_the_body_are_sent_and_masked_in_what_the_receiver_echoes() -> None:
    body = '{"login": {"password": "bodysecret-1"}, "hook": "https://h/?token=bodysecret-2"}'
    async with a_sink() as sink, callback_runner() as callback:
        sink.answers = [answer("200 OK", f"you sent {body}".encode())]
        outcome = await callback.execute(a_call(sink.url, body=body))
        (request,) = sink.requests
    assert request.body == body.encode(), "executed with the secrets"
    assert "bodysecret" not in repr(outcome)


# Receivers may echo secrets in their responses.
async def test_secrets_are_masked_in_result_and_log() -> None:
    token, key, api_key = "t0psecret-token", "urlsecret%2Bkey", "chm_abcdefghijkl"
    async with a_sink() as sink, callback_runner() as callback:
        sink.answers = [
            answer(
                "500 Oops",
                f"you sent Bearer {token} and urlsecret+key and {KEYS[0]} {api_key}".encode(),
                X_Echo=token,
                Location=f"/?x={token}",
                Set_Cookie="sid=cookiesecret",
                WWW_Authenticate="Digest nonce=abc",
            )
        ]
        call = a_call(
            f"{sink.url}/bot12345:AAbotsecret/send?api_key={key}&page=2&access_token=&q=hello",
            headers={"Authorization": f"Bearer {token}", "X-API-Key": api_key, "X-Plain": "plain"},
            signing_secrets=KEYS[:1],
        )
        outcome = await callback.execute(call)
    assert isinstance(call.log, Logged)
    everything = repr(outcome) + repr(call.log.lines)
    for secret in (token, key, "urlsecret+key", KEYS[0], api_key, "AAbotsecret", "cookiesecret"):
        assert secret not in everything
    assert outcome.result is not None
    assert outcome.result["url"] == (
        f"{sink.url}/bot12345:***/send?api_key=***&page=2&access_token=***&q=hello"
    )
    assert outcome.result["body"] == "you sent *** and *** and *** ***"
    assert sink.last.target.startswith(f"/bot12345:AAbotsecret/send?api_key={key}"), "it was sent"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "name.example"])
async def test_refused_connections_have_the_same_error(host: str) -> None:
    with socket.socket() as closed:
        closed.bind(("0.0.0.0", 0))
        port = closed.getsockname()[1]
        async with callback_runner(lookup=resolve_to_loopback) as callback:
            outcome = await callback.execute(a_call(f"http://{host}:{port}/"))
    assert (outcome.code, outcome.error) == ("connect_failed", "connection refused")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "name.example"])
async def test_denied_call_does_not_reveal_whether_the_port_is_open(host: str) -> None:
    errors = []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with (
            a_sink() as sink,
            callback_runner(SERVER, lookup=resolve_to_loopback) as callback,
        ):
            for port in (sink.port, closed.getsockname()[1]):
                outcome = await callback.execute(a_call(f"http://{host}:{port}/"))
                assert is_denied(outcome)
                errors.append(outcome.error.replace(str(port), "PORT"))
    assert errors[0] == errors[1]
