"""Logs: shape, one line per record, redaction, closed pipes."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chimes.log import MAX_TEXT_LENGTH, VERBOSE_LIBRARIES, LineHandler, configure_logging
from chimes.redaction import HIDDEN, Redactor, escape_control
from tests.tables import each_row


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    levels = {name: logging.getLogger(name).level for name in VERBOSE_LIBRARIES}
    yield
    for handler in [each for each in root.handlers if isinstance(each, LineHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)


def logged(
    event: str,
    /,
    *args: object,
    format: str = "json",
    secrets: tuple[str, ...] = (),
    **extra: object,
) -> str:
    stream = io.StringIO()
    configure_logging("info", format, secrets=secrets, stream=stream)
    logging.getLogger("chimes.test").info(event, *args, extra=extra)
    return stream.getvalue()


def test_json_line_has_time_level_logger_event_and_fields() -> None:
    line = json.loads(
        logged("run %s", "ended", job_id="j1", job_name="n", latency_ms=12.5, ok=True)
    )
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "chimes.test",
        "event": "run ended",
        "job_id": "j1",
        "name": "n",
        "latency_ms": 12.5,
        "ok": True,
    }


def test_the_time_is_utc_with_microseconds() -> None:
    record = logging.makeLogRecord({"created": 1_700_000_000.25, "msg": "x", "name": "n"})
    handler = configure_logging("info", "json", stream=io.StringIO())
    assert json.loads(handler.format(record))["time"] == "2023-11-14T22:13:20.250000Z"


def test_extra_fields_do_not_replace_standard_fields() -> None:
    line = json.loads(logged("x", level="fake", time="never", event="other"))
    assert (line["level"], line["level_"], line["time_"], line["event_"]) == (
        "info",
        "fake",
        "never",
        "other",
    )


def test_exception_is_one_redacted_field() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    try:
        raise ValueError("bad token chm_abcdefghijkl_secretsecret")
    except ValueError:
        logging.getLogger("chimes").exception("failed")
    line = json.loads(stream.getvalue())
    assert "ValueError: bad token chm_***" in line["exception"]
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("format", ["json", "text"])
def test_every_record_is_one_line_without_control_characters(format: str) -> None:
    text = logged("a\nb\r\x1b[31m\x07%s", "\x1b]52;c;x\x07", format=format, name2="x\ny\u2028z")
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\r" not in text


def test_control_characters_are_shown_escaped() -> None:
    assert escape_control("a\x1b[2Jb\nc\u202ed é ไทย") == "a\\x1b[2Jb\\nc\\u202ed é ไทย"


def test_text_format() -> None:
    line = logged("run ended", format="text", run_id="r1", count=3)
    assert line.endswith("Z INFO    run ended  run_id=r1  count=3  (chimes.test)\n")


def test_auto_format_is_json_without_a_terminal() -> None:
    assert json.loads(logged("x", format="auto"))["event"] == "x"


def test_wrong_arguments_and_odd_values_are_logged() -> None:
    handler = configure_logging("info", "json", stream=io.StringIO())
    record = logging.makeLogRecord({"msg": "%s %s", "args": ("one",), "thing": {1}})
    line = json.loads(handler.format(record))
    assert line["event"] == "%s %s ('one',)"
    assert line["thing"] == [1]


def test_value_whose_str_raises_counts_as_dropped() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    handler = configure_logging("info", "json", stream=io.StringIO())
    logging.getLogger("chimes").info("x", extra={"bad": Bad()})
    assert handler.dropped == 1


def test_long_texts_are_truncated() -> None:
    assert len(json.loads(logged("x" * 100_000))["event"]) == MAX_TEXT_LENGTH + 1


def test_level_applies_and_verbose_libraries_stay_quiet() -> None:
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    logging.getLogger("chimes").debug("heard")
    logging.getLogger("aiohttp.access").info("not heard")
    logging.getLogger("uvicorn.access").info("not heard")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["heard"]


def test_configuring_twice_does_not_log_twice() -> None:
    logged("first")
    assert logged("second").count("second") == 1


SECRET = "hush-hush-0123456789"
TEXTS = [
    f"Authorization: Bearer {SECRET}",
    f"authorization={SECRET}",
    f"{{'Authorization': 'Bearer {SECRET}', 'Host': 'x'}}",
    f'{{"Authorization": "ApiKey {SECRET}"}}',
    f'"{{\\"authorization\\": \\"{SECRET}\\"}}"',
    f"(b'authorization', b'{SECRET}')",
    f"Cookie: session={SECRET}; other={SECRET}",
    f"Set-Cookie: a={SECRET}",
    f"X-API-Key: {SECRET}",
    f"x-admin-token: {SECRET}",
    f"X-Plain: 1, X-GitHub-Token: {SECRET}",
    f"sent Bearer {SECRET} to it",
    f"key chm_abcdefghijkl_{SECRET}",
    f"whsec_{SECRET}",
    f"https://api.telegram.org/bot12345:{SECRET}/sendMessage",
    f"postgresql://user:{SECRET}@db/x",
    f"postgresql+asyncpg://user:p@{SECRET}@db/x",
    f"redis://:{SECRET}@localhost",
    f"GET /api/schedules?token={SECRET}&x=1",
    f"GET /api/schedules?x=1&api_key={SECRET}",
    f"GET /api/schedules?next=/x?access_token={SECRET}",
]


@each_row("text", TEXTS)
@each_row("format", ["json", "text"])
def test_secrets_of_known_shapes_are_hidden(text: str, format: str) -> None:
    found = logged(text, format=format, field=text, nested={"a": [text]})
    assert SECRET not in found
    assert found.count(HIDDEN) >= 3


def test_configured_secrets_and_secret_fields_are_hidden() -> None:
    found = logged(
        "it is swordfish", secrets=("swordfish", ""), password="tuna", inner={"Token": 5}
    )
    assert json.loads(found)["event"] == "it is ***"
    assert json.loads(found)["password"] == HIDDEN
    assert json.loads(found)["inner"] == {"Token": HIDDEN}


def test_harmless_text_is_not_redacted() -> None:
    for text in (
        "https://example.com/a?b=c",
        "12:30 user@example.com",
        "schedule bot5: ok",
        "key=1",
    ):
        assert Redactor().text(text) == text


SCRIPT = """
import logging, sys
from chimes.log import configure_logging
handler = configure_logging("info", "json")
sys.stdin.readline()
for number in range(5):
    logging.getLogger("chimes").info("line %s", number)
open(sys.argv[1], "w").write(str(handler.dropped))
"""


def test_lines_to_a_closed_pipe_count_as_dropped_and_do_not_raise(tmp_path: object) -> None:
    counted = f"{tmp_path}/dropped"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, counted], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stderr.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(30) == 0
    with open(counted) as file:
        assert file.read() == "5"


def test_lines_to_a_full_disk_count_as_dropped() -> None:
    with open("/dev/full", "w") as stream:
        handler = configure_logging("info", "json", stream=stream)
        logging.getLogger("chimes").info("x")
        assert handler.dropped == 1
