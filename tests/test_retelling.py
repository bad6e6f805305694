"""Texts of the store, told again in the reader's language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chimes import retelling
from chimes.i18n import _
from chimes.retelling import retold, retold_line

MESSAGES = {
    "connection refused": "การเชื่อมต่อถูกปฏิเสธ",
    "no answer within {limit:g} s": "ไม่มีคำตอบภายใน {limit:g} วินาที",
    "{host!r} did not answer: {why}": "{host!r} ไม่ตอบ: {why}",
    "{host!r} did not answer: {why} (after {count} attempts)": "ลอง {count} ครั้ง {host!r}: {why}",
    "step {step} of {flow} failed": "ขั้น {step} ใน {flow} ล้มเหลว",
    "{field}: {detail}": "WRONG {field} {detail}",
    "canceled": "ยกเลิก",
    "a {count} line was left out": "ตัดออก {count} บรรทัด",
}


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        retelling._retold.cache_clear()
        retelling._templates.cache_clear()

    forget()
    monkeypatch.setattr(retelling, "_messages", lambda language: MESSAGES)
    yield
    forget()


@pytest.mark.parametrize(
    ("text", "thai"),
    [
        ("connection refused", "การเชื่อมต่อถูกปฏิเสธ"),
        ("no answer within 2.5 s", "ไม่มีคำตอบภายใน 2.5 วินาที"),
        # Values stand as they were formatted, quotes and all; a sentence among them is told too.
        ("'a.b' did not answer: connection refused", "'a.b' ไม่ตอบ: การเชื่อมต่อถูกปฏิเสธ"),
        # The template that says most wins.
        ("'a.b' did not answer: who knows (after 3 attempts)", "ลอง 3 ครั้ง 'a.b': who knows"),
        ("step x of of y of z failed", "ขั้น x ใน of y of z ล้มเหลว"),
        # A name is nobody's sentence, even if the catalogue has the word.
        ("step canceled of my-flow failed", "ขั้น canceled ใน my-flow ล้มเหลว"),
        # Sentences in a row.
        ("connection refused; no answer within 1 s", "การเชื่อมต่อถูกปฏิเสธ; ไม่มีคำตอบภายใน 1 วินาที"),
        ("Traceback:\nconnection refused", "Traceback:\nการเชื่อมต่อถูกปฏิเสธ"),
    ],
)
def test_a_sentence_of_ours_is_told_again(text: str, thai: str) -> None:
    assert retold(text, "th") == thai
    assert retold(text, "en") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: my own words",  # fits {field}: {detail}, which has no words of its own
        "canceled",  # a code that programs read
        "no answer within",
        "NO ANSWER within 5 s",
        "step {x} of",
        "x" * 5000 + " y",
        "a{b} c%s {",
        "step canceled of canceled",
    ],
)
def test_what_people_wrote_stays(text: str) -> None:
    assert retold(text, "th") == text


def test_a_sentence_that_still_knows_its_template_needs_no_guessing() -> None:
    assert retold(_("my {own}", own="words"), "en") == "my words"


@pytest.mark.parametrize("kind", ["ordinary", "hostile"])
def test_what_a_task_printed_costs_its_reader_little(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the real catalogue, every line another one: the reader shares the process with the
    scheduler. Counted, because a clock would measure the machine."""
    monkeypatch.undo()
    retelling._templates.cache_clear()
    retelling._retold.cache_clear()
    looks = 0
    plain = retelling._Template.values_in

    def counted(self: retelling._Template, text: str) -> object:
        nonlocal looks
        looks += 1
        return plain(self, text)

    monkeypatch.setattr(retelling._Template, "values_in", counted)
    index = retelling._templates("zh")
    keys = list(index)
    # As many sentences as are taken apart, each with as many telling words as there is room for.
    parts = [" ".join(keys[number::19])[:95] for number in range(19)]
    lines, most = {
        "ordinary": ([f"row {n} of table orders copied in {n * 3} ms" for n in range(500)], 10),
        "hostile": (
            ["; ".join(f"{n} {each}" for each in parts) for n in range(50)],
            3 * sum(map(len, index.values())),
        ),
    }[kind]
    for line in lines:
        assert retold_line(line, "zh") == line
        assert retold(line, "zh") == line
    # Not each part against each template.
    assert 0 < looks / len(lines) <= most
    retelling._templates.cache_clear()
    retelling._retold.cache_clear()


def test_a_text_without_an_end_is_left_alone() -> None:
    hostile = "step " + " of " * 900 + "failing"
    assert retold(hostile, "th") == hostile


@pytest.mark.parametrize(
    "text",
    [
        "backup of the disk is needed",
        "disk space is missing",
        "answered the phone",
        "The build: succeeded",
        "6 or 7",
        "All runs with this error",
    ],
)
def test_what_programs_print_is_not_taken_for_ours(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the real catalogue, which has "{field} is needed" and the like."""
    monkeypatch.undo()
    for language in ("th", "zh"):
        assert retold(text, language) == text
        assert retold_line(text, language) == text


def test_a_line_has_to_fit_very_well() -> None:
    assert retold("connection refused", "th") != "connection refused"
    assert retold_line("connection refused", "th") == "connection refused"
    assert retold_line("no answer within 2.5 s", "th") != "no answer within 2.5 s"


@pytest.mark.parametrize("language", ["th", "zh"])
def test_a_text_is_held_against_few_templates(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may have 50,000 lines, and its reader shares the process with the scheduler."""
    monkeypatch.undo()
    retelling._templates.cache_clear()
    index = retelling._templates(language)
    assert sum(map(len, index.values())) > 200
    assert max(map(len, index.values())) <= 40
    retelling._templates.cache_clear()
