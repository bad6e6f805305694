from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chimes
from chimes.failpoints import NAMES, Fault, hit, parse_failpoints

SOURCE = Path(chimes.__file__).parent


def test_failpoint_names_match_the_code() -> None:
    placed = set()
    for path in SOURCE.rglob("*.py"):
        if path.name != "failpoints.py":
            placed |= set(re.findall(r'\bhit\("([^"]+)"\)', path.read_text()))
    assert placed == NAMES


def test_nothing_is_armed_without_chimes_test() -> None:
    points = {"CHIMES_FAILPOINTS": "run.claimed:kill"}
    assert parse_failpoints(points) == {}
    assert parse_failpoints(points | {"CHIMES_TEST": "1"}) == {"run.claimed": (Fault("kill"),)}
    hit("run.claimed")


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown action 'explode'"):
        parse_failpoints({"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": "run.claimed:explode"})


def _run(points: str) -> subprocess.Popen[str]:
    code = (
        "import time\nfrom chimes.failpoints import hit\nbegan = time.monotonic()\n"
        "hit('run.claimed'); hit('run.claimed')\nprint(time.monotonic() - began)"
    )
    env = os.environ | {"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": points}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kill_sends_sigkill() -> None:
    with _run("run.claimed:kill") as process:
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL


def test_failpoint_with_a_number_skips_earlier_hits() -> None:
    both = "run.claimed@7:stop:2.5,run.claimed@9:kill"
    assert parse_failpoints({"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": both}) == {
        "run.claimed": (Fault("stop", 2.5, 7), Fault("kill", 0.0, 9))
    }
    with _run("run.claimed@2:kill") as process:
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    with _run("run.claimed@3:kill") as process:
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_hits_are_logged_before_the_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIMES_FAILPOINTS_LOG", str(tmp_path / "hits"))
    with _run("run.claimed:delay:1,run.claimed@2:kill") as process:
        process.communicate(timeout=60)
    assert (tmp_path / "hits").read_text() == "run.claimed:delay\nrun.claimed:kill\n"


def test_a_dropped_answer_is_a_connection_error() -> None:
    with _run("run.claimed:drop_answer") as process:
        _, errors = process.communicate(timeout=60)
        assert "AnswerDropped: run.claimed" in errors


def test_raise_injects_an_exception() -> None:
    with _run("run.claimed:raise") as process:
        _, errors = process.communicate(timeout=60)
        assert "Injected: run.claimed" in errors


@pytest.mark.parametrize("points", ["run.claimed:delay:300", "run.claimed:stop:0.3"])
def test_delay_and_stop_happen_once(points: str) -> None:
    with _run(points) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert float(out) >= 0.2
