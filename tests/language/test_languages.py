"""Selection of a language by tag, Accept-Language header and locale variables."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput
from chimes.language.languages import accepted, known, named, of_environment
from tests.tables import each_row


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("th", "th"),
        ("TH-th", "th"),
        ("zh-CN", "zh"),
        ("zh-Hans", "zh"),
        ("zh_TW.UTF-8", "zh"),
        ("en_GB@euro", "en"),
        (" th ", "th"),
        ("thx", None),
        ("tlh", None),
        ("", None),
    ],
)
def test_language_of_a_tag(tag: str, language: str | None) -> None:
    assert known(tag) == language


def test_unsupported_language_is_rejected() -> None:
    assert named("zh-Hans") == "zh"
    with pytest.raises(InvalidInput, match="'tlh'; there are en, th, zh"):
        named("tlh")


@each_row(
    ("header", "language"),
    [
        ("", "en"),
        ("th", "th"),
        ("th-TH,th;q=0.9,en;q=0.8", "th"),
        ("en;q=0.8, zh-CN ; q=0.9", "zh"),
        ("fr, de;q=0.9, zh-Hans;q=0.1", "zh"),
        ("fr", "en"),
        ("th;q=0", "en"),
        ("th;q=0.5,zh;q=0.5", "th"),
        ("*", "en"),
        ("*;q=0.5, zh;q=0.4", "en"),
        ("*;q=0.5, zh;q=0.6", "zh"),
        ("th;q=2, zh;q=x, en;q=-1, ;;;, zh;q=0.001", "zh"),
        ("th;q=1.0001", "en"),
        (",".join(["fr"] * 32 + ["th"]), "en"),
        ("x" * 100_000, "en"),
    ],
)
def test_language_of_an_accept_language_header(header: str, language: str) -> None:
    assert accepted(header) == language


def test_fallback_language_is_the_callers() -> None:
    assert accepted("fr", otherwise="th") == "th"
    assert accepted("*", otherwise="th") == "th"
    assert accepted("en", otherwise="th") == "en"


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "th_TH.UTF-8"}, "th"),
        ({"LANG": "th_TH.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "th_TH.UTF-8", "LC_ALL": ""}, "th"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "th_TH.UTF-8", "CHIMES_LANG": "zh"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"CHIMES_LANG": " "}, "en"),
    ],
)
def test_language_of_the_environment(environ: dict[str, str], language: str) -> None:
    assert of_environment(environ) == language


def test_unsupported_language_in_chimes_lang_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="'klingon'"):
        of_environment({"CHIMES_LANG": "klingon", "LANG": "th_TH"})
