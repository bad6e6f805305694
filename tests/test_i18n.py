"""Translatable messages: text with template and parameters."""

from __future__ import annotations

import json
import pickle

import pytest

from chimes import i18n
from chimes.errors import ChimesError, NotFound
from chimes.i18n import (
    Message,
    _,
    counted,
    from_stored,
    in_language,
    joined,
    map_text,
    to_stored,
    translate,
)

MESSAGES = {
    "There is no run {id!r}": "ไม่มีการทำงาน {id!r}",
    "{field}: {detail}": "{detail} ({field})",
    "{count} run": "การทำงาน {count} ครั้ง",
    "Not found": "ไม่พบ",
}


class Catalogue:
    """Stands in for a gettext catalogue."""

    def gettext(self, text: str) -> str:
        return MESSAGES.get(text, text)

    def ngettext(self, one: str, many: str, count: int) -> str:
        return MESSAGES.get(one, one if count == 1 else many)


@pytest.fixture(autouse=True)
def thai_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(i18n, "catalogue", lambda language: Catalogue())


def test_message_is_english_text_and_can_be_translated() -> None:
    message = _("There is no run {id!r}", id="r1")
    assert message == "There is no run 'r1'"
    assert message.in_language("en") == message
    assert message.in_language("th") == "ไม่มีการทำงาน 'r1'"
    assert json.dumps(message) == "\"There is no run 'r1'\""


def test_nested_message_is_translated() -> None:
    inner = _("There is no run {id!r}", id="r1")
    outer = _("{field}: {detail}", field="run", detail=inner)
    assert outer == "run: There is no run 'r1'"
    assert outer.in_language("th") == "ไม่มีการทำงาน 'r1' (run)"


def test_counted_message_chooses_singular_or_plural() -> None:
    assert counted("{count} run", "{count} runs", 1) == "1 run"
    several = counted("{count} run", "{count} runs", 3)
    assert (several, several.in_language("th")) == ("3 runs", "การทำงาน 3 ครั้ง")


def test_joined_messages_are_translated_one_by_one() -> None:
    both = joined("; ", [_("Not found"), "as it is", counted("{count} run", "{count} runs", 2)])
    assert both == "Not found; as it is; 2 runs"
    assert both.in_language("th") == "ไม่พบ; as it is; การทำงาน 2 ครั้ง"


def test_braces_are_literal_without_parameters() -> None:
    assert _("send {}") == "send {}"


def test_plain_text_is_not_translated() -> None:
    assert in_language("Not found", "th") == "Not found"


def test_translate_replaces_messages_inside_data() -> None:
    data = {"a": [_("Not found"), 1], "b": (_("Not found"),), "c": "Not found", "d": None}
    assert translate(data, "th") == {"a": ["ไม่พบ", 1], "b": ("ไม่พบ",), "c": "Not found", "d": None}


@pytest.mark.parametrize(
    "message",
    [
        _("There is no run {id!r}", id="r1"),
        counted("{count} run", "{count} runs", 2),
        joined("; ", [_("Not found"), "x"]),
    ],
)
def test_message_survives_pickling(message: i18n.Message) -> None:
    again = pickle.loads(pickle.dumps(message))
    assert (again, again.in_language("th")) == (message, message.in_language("th"))


def test_default_message_of_an_error_is_its_docstring() -> None:
    assert in_language(NotFound().message, "th") == "ไม่พบ"
    assert NotFound(_("There is no run {id!r}", id=1)).message == "There is no run 1"
    assert issubclass(NotFound, ChimesError)


def test_message_is_stored_and_restored_with_code_and_parameters() -> None:
    message = _("There is no run {id!r}", id="r1")
    stored = to_stored(message)
    assert json.loads(stored) == {
        "code": "There is no run {id!r}",
        "params": {"id": "r1"},
        "text": "There is no run 'r1'",
    }
    again = from_stored(stored)
    assert again == message
    assert isinstance(again, Message)
    for language in ("th", "zh"):
        assert again.in_language(language) == message.in_language(language) != message
    assert to_stored(again) == stored


def test_nested_joined_and_counted_messages_are_restored() -> None:
    inner = _("There is no run {id!r}", id="r1")
    for message in (
        _("{field}: {detail}", field="run", detail=inner),
        joined("; ", [inner, "a name"]),
        counted("{count} run", "{count} runs", 2),
        counted("{count} run", "{count} runs", 1),
    ):
        again = from_stored(to_stored(message))
        assert again == message
        assert in_language(again, "th") == in_language(message, "th")


def test_plain_text_is_stored_unchanged() -> None:
    for text in ("", "boom", "{", '{"code":', '{"code": 5}', '{"code":"x","text":"y"}', "{}"):
        again = from_stored(to_stored(text))
        assert (again, isinstance(again, Message)) == (text, False)
    assert to_stored("boom") == "boom"


def test_damaged_or_unknown_stored_message_is_shown_unchanged() -> None:
    for stored in (
        '{"code":',
        '{"code":"x"}',
        '{"code":1,"parts":[{}]}',
        '{"code":"","params":{}}',
    ):
        assert in_language(from_stored(stored), "th") == stored
    unknown = '{"code":"gone {x.__class__}","params":{"x":1},"text":"gone 1"}'
    assert in_language(from_stored(unknown), "th") == "gone 1"
    misfit = to_stored(_("There is no run {id!r}", id="r1")).replace('"id"', '"other"')
    assert in_language(from_stored(misfit), "th") == "There is no run 'r1'"


def test_secrets_are_redacted_inside_a_message() -> None:
    message = _("There is no run {id!r}", id="secret")
    changed = map_text(message, lambda text: text.replace("secret", "***"))
    assert isinstance(changed, Message)
    assert changed == "There is no run '***'"
    stored = map_text(from_stored(to_stored(message)), lambda text: text.replace("secret", "***"))
    assert stored == "There is no run '***'"
    assert "secret" not in to_stored(stored)
    assert map_text("my secret", str.upper) == "MY SECRET"
