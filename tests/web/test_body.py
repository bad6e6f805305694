"""Strict parsing of JSON bodies."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.web.requests import MAX_DEPTH, MAX_KEYS, MAX_STRING, RequestRejected, strict_json
from tests.tables import each_row

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(json_values, st.booleans())
def test_valid_json_is_parsed_as_by_the_json_module(value: object, ascii_only: bool) -> None:
    assert strict_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=60) | st.text('[]{}",:\\u0123456789eE+-. nrtbfalsNaIfiy').map(str.encode))
def test_arbitrary_bytes_raise_only_rejections(data: bytes) -> None:
    with contextlib.suppress(RequestRejected, InvalidInput):
        strict_json(data)


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + "0" + closing * depth).encode()


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("[", "")])
def test_too_deep_nesting_is_rejected(depth: int, opening: str, closing: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        strict_json(nested(depth, opening, closing))
    assert caught.value.code == "json_too_deep"


def test_nesting_up_to_the_limit_and_brackets_in_strings_are_accepted() -> None:
    assert strict_json(nested(MAX_DEPTH)) is not None
    brackets = "[" * 100 + '\\" ['
    assert strict_json(json.dumps({"a": brackets}).encode()) == {"a": brackets}
    wide = json.dumps([[] for _ in range(500)]).encode()
    assert strict_json(wide) == [[] for _ in range(500)]


@each_row(
    ("text", "code"),
    [
        ("NaN", "bad_number"),
        ("[Infinity]", "bad_number"),
        ("-Infinity", "bad_number"),
        ("1e999", "bad_number"),
        ("-1e999", "bad_number"),
        ("9" * 5000, "bad_number"),
        ('{"a":1,"a":1}', "duplicate_key"),
        ('[{"x":{"a":1,"b":2,"a":3}}]', "duplicate_key"),
        ('"\\u0000"', "bad_character"),
        ('{"a\\u0000":1}', "bad_character"),
        ('"\\ud800"', "bad_character"),
        ('{"a":["\\udfff"]}', "bad_character"),
        ('{"\\ud800":1}', "bad_character"),
        ('{"\\ud800":1,"\\ud800":2}', "duplicate_key"),
        ('"' + "x" * (MAX_STRING + 1) + '"', "too_long"),
        (json.dumps({str(n): n for n in range(MAX_KEYS + 1)}), "too_many_keys"),
        (json.dumps([{"a": n} for n in range(MAX_KEYS + 1)]), "too_many_keys"),
    ],
)
def test_ambiguous_json_is_rejected(text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        strict_json(text.encode())
    assert caught.value.code == code
    str(caught.value.field).encode()


def test_surrogate_pairs_are_decoded() -> None:
    assert strict_json(b'"\\ud83d\\ude00"') == "\U0001f600"


@each_row(
    "data",
    [b"{", b"", b" ", b"[1,]", b"{'a':1}", b"\xff", b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b"1 2",
     b'"\x00"', b'"a\nb"', b"nul", b"01"],
)  # fmt: skip
def test_malformed_json_is_rejected(data: bytes) -> None:
    with pytest.raises(RequestRejected) as caught:
        strict_json(data)
    assert (caught.value.status, caught.value.code) == (400, "bad_json")
