"""Commands in Thai and Chinese with the shipped catalogues. Expected text comes from the catalogues
and must not be English."""

from __future__ import annotations

import json
import re
import sys
from inspect import cleandoc
from pathlib import Path

import pytest

from chimes.cli.schedules import ls
from chimes.i18n import Message, _
from tests.cli.conftest import Cli, Server
from tests.cli.test_schedules import on_terminal, run_and_answer

LETTERS = {"th": re.compile("[\u0e01-\u0e5b]"), "zh": re.compile("[\u4e00-\u9fff]")}
both = pytest.mark.parametrize("language", LETTERS)


def translated(text: Message, language: str) -> str:
    """The message in the language."""
    found = text.in_language(language)
    assert LETTERS[language].search(found), f"{language} has no words for {text.template!r}"
    return found


def without_whitespace(text: str) -> str:
    """Text without the whitespace of wrapping."""
    return "".join(text.replace("\b", "").split())


@both
def test_help_is_translated(cli: Cli, language: str) -> None:
    shown = cli("ls", "--help", "--lang", language).out
    assert ls.help is not None
    for text in (
        Message(cleandoc(ls.help), {}),
        _("Show this message and exit."),
        _("Options"),
    ):
        assert without_whitespace(translated(text, language)) in without_whitespace(shown)
    assert "chimes ls --json=id,name,next_run_at" in shown
    listed = without_whitespace(cli("--lang", language).out)
    assert without_whitespace(translated(_("List schedules."), language)) in listed


@both
def test_errors_and_hints_are_translated(cli: Cli, language: str) -> None:
    missing = cli("lss", CHIMES_LANG=language).err.splitlines()[-1]
    sentence = _("Unknown command {name!r}. Did you mean {nearest}?", name="lss", nearest="ls")
    assert translated(sentence, language) in missing
    locale = {"th": "th_TH.UTF-8", "zh": "zh_CN.UTF-8"}[language]
    alone = cli("ls", LC_ALL=locale).err.splitlines()
    hint = _("start one with `chimes serve`, or set CHIMES_URL")
    assert alone[-1] == translated(_("Hint: {hint}", hint=hint), language)
    assert alone[0] != cli("ls").err.splitlines()[0]
    # Messages of click.
    assert LETTERS[language].search(cli("show", "--lang", language).err.splitlines()[-1])
    # Messages of lower layers.
    assert LETTERS[language].search(cli("next", "61 * * * *", "--lang", language).err)


@both
def test_server_errors_are_translated(cli: Cli, server: Server, language: str) -> None:
    url = {"CHIMES_URL": server.url, "CHIMES_LANG": language}
    made = cli("add", "@daily", "--http", "http://h.example/", "--yes", "-q", **url)
    assert made.code == 0, made.err
    assert cli("pause", made.out.strip(), **url).code == 0
    refused = cli("move", made.out.strip(), "--to", "in 2h", "--json", **url)
    assert refused.code == 5
    problem = json.loads(refused.err)
    assert LETTERS[language].search(problem["detail"])
    assert problem["code"].isascii()


@both
def test_tables_and_prompts_are_translated(server: Server, language: str) -> None:
    env = {"CHIMES_URL": server.url, "CHIMES_LANG": language, "NO_COLOR": "1"}
    head = on_terminal(["nodes"], 200, env).splitlines()[0]
    titles = [_("id"), _("state"), _("version")]
    assert all(translated(title, language).upper() in head for title in titles[1:])
    code, seen = run_and_answer(["add", "@daily", "--http", "http://h.example/"], "n", env)
    assert code == 1
    assert translated(_("Create it?"), language) in seen
    assert translated(_("Nothing was created."), language) in seen


@both
def test_doctor_is_translated(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, language: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    found = cli("doctor", "--lang", language, CHIMES_STORE="memory://")
    name, detail = _("store"), _("memory: all data is lost when the process ends")
    assert f"! {translated(name, language)}: {translated(detail, language)}" in found.out
    assert translated(_("use sqlite"), language) in found.out
