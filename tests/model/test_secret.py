"""Placeholders of named secrets: where they are found, how they are filled, what is shown."""

from __future__ import annotations

import base64

import pytest

from chimes.errors import InvalidInput
from chimes.model.access import (
    check_secret_name,
    check_secret_value,
    fill_secrets,
    secret_fields,
    secret_names,
)
from chimes.model.recipient import Channel, Recipient
from chimes.model.target import ActionTarget, AgentTarget, HttpTarget, TaskTarget
from chimes.model.validation import check_recipients, check_target
from chimes.redaction import (
    echoed_forms,
    is_placeholder,
    is_sealed,
    mask_arguments,
    mask_headers,
    mask_known,
    mask_text,
    mask_url,
)

HTTP = HttpTarget(
    url="https://h/{{secret.PATH}}",
    headers={"Authorization": "Basic {{secret.USER}}:{{ secret.PASS }}"},
    body="{{secret.BODY}} {{run_id}} {{secretary}}",
    signing_secrets=("{{secret.SIGN}}",),
)
ACTION = ActionTarget(action_type_id="a", kn_id="k", params={"deep": [{"key": "{{secret.DEEP}}"}]})


def test_names_are_found_in_the_fields_that_take_secrets() -> None:
    assert secret_names(HTTP) == {"PATH", "USER", "PASS", "BODY", "SIGN"}
    hook = Recipient(channel=Channel.WEBHOOK, to="https://h/?key={{secret.HOOK}}")
    assert secret_names(ACTION, (hook,)) == {"DEEP", "HOOK"}
    # Prompts and arguments of tasks may be written by others: nothing is filled in there.
    assert secret_names(AgentTarget(prompt="{{secret.X}}")) == set()
    assert secret_names(TaskTarget(name="t", args={"a": "{{secret.X}}"})) == set()
    assert dict(secret_fields(ACTION)) == {"params.deep[0].key": "DEEP"}


def test_filling_is_one_pass_and_leaves_other_placeholders() -> None:
    filled = fill_secrets(ACTION, {"DEEP": "{{secret.OTHER}}", "OTHER": "never"})
    assert filled.params == {"deep": [{"key": "{{secret.OTHER}}"}]}
    assert fill_secrets({"A": "{{secret.X}}{{secret.Y}}{{run_id}}"}, {"X": "1"}) == {
        "A": "1{{secret.Y}}{{run_id}}"
    }


@pytest.mark.parametrize("text", ["{{secret.}}", "{{secret:X}}", "{{ secret X}}", "{{secret.a b}}"])
def test_malformed_placeholders_are_refused(text: str) -> None:
    for check in (
        lambda: check_target(HttpTarget(url="https://h/", body=text)),
        lambda: check_target(ActionTarget(action_type_id="a", kn_id="k", params={"p": text})),
    ):
        with pytest.raises(InvalidInput, match=r"\{\{secret\.NAME\}\}") as refused:
            check()
        assert refused.value.code == "unknown_secret"


def test_only_recipients_by_url_take_secrets() -> None:
    mail = Recipient(channel=Channel.EMAIL, to="{{secret.X}}@example.com")
    with pytest.raises(InvalidInput, match="only a URL"):
        check_recipients([mail])


def test_names_and_values() -> None:
    for name in ("A", "_x", "shop-token_2"):
        assert check_secret_name(name) == name
    for name in ("", "1a", "-a", "a.b", "a b", "ä", "x" * 65):
        with pytest.raises(InvalidInput):
            check_secret_name(name)
    assert check_secret_value("line one\r\n\tline two")
    for value in ("abc", "x" * 8193, "nul\x00nul", "esc\x1besc", "lone\ud800"):
        with pytest.raises(InvalidInput):
            check_secret_value(value)


def test_placeholders_are_shown_where_secrets_are_hidden() -> None:
    shown = {"Authorization": "Bearer {{secret.X}}", "X-Api-Key": "{{ secret.Y }}"}
    assert mask_headers(shown) == shown
    assert mask_headers({"Authorization": "Bearer {{secret.X}}abc"}) == {"Authorization": "***"}
    assert mask_arguments({"token": "{{secret.X}}", "password": "p"}) == {
        "token": "{{secret.X}}",
        "password": "***",
    }
    assert mask_url("/a?token={{secret.X}}&key=abc") == "/a?token={{secret.X}}&key=***"
    body = '{"password": "{{secret.X}}", "token": "abc"}'
    assert mask_text(body) == '{"password": "{{secret.X}}", "token": "***"}'
    assert not is_placeholder("{{secret.X}} and more")
    assert not is_placeholder("{{run_id}}")


def test_a_value_that_is_no_text_is_no_envelope() -> None:
    assert not is_sealed(["chimes:sealed:1:"])


def test_repeated_values_are_masked_in_every_form() -> None:
    value = 'p+w/"ä secret\nsecond line'
    known = echoed_forms([value])
    basic = base64.b64encode(f"someone:{value}".encode()).decode()
    for text in (
        value,
        "p%2Bw%2F%22%C3%A4%20secret%0Asecond%20line",
        "p%2Bw%2F%22%C3%A4+secret%0Asecond+line",
        'p+w/\\"\\u00e4 secret\\nsecond line',
        base64.urlsafe_b64encode(value.encode()).decode(),
        "second line",
    ):
        masked = mask_known({"a": [f"<{text}>"], text: 1}, known)
        assert "secret" not in str(masked), text
        assert "second" not in str(masked), text
        assert text not in str(masked), text
    assert basic[14:40] not in str(mask_known(basic, known))
