"""Manual runs with another payload than their schedule's."""

from __future__ import annotations

import json

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.listing import AuditQuery
from chimes.model.target import HttpTarget
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from tests.builders import ALICE, a_schedule
from tests.services.conftest import MEMBER

HOOK = HttpTarget(url="http://127.0.0.1:9/hook", body="a")


async def test_manual_run_may_change_only_the_payload(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    made = await store.add_schedule(a_schedule(owner=ALICE, target=HOOK))
    elsewhere = replace(HOOK, url="http://127.0.0.1:9/elsewhere")
    with pytest.raises(InvalidInput, match="but not the target"):
        await manual_runs.run_now_or_get(MEMBER, made.id, target=elsewhere)
    same, _ = await manual_runs.run_now_or_get(MEMBER, made.id, target=HOOK)
    other, _ = await manual_runs.run_now_or_get(MEMBER, made.id, target=replace(HOOK, body="b"))
    assert (same.target, other.target) == (HOOK, replace(HOOK, body="b"))
    assert await store.get_schedule(made.id) == made
    notes = await store.list_audit(AuditQuery(verb="run"))
    assert [note.changes for note in notes] == [
        {"run_id": other.id, "body": {"characters": 1}},
        {"run_id": same.id},
    ]


async def test_long_payloads_are_cut_in_the_audit(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    made = await store.add_schedule(a_schedule(owner=ALICE, target=HOOK))
    long = json.dumps({"text": "x" * 3000})
    await manual_runs.run_now_or_get(MEMBER, made.id, target=replace(HOOK, body=long))
    (note,) = await store.list_audit(AuditQuery(verb="run"))
    assert note.changes["body"] == "…"


SECRET = "s3cr3t-of-one-run"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            json.dumps({"day": 3, "to": [{"api_key": SECRET}], "password": SECRET}),
            {"day": 3, "to": [{"api_key": "***"}], "password": "***"},
        ),
        (f"password={SECRET}", {"characters": 26}),
        (json.dumps([{"token": SECRET}]), {"characters": len(f'[{{"token": "{SECRET}"}}]')}),
        ("[" * 100_000, {"characters": 100_000}),
        ("", None),
    ],
)
async def test_secrets_of_a_body_are_masked_in_the_audit(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    store: MemoryStore,
    body: str,
    shown: object,
) -> None:
    made = await store.add_schedule(a_schedule(owner=ALICE, target=HOOK))
    target = replace(HOOK, body=body)
    run, _ = await manual_runs.run_now_or_get(MEMBER, made.id, target=target)
    await manual_runs.start(MEMBER, RunRequest(name="once", target=target, policy=made.policy))
    await schedules.change(MEMBER, made.id, lambda was: replace(was, target=target))
    changed, started, ran = await store.list_audit(AuditQuery())
    assert ran.changes == {"run_id": run.id, "body": shown}
    for note in (changed, started):
        assert SECRET not in json.dumps(note.changes, default=str)
