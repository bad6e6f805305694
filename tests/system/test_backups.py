"""Backups that are made while nodes are at work, and nodes on a restored store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forking import run_chimes
from tests.servers import KINDS, shared
from tests.servers.redis_places import empty_redis_url
from tests.system.conftest import Start
from tests.system.receiver import Received, Receiver
from tests.system.test_faults_ownership import TIMES
from tests.system.test_faults_server import (
    assert_every_slot_ran_once,
    create_ticking_schedules,
    wait_for_more_calls,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["sqlite", "json", "postgres", "mariadb", "redis"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty stores of one kind."""
    kind = request.param
    if kind in ("sqlite", "json"):
        yield f"{kind}:///{tmp_path}/one.{kind}", f"{kind}:///{tmp_path}/two.{kind}"
    elif kind == "redis":
        yield empty_redis_url(), empty_redis_url()
    else:
        server = shared(KINDS[kind])
        found = server.new_database(), server.new_database()
        yield found
        for url in found:
            server.drop_database(url)


def chimes_store(*arguments: str, home: Path) -> None:
    done = run_chimes(["store", *arguments], cwd=home)
    assert done.returncode == 0, done.stderr


def test_backup_under_load_is_restored_and_later_slots_run_again(
    urls: tuple[str, str], start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    old, new = urls
    node = start(old, **TIMES)
    ticks = create_ticking_schedules(node, receiver, 4)
    wait_for_more_calls(receiver)
    ended = {
        run["id"]: run
        for each in ticks
        for run in node.runs(each)
        if run["status"] not in ("queued", "running")
    }
    assert ended
    chimes_store("backup", "all.jsonl.gz", "--store", old, home=tmp_path)
    assert not list(tmp_path.glob(".all*"))
    wait_for_more_calls(receiver)
    node.kill()
    before = len(receiver.calls())
    chimes_store("restore", "all.jsonl.gz", "--store", new, home=tmp_path)
    node = start(new, **TIMES)
    wait_for_more_calls(receiver, calls=6)
    assert {row["id"] for row in node.get("/api/v1/schedules")["items"]} == set(ticks)
    assert_every_slot_ran_once(node, ticks)
    runs = [run for each in ticks for run in node.runs(each)]
    found = {run["id"]: run for run in runs}
    assert len(found) == len(runs)
    assert {run_id: found[run_id] for run_id in ended} == ended
    # A slot that was called after the backup and again after the restore has one run id.
    calls = receiver.calls()
    first, again = ({slot_of(call): call.run_id for call in part} for part in halves(calls, before))
    repeated = first.keys() & again.keys()
    assert repeated
    assert {slot: first[slot] for slot in repeated} == {slot: again[slot] for slot in repeated}


def slot_of(call: Received) -> tuple[str, str]:
    return call.headers["x-chimes-schedule-id"], call.headers["x-chimes-slot"]


def halves(calls: list[Received], place: int) -> tuple[list[Received], list[Received]]:
    return calls[:place], calls[place:]


def test_restore_waits_for_no_node(
    urls: tuple[str, str], start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    url, _other = urls
    node = start(url, **TIMES)
    (tick,) = create_ticking_schedules(node, receiver, 1)
    wait_for_more_calls(receiver, calls=1)
    chimes_store("backup", "all.jsonl", "--store", url, home=tmp_path)
    command = ["store", "restore", "all.jsonl", "--force", "--store", url]
    refused = run_chimes(command, cwd=tmp_path)
    assert refused.returncode == 5, refused.stderr
    assert "at work" in refused.stderr or "in use" in refused.stderr
    wait_for_more_calls(receiver, calls=1)
    assert node.stop() == 0
    done = run_chimes(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    node = start(url, **TIMES)
    wait_for_more_calls(receiver)
    assert_every_slot_ran_once(node, [tick])
