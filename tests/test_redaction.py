"""Masking of secrets in URLs, JSON documents, forms and arguments, and keeping them in edits."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from chimes.redaction import (
    HIDDEN,
    Redactor,
    mask_arguments,
    mask_text,
    masked_names,
    secrets_in,
    unmask_arguments,
    unmask_text,
)

#: Text and what is shown of it.
MASKED = {
    "https://h/p?token=abc&x=1": "https://h/p?token=***&x=1",
    "https://h/p?X-Amz-Signature=abc": "https://h/p?X-Amz-Signature=***",
    "https://h/?key=a&sig=b&access_token=c&code=d": "https://h/?key=***&sig=***&access_token=***&code=***",
    "https://h/?%74oken=abc": "https://h/?%74oken=***",
    "https://h/?a='b&token=x": "https://h/?a='b&token=***",
    "https://h/cb#access_token=abc": "https://h/cb#access_token=***",
    "https://h/?next=https://x/?sig=1&b=2": "https://h/?next=https://x/?sig=***&b=2",
    "https://user:pass@h/p": "https://user:***@h/p",
    "https://ghp_token@h/p": "https://***@h/p",
    "redis://:pass@h/0": "redis://:***@h/0",
    "https://h:8080/@ann?page=2": "https://h:8080/@ann?page=2",
    "https://api.telegram.org/bot12:abc/sendMessage": "https://api.telegram.org/bot12:***/sendMessage",
    "see https://h/?token=abc and mail a@b.c": "see https://h/?token=*** and mail a@b.c",
    "user=ann&password=abc&page=2": "user=ann&password=***&page=2",
    "id=a&client_secret=S&run={{ run_id }}": "id=a&client_secret=***&run={{ run_id }}",
    "client_secret=S&name=Bob Smith": "client_secret=***&name=Bob Smith",
    "client_secret=S&debug&x=1": "client_secret=***&debug&x=1",
    "debug&client_secret=S": "debug&client_secret=***",
    "Bob Smith&client_secret=S": "Bob Smith&client_secret=***",
    "a=1&client_secret=S T;U#V&b=2": "a=1&client_secret=***&b=2",
    "a=1&client_secret=S\r\n": "a=1&client_secret=***\r\n",
    "a=1&\r\n  client_secret=S&\r\nb=2": "a=1&\r\n  client_secret=***&\r\nb=2",
    "a=1\nclient_secret=S": "a=1\nclient_secret=***",
    "{{run_id}}&client_secret=S": "{{run_id}}&client_secret=***",
    " {{ run_id }}=1&client_secret=S": " {{ run_id }}=1&client_secret=***",
    "a=https://u:p@h/ x&token=b&c=whsec_abcdefgh": "a=https://u:***@h/ x&token=***&c=whsec_***",
    "password=a=b&b[token]=c&%74oken=d": "password=***&b[token]=***&%74oken=***",
    "https://h/{{ run_id }}?token=abc": "https://h/{{ run_id }}?token=***",
    "https://h/bot12:abc&token=x": "https://h/bot12:***&token=***",
    '{"a": 1,  "token" : "x"}': '{"a": 1,  "token" : "***"}',
    '{"n": {"l": [{"api_key": "x"}, 2]}}': '{"n": {"l": [{"api_key": "***"}, 2]}}',
    '{"password": 5, "secret": {"a": [1]}, "b": 2}': '{"password": "***", "secret": "***", "b": 2}',
    '{"authorization": ["a", "b"]}': '{"authorization": "***"}',
    '{"token": "", "secret": null, "key": "k"}': '{"token": "", "secret": null, "key": "k"}',
    '{"\\u0074oken": "x"}': '{"\\u0074oken": "***"}',
    '{"url": "https://h/?key=x"}': '{"url": "https://h/?key=***"}',
    '{"inner": "{\\"token\\": \\"x\\"}"}': '{"inner": "{\\"token\\": \\"***\\"}"}',
    # Not valid JSON: placeholders without quotes, or cut off.
    '{"n": {{attempt}}, "token": "x", "b": 1}': '{"n": {{attempt}}, "token": "***", "b": 1}',
    '{"token": {"a": 1': '{"token": "***"',
    '{"token": "abc': '{"token": "***"',
    "***bold***": "***bold***",
    "Which token = 5? Yes; code=7": "Which token = 5? Yes; code=7",
    # Prose.
    "Set token = abc & code = 7": "Set token = abc & code = 7",
    "R&D: the token is abc": "R&D: the token is abc",
    "x=5 means that token=7 & so on": "x=5 means that token=7 & so on",
    "": "",
}


def test_secrets_in_texts_are_hidden_and_restored() -> None:
    wrong = {
        text: (mask_text(text), unmask_text(mask_text(text), text))
        for text, shown in MASKED.items()
        if mask_text(text) != shown or unmask_text(mask_text(text), text) != text
    }
    assert not wrong


def test_an_edited_text_keeps_the_secrets_that_it_shows_as_masked() -> None:
    edits = [
        ("https://h/?token=a&x=1", "https://other/p?y=2&token=***", "https://other/p?y=2&token=a"),
        ("https://h/?token=a&token=b", "https://h/?token=***&token=new", "https://h/?token=a&token=new"),
        ("https://u:p@h/", "https://v:***@h/x", "https://v:p@h/x"),
        ("https://h/?token=a", "https://h/?sig=***", "https://h/?sig=***"),
        ('{"token":"a","n":1}', '{\n "n": 2,\n "token": "***"\n}', '{\n "n": 2,\n "token": "a"\n}'),
        ('{"token":"a"}', '{"token":"b"}', '{"token":"b"}'),
        ('{"secret":{"a":1}}', '{"x":1,"secret":"***"}', '{"x":1,"secret":{"a":1}}'),
        ('[{"token":"a"},{"token":"b"}]', '[1,{"token":"***"}]', '[1,{"token":"b"}]'),
        # The items of a list of another length cannot be matched.
        ('{"l":[{"token":"a"}]}', '{"l":[{"token":"***"},{}]}', '{"l":[{"token":"***"},{}]}'),
        ('{"u":"https://h/?key=a"}', '{"u":"https://i/?key=***"}', '{"u":"https://i/?key=a"}'),
        ("a=1&password=x", "password=***&b=2", "password=x&b=2"),
        ("a=1&password=x y\r\n", "password=***&b={{ run_id }}", "password=x y&b={{ run_id }}"),
        ("{{run_id}}&password=x", "run={{run_id}}&password=***\n", "run={{run_id}}&password=x\n"),
        ('{"s":"***a","token":"a"}', '{"s":"***b","token":"***"}', '{"s":"***b","token":"a"}'),
    ]  # fmt: skip
    wrong = {
        sent: unmask_text(sent, stored)
        for stored, sent, kept in edits
        if unmask_text(sent, stored) != kept
    }
    assert not wrong


_NAMES = st.sampled_from(["a", "token", "password", "text", "deep", "api_key", "l"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["https://h/?key=x&a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _JSON, max_size=4), st.sampled_from([None, 1]))
def test_text_and_value_of_a_document_are_masked_alike(
    value: dict[str, object], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent)
    assert json.loads(mask_text(text)) == mask_arguments(value)
    assert unmask_text(mask_text(text), text) == text
    assert unmask_arguments(mask_arguments(value), value) == value


@given(st.text(alphabet='{}[]":,\\ tokensecr=?&;#@/.*1', max_size=60))
def test_any_text_is_restored(text: str) -> None:
    if HIDDEN not in text:
        assert unmask_text(mask_text(text), text) == text


def test_masking_takes_linear_time() -> None:
    """Each would take minutes or gigabytes if it were quadratic."""
    for text in (
        "[" * 300_000,
        '["a",' * 60_000,
        '{"token":' * 40_000,
        "https://x/" + "?a=" * 90_000,
        "a=" + "&b" * 90_000,
        "{{a}}" * 60_000,
        "a\n" * 90_000 + "=&b=",
    ):
        mask_text(text)
        Redactor().text(text)


def test_masked_secrets_are_found_in_definitions() -> None:
    shown = {
        "target": {"url": "https://h/?token=***", "body": '{"a": {"token": "***"}}'},
        "headers": {"Authorization": "***"},
        "list": ["***bold***", {"args": {"secret": "***"}}],
    }
    assert [*masked_names(shown)] == [
        "target.url",
        "target.body",
        "headers.Authorization",
        "list[1].args.secret",
    ]


def test_logs_hide_fields_of_documents() -> None:
    line = 'sent {"password": "a\\"b", "n": 1}, {\'api_key\': \'zz\'}, "{\\"token\\": \\"abc\\"}"'
    shown = Redactor().text(line)
    assert (
        shown
        == 'sent {"password": "***", "n": 1}, {\'api_key\': \'***\'}, "{\\"token\\": \\"***\\"}"'
    )


def test_secrets_of_a_text() -> None:
    assert [*secrets_in('{"a": {"token": "x\\ny"}}')] == ["x\ny"]
    assert [*secrets_in("https://u:p@h/?sig=1")] == ["p", "1"]
    assert [*secrets_in('["https://h/?key=a"]')] == ["a"]
