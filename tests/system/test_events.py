"""Events on real nodes: `kill -9` between the event and its run, payloads of every target."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from tests.system.conftest import Start
from tests.system.node import Answer, Node, wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import http
from tests.system.test_crashes import SHORT_LEASE, STEADY


def post(node: Node, url: str, body: object, delivery: str) -> Answer:
    path = "/hooks/" + url.rpartition("/hooks/")[2]
    return node.call("POST", path, body, {"webhook-id": delivery})


def test_an_event_survives_kill_9_before_its_run_is_stored(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    """Killed after the event is stored, and killed after its run is: one run each, on another
    node. The sender that repeats an unanswered event starts no second one."""
    for point in ("events.accepted", "events.inserted"):
        faulty = {"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": f"{point}:kill"}
        first = start(sqlite, **SHORT_LEASE, **faulty)
        made = first.create(
            name=point,
            trigger={"kind": "webhook", "throttle": "1h"},
            target=http(receiver.url(f"/{point}")),
        )
        with suppress(HTTPException, OSError):
            post(first, made["hook_url"], {"n": 1}, "d-1")
        first.wait()
        second = start(sqlite, **STEADY)
        (ended,) = second.ended(made["id"])
        assert (ended["status"], ended["cause"]["delivery_id"]) == ("succeeded", "d-1")
        assert post(second, made["hook_url"], {"n": 1}, "d-1").json == {"run_id": None}
        (call,) = receiver.wait_for(f"/{point}", 1)
        assert call.run_id == ended["id"]
        assert call.body == '{"n": 1}'
        assert len(second.get(f"/api/v1/schedules/{made['id']}/runs")["items"]) == 1
        second.stop()


def test_the_end_of_a_run_counts_after_its_node_is_killed(
    sqlite: str, start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    first = start(sqlite, **SHORT_LEASE, CHIMES_ALLOW_COMMANDS="true")
    source = first.create(
        name="source",
        trigger={"kind": "webhook"},
        target=http(receiver.slow("/source", 600, first=1)),
        policy={"timeout": "10m"},
    )
    written = tmp_path / "written"
    chained = first.create(
        name="chained",
        trigger={"kind": "run_end", "schedule": source["id"], "status": ["succeeded"]},
        target={"kind": "command", "shell": f'cat > {written}; echo "$CHIMES_EVENT"'},
    )
    post(first, source["hook_url"], {}, "d-1")
    receiver.wait_for("/source", 1)
    first.kill()
    second = start(sqlite, **STEADY, CHIMES_ALLOW_COMMANDS="true")
    (ended,) = second.ended(chained["id"])
    (cause,) = second.ended(source["id"])
    assert ended["cause"]["source"] == cause["id"]
    assert cause["id"] in written.read_text()
    assert ended["result"]["output"].strip() == "run_end"
    second.kill()
    third = start(sqlite, **STEADY, CHIMES_ALLOW_COMMANDS="true")
    wait_until(lambda: third.get("/api/v1/nodes"), "the node has joined")
    assert len(third.get(f"/api/v1/schedules/{chained['id']}/runs")["items"]) == 1
