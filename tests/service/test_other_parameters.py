"""A run with another payload than its schedule's, and with nothing else (UX A.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chimes.errors import InvalidInput
from chimes.model.listing import AuditQuery
from chimes.model.target import HttpTarget
from chimes.service.schedules import ScheduleService
from chimes.store.memory import MemoryStore
from tests.builders import ALICE, a_schedule
from tests.service.conftest import MEMBER

HOOK = HttpTarget(url="http://127.0.0.1:9/hook", body="a")


async def test_only_the_payload_is_another(schedules: ScheduleService, store: MemoryStore) -> None:
    made = await store.add_schedule(a_schedule(owner=ALICE, target=HOOK))
    elsewhere = replace(HOOK, url="http://127.0.0.1:9/elsewhere")
    with pytest.raises(InvalidInput, match="not another target"):
        await schedules.run_asked_for(MEMBER, made.id, target=elsewhere)
    same, _ = await schedules.run_asked_for(MEMBER, made.id, target=HOOK)
    other, _ = await schedules.run_asked_for(MEMBER, made.id, target=replace(HOOK, body="b"))
    assert (same.target, other.target) == (HOOK, replace(HOOK, body="b"))
    assert await store.get_schedule(made.id) == made
    notes = await store.list_audit(AuditQuery(verb="run"))
    assert [note.changes for note in notes] == [
        {"run_id": other.id, "body": "b"},
        {"run_id": same.id},
    ]


async def test_the_audit_does_not_keep_what_is_long(
    schedules: ScheduleService, store: MemoryStore
) -> None:
    made = await store.add_schedule(a_schedule(owner=ALICE, target=HOOK))
    await schedules.run_asked_for(MEMBER, made.id, target=replace(HOOK, body="x" * 3000))
    (note,) = await store.list_audit(AuditQuery(verb="run"))
    assert note.changes["body"] == "…"
