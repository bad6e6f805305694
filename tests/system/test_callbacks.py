"""HTTP callbacks of real nodes on the embedded stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.receiver import Receiver


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def http(url: str, **given: Any) -> dict[str, Any]:
    return {"kind": "http", "url": url, "method": "POST"} | given


ONCE_IN_A_YEAR = {"kind": "cron", "expression": "0 0 1 1 *"}


def test_once_fires_once_with_all_headers(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store)
    body = '{"job_id": "<filled-by-service>", "at": "{{scheduled_at}}", "n": 1}'
    made = node.create(
        name="once",
        trigger={"kind": "once", "at": soon(4)},
        target=http(receiver.url("/once"), body=body, headers={"X-Mine": "yes"}),
    )
    (call,) = receiver.wait_for("/once", 1)
    (run,) = node.ended(made["id"])
    assert call.headers["x-ksana-run-id"] == run["id"]
    assert call.headers["idempotency-key"] == call.headers["webhook-id"] == run["id"]
    assert (call.headers["x-chimes-attempt"], call.headers["x-chimes-fence"]) == ("1", "1")
    assert instant(call.headers["x-chimes-slot"]) == instant(run["slot"])
    assert call.headers["x-mine"] == "yes"
    assert call.headers["content-type"].startswith("application/json")
    filled = json.loads(call.body)
    assert (filled["job_id"], filled["n"]) == (made["id"], 1)
    assert instant(filled["at"]) == instant(run["planned_at"])
    assert (run["status"], run["origin"], run["attempt"]) == ("succeeded", "schedule", 1)
    assert run["result"]["status"] == 200
    assert node.get(f"/api/v1/schedules/{made['id']}")["next_run_at"] is None
    assert len(receiver.calls("/once")) == 1


def test_interval_does_not_drift(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store)
    made = node.create(
        name="tick",
        trigger={"kind": "every", "every": "300ms"},
        target=http(receiver.url("/tick"), method="GET"),
        # On a busy machine a call may take longer than the interval.
        policy={"overlap": "allow"},
    )
    first = instant(made["next_run_at"])
    calls = receiver.wait_for("/tick", 8)
    calls = sorted(calls, key=lambda each: instant(each.headers["x-chimes-slot"]))[:5]
    slots = [instant(call.headers["x-chimes-slot"]) for call in calls]
    step = timedelta(milliseconds=300)
    assert slots == [first + step * number for number in range(5)]
    assert all(call.at >= slot.timestamp() for call, slot in zip(calls, slots, strict=True))


@pytest.mark.parametrize(("status", "calls"), [(503, 3), (429, 3), (408, 3), (404, 1), (400, 1)])
def test_retryable_statuses_are_retried(
    sqlite: str, start: Start, receiver: Receiver, status: int, calls: int
) -> None:
    # Attempts are 1 + max_retries, all with one run id.
    node = start(sqlite)
    made = node.create(
        name="fails",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.answer("/fails", status)),
        policy={"max_retries": 2, "retry_backoff": "50ms"},
    )
    run = node.call("POST", f"/api/v1/schedules/{made['id']}/run").json
    (ended,) = node.ended(made["id"])
    seen = receiver.calls("/fails")
    assert (ended["id"], ended["status"], ended["attempt"]) == (run["id"], "failed", calls)
    assert {call.run_id for call in seen} == {run["id"]}
    assert [call.attempt for call in seen] == list(range(1, calls + 1))
    assert str(status) in ended["error"]
    assert len(ended["attempts"]) == calls


def test_run_succeeds_after_retries(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store, RETRY_BACKOFF="100ms")
    job = node.call(
        "POST",
        "/jobs",
        {
            "name": "flaky",
            "http": {"method": "POST", "url": receiver.answer("/flaky", 500, 503, 200)},
            "schedule": {"kind": "once", "run_at": soon(4)},
        },
    ).json
    wait_until(
        lambda: node.get(f"/jobs/{job['id']}")["last_status"] == "success", "the third attempt"
    )
    assert [call.attempt for call in receiver.calls("/flaky")] == [1, 2, 3]
    assert len({call.run_id for call in receiver.calls("/flaky")}) == 1


def test_slow_receiver_times_out_and_is_retried(
    store: str, start: Start, receiver: Receiver
) -> None:
    node = start(store)
    made = node.create(
        name="slow",
        trigger={"kind": "once", "at": soon(4)},
        target=http(receiver.slow("/slow", 2)),
        policy={"timeout": "200ms", "max_retries": 1, "retry_backoff": "50ms"},
    )
    (run,) = node.ended(made["id"])
    assert (run["status"], run["attempt"]) == ("timeout", 2)
    assert node.get(f"/jobs/{made['id']}")["last_status"] == "timeout"


def test_manual_run_does_not_change_next_run_at(
    store: str, start: Start, receiver: Receiver
) -> None:
    node = start(store)
    made = node.create(name="manual", trigger=ONCE_IN_A_YEAR, target=http(receiver.url("/manual")))
    answer = node.call("POST", f"/api/v1/schedules/{made['id']}/run")
    assert answer.status == 202
    (run,) = node.ended(made["id"])
    assert (run["id"], run["slot"], run["origin"]) == (answer.json["id"], None, "manual")
    assert node.get(f"/api/v1/schedules/{made['id']}")["next_run_at"] == made["next_run_at"]


def test_overlapping_slots_are_recorded_as_skipped(
    store: str, start: Start, receiver: Receiver
) -> None:
    node = start(store)
    made = node.create(
        name="long",
        trigger={"kind": "every", "every": "200ms", "max_runs": 2},
        target=http(receiver.slow("/long", 0.5)),
    )
    wait_until(
        lambda: [r for r in node.runs(made["id"]) if r["reason"] == "overlap"], "a skipped slot"
    )
    assert receiver.wait_for("/long", 2)
    rows = node.runs(made["id"])
    assert {r["status"] for r in rows if r["reason"] == "overlap"} == {"skipped"}
    assert len({r["slot"] for r in rows}) == len(rows)


def test_cancel_stops_a_running_call(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store)
    made = node.create(
        name="hangs",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.slow("/hangs", 20)),
        policy={"timeout": "1m"},
    )
    run = node.call("POST", f"/api/v1/schedules/{made['id']}/run").json
    receiver.wait_for("/hangs", 1)
    assert node.call("POST", f"/api/v1/runs/{run['id']}/cancel").status in (200, 202)
    (ended,) = node.ended(made["id"])
    assert (ended["status"], ended["reason"]) == ("canceled", "canceled_by_hand")
