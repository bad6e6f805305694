"""A full disk: small writes are refused with 503, nothing is lost, and the node continues by itself
when there is space again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import http
from tests.system.test_faults_ownership import STEADY
from tests.system.test_faults_server import (
    assert_every_slot_ran_once,
    create_ticking_schedules,
    wait_for_more_calls,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a file system: {made.stderr.strip()}")
    yield place
    # Lazily: the node of a failed test may still have files open.
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Takes the whole free space."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (65536, 512, 1):
            try:
                while stream.write(b"x" * size):
                    pass
            except OSError:
                continue
    assert os.statvfs(place).f_bavail == 0
    return filler


@pytest.mark.parametrize("kind", ["sqlite", "json"])
def test_node_continues_when_there_is_space_again(
    kind: str, small_disk: Path, start: Start, receiver: Receiver
) -> None:
    node = start(f"{kind}:///{small_disk}/chimes.{kind}", **STEADY)
    ticks = create_ticking_schedules(node, receiver, 2)
    wait_for_more_calls(receiver, calls=2)
    filler = fill(small_disk)
    made: list[str] = []
    draft = {
        "trigger": {"kind": "cron", "expression": "0 0 1 1 *"},
        "target": http(receiver.url("/far")),
    }

    def refused() -> bool:
        # SQLite can use pages that it has, so the first writes may still succeed.
        answer = node.call("POST", "/api/v1/schedules", draft | {"name": f"far {len(made)}"})
        if answer.status == 201:
            made.append(answer.json["id"])
            return False
        assert answer.status == 503, answer
        assert answer.json["code"] == "store_unavailable"
        return True

    wait_until(refused, "a write to be refused")
    reasons = ("database or disk is full", "No space left on device")
    wait_until(lambda: any(each in node.output for each in reasons), "the reason in the log")
    assert node.get("/api/v1/schedules?limit=1")["items"], "reading works"
    filler.unlink()
    wait_for_more_calls(receiver)
    assert node.call("POST", "/api/v1/schedules", draft | {"name": "after"}).status == 201
    listed = {row["id"] for row in node.get("/api/v1/schedules?limit=200")["items"]}
    assert {*ticks, *made} <= listed
    assert len(listed) == len(ticks) + len(made) + 1
    assert_every_slot_ran_once(node, ticks)
    assert node.stop() == 0
