"""Placeholders in body, headers and URL."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.model.run import AttemptEnd
from chimes.model.target import HttpTarget
from chimes.model.validation import MAX_BODY_BYTES, MAX_HEADERS, MAX_NAME_LENGTH
from chimes.targets.http import request as request_module
from chimes.targets.http.request import (
    MARKER,
    MAX_REQUEST_BYTES,
    build_request,
    fill_body,
    fill_header,
    fill_url,
)
from tests.examples import examples
from tests.tables import each_row
from tests.targets.sinks import a_call, a_sink, callback_runner

FACTS = {
    "run_id": "R",
    "job_id": "J",
    "schedule_id": "J",
    "schedule_name": 'na"me\\\n',
    "slot": "2030-01-01T00:00:00Z",
    "scheduled_at": "2030-01-01T00:00:00Z",
    "triggered_at": "2030-01-01T00:00:01Z",
    "attempt": "2",
    "fence": "5",
}


def filled(body: str, *, form: bool = False) -> str:
    return fill_body(body, FACTS, form=form)


def test_marker_values_of_known_keys_are_filled() -> None:
    body = json.dumps(
        {
            "job_id": MARKER,
            "run_id": MARKER,
            "scheduled_at": MARKER,
            "triggered_at": MARKER,
            "note": MARKER,
        },
        indent=2,
    )
    assert json.loads(filled(body)) == {
        "job_id": "J",
        "run_id": "R",
        "scheduled_at": "2030-01-01T00:00:00Z",
        "triggered_at": "2030-01-01T00:00:01Z",
        "note": MARKER,
    }


@each_row(
    ("body", "expected"),
    [
        ('{"run_id":"<filled-by-service>"}', '{"run_id":"R"}'),
        ('{ "run_id"\n:\t"<filled-by-service>" , "n":1.50 }', '{ "run_id"\n:\t"R" , "n":1.50 }'),
        # nested objects
        ('[{"a":{"fence":"<filled-by-service>"}}]', '[{"a":{"fence":"5"}}]'),
        # Go's JSON encoder escapes < and >
        (r'{"run_id":"\u003cfilled-by-service\u003e"}', '{"run_id":"R"}'),
        (r'{"run\u005fid":"<filled-by-service>"}', r'{"run\u005fid":"R"}'),
        ('{"schedule_name":"<filled-by-service>"}', r'{"schedule_name":"na\"me\\\n"}'),
        # not the value of a known key, or not the whole value
        ('{"other":"<filled-by-service>"}', '{"other":"<filled-by-service>"}'),
        ('["run_id","<filled-by-service>"]', '["run_id","<filled-by-service>"]'),
        ('{"run_id":["<filled-by-service>"]}', '{"run_id":["<filled-by-service>"]}'),
        ('{"run_id":"id <filled-by-service>"}', '{"run_id":"id <filled-by-service>"}'),
        ('{"<filled-by-service>":"run_id"}', '{"<filled-by-service>":"run_id"}'),
        # what looks like a pair inside a string is text
        (
            r'{"x":"\"run_id\":\"<filled-by-service>\"","run_id":"<filled-by-service>"}',
            r'{"x":"\"run_id\":\"<filled-by-service>\"","run_id":"R"}',
        ),
        # both kinds, and a bare number that is JSON only once it is filled
        (
            '{"n":{{attempt}},"s":"{{ slot }}","run_id":"<filled-by-service>"}',
            '{"n":2,"s":"2030-01-01T00:00:00Z","run_id":"R"}',
        ),
        ('{"n":"{{schedule_name}}"}', r'{"n":"na\"me\\\n"}'),
        # not JSON
        ("run_id=<filled-by-service>&x=1", "run_id=R&x=1"),
        ("run_id: <filled-by-service>\nx: 1", "run_id: R\nx: 1"),
        ("nobody=<filled-by-service>", "nobody=<filled-by-service>"),
        ("<filled-by-service>", "<filled-by-service>"),
        ("{{schedule_name}}", 'na"me\\\n'),
        ('{"run_id": "<filled-by-service>"', '{"run_id": "R"'),
        # left alone
        ("", ""),
        ("{{7*7}} {{x}} {{Run_Id}} {{}} {{ {a} }}", "{{7*7}} {{x}} {{Run_Id}} {{}} {{ {a} }}"),
    ],
)
def test_placeholders_in_bodies(body: str, expected: str) -> None:
    assert filled(body) == expected


def test_form_values_are_encoded() -> None:
    assert (
        filled("at=%3Cfilled-by-service%3E&scheduled_at=%3Cfilled-by-service%3E", form=True)
        == "at=%3Cfilled-by-service%3E&scheduled_at=2030-01-01T00%3A00%3A00Z"
    )
    assert filled("n={{schedule_name}}", form=True) == "n=na%22me%5C%0A"


def test_filled_headers_stay_one_line_and_urls_are_encoded() -> None:
    assert fill_header("{{schedule_name}}!", FACTS) == 'na"me\\ !'
    assert fill_url("/{{schedule_name}}/{{slot}}?{{x}}", FACTS) == (
        "/na%22me%5C%0A/2030-01-01T00%3A00%3A00Z?{{x}}"
    )


def test_filled_values_are_not_filled_again() -> None:
    facts = FACTS | {"schedule_name": "{{run_id}}"}
    assert fill_body("{{schedule_name}}", facts, form=False) == "{{run_id}}"


async def test_a_request_that_placeholders_make_too_large_is_not_sent() -> None:
    """A body or headers full of placeholders of a long name would have several megabytes."""
    name, placeholder = "\N{THAI CHARACTER KO KAI}" * MAX_NAME_LENGTH, "{{schedule_name}}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = placeholder * (MAX_BODY_BYTES // len(placeholder))
    fits = MAX_REQUEST_BYTES // len(quote(name)) - 1
    large = dict.fromkeys((f"X-{n}" for n in range(MAX_HEADERS)), placeholder * 400)
    async with a_sink() as sink, callback_runner() as callback:
        for options in ({"body": body, "headers": form}, {"headers": large}):
            call = a_call(sink.url, **options, run={"schedule_name": name})
            outcome = await callback.execute(call)
            assert (outcome.end, outcome.retryable) == (AttemptEnd.FAILED, False), outcome
            assert str(MAX_REQUEST_BYTES) in str(outcome.error)
        assert sink.requests == []
        call = a_call(sink.url, body=placeholder * fits, headers=form, run={"schedule_name": name})
        assert (await callback.execute(call)).end is AttemptEnd.SUCCEEDED
        assert len(sink.last.body) == fits * len(quote(name))


@pytest.mark.parametrize("where", ["headers", "body"])
def test_remembered_requests_are_bounded(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in characters, whatever part of the target is long."""
    templates: dict[Any, Any] = {}
    monkeypatch.setattr(request_module, "_templates", templates)

    def build(length: int) -> None:
        text = "x" * length
        options = {where: {"X-A": text} if where == "headers" else text}
        call = a_call("http://127.0.0.1:9/", **options)
        assert isinstance(call.run.target, HttpTarget)
        build_request(call, call.run.target, user_agent="Chimes/test", node_id="")

    build(request_module._REMEMBERED_LENGTH + 1)
    assert templates == {}
    for _ in range(request_module._MAX_TEMPLATES + 1):
        build(10)
    assert 0 < len(templates) <= request_module._MAX_TEMPLATES


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(MARKER),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*FACTS]), inner),
    max_leaves=20,
)


def expected_value(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: FACTS[key] if inner == MARKER and key in FACTS else expected_value(inner)
            for key, inner in value.items()
        }
    return [expected_value(inner) for inner in value] if isinstance(value, list) else value


@examples(50)
@given(
    st.dictionaries(st.text() | st.sampled_from([*FACTS]), values),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_only_marker_values_of_known_keys_change_in_any_json(
    document: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    expected = json.dumps(expected_value(document), ensure_ascii=False, indent=indent)
    if "{{" not in body:
        assert json.loads(filled(body)) == json.loads(expected)
        if MARKER not in body:
            assert filled(body) == body


# Guards against catastrophic backtracking.
@pytest.mark.parametrize(
    "body",
    [
        "{{ " * 20_000,
        "{{" + " " * 65_000,
        '{"a":"' + '\\"' * 30_000 + '"' + MARKER,
        "a=" * 30_000 + MARKER,
        "[" * 60_000 + MARKER,
        "a_" * 30_000 + "=" + MARKER,
    ],
)
@pytest.mark.timeout(10)
def test_hostile_bodies_are_returned_unchanged_within_the_time_limit(body: str) -> None:
    assert filled(body) == body
