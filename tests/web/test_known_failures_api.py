"""Known failures, replies to agents and saved filters in the native API."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from chimes.model.recipient import Channel
from chimes.model.run import Run, RunStatus
from chimes.model.target import AgentTarget
from tests.builders import ALICE, BOB, NOW, a_run, a_schedule
from tests.web.rig import Rig, serving

FILTERS = "/api/v1/me/filters"
WEEK = {"list": "runs", "name": "This week", "filter": "status:failed since:7d"}


async def failed_run(rig: Rig, last_error: str = "boom", **given: Any) -> Run:
    schedule = a_schedule(last_error=last_error)
    await rig.store.load([schedule])
    run = a_run(
        **{
            "schedule_id": schedule.id,
            "status": RunStatus.FAILED,
            "error": "boom",
            "finished_at": NOW,
        }
        | given
    )
    await rig.store.load([run])
    return run


def an_agent_run(**given: Any) -> Run:
    target = AgentTarget(prompt="What is six times seven?", model="big")
    values = {"target": target, "status": RunStatus.SUCCEEDED, "result": {"text": "42"}}
    return a_run(**(values | given))


# --- known failures -------------------------------------------------------------------------------
async def test_known_failure_is_marked_read_and_unmarked(any_rig: Rig) -> None:
    run = await failed_run(any_rig)
    path = f"/api/v1/runs/{run.id}/known"
    assert (await any_rig.client.get(path)).status_code == 404
    marked = await any_rig.client.post(path, json={"reason": "the bank is closed"})
    assert marked.status_code == 200
    shown = marked.json()
    assert (shown["run_id"], shown["schedule_id"]) == (run.id, run.schedule_id)
    assert shown["reason"] == "the bank is closed"
    assert (await any_rig.client.get(path)).json() == shown
    forgotten = await any_rig.client.delete(path)
    assert (forgotten.status_code, forgotten.content) == (204, b"")
    assert (await any_rig.client.get(path)).status_code == 404
    notes = await any_rig.store.list_audit(AuditQuery(object_id=run.id))
    assert [note.verb for note in notes] == ["unmark_known", "mark_known"]


async def test_marking_needs_no_body_but_a_failed_run() -> None:
    async with serving() as rig:
        good = await failed_run(rig, status=RunStatus.SUCCEEDED, error="")
        answer = await rig.client.post(f"/api/v1/runs/{good.id}/known")
        assert (answer.status_code, answer.json()["code"]) == (409, "not_failed")
        bad = await failed_run(rig)
        assert (await rig.client.post(f"/api/v1/runs/{bad.id}/known")).status_code == 200
        long = await rig.client.post(f"/api/v1/runs/{bad.id}/known", json={"reason": "x" * 301})
        assert (long.status_code, long.json()["errors"][0]["pointer"]) == (422, "/reason")


async def test_outdated_known_failure_is_not_found() -> None:
    async with serving() as rig:
        run = await failed_run(rig, last_error="another one")
        await rig.client.post(f"/api/v1/runs/{run.id}/known")
        assert (await rig.client.get(f"/api/v1/runs/{run.id}/known")).status_code == 404
        alone = a_run(status=RunStatus.FAILED, schedule_id=None)
        await rig.store.load([alone])
        assert (await rig.client.get(f"/api/v1/runs/{alone.id}/known")).status_code == 404
        answer = await rig.client.post(f"/api/v1/runs/{alone.id}/acknowledge")
        assert (answer.status_code, answer.json()["schedule_id"]) == (200, None)
        assert (await rig.client.get(f"/api/v1/runs/{alone.id}/known")).json() == answer.json()


# --- replies --------------------------------------------------------------------------------------
async def test_reply_is_a_run_with_the_previous_conversation() -> None:
    async with serving() as rig:
        run = an_agent_run()
        await rig.store.load([run])
        path = f"/api/v1/runs/{run.id}/reply"
        key = {"Idempotency-Key": "one"}
        answer = await rig.client.post(path, json={"text": "And twice?"}, headers=key)
        assert answer.status_code == 202, answer.text
        new = await rig.store.get_run(answer.json()["id"])
        assert new is not None
        assert isinstance(new.target, AgentTarget)
        assert new.target.model == "big"
        said = new.target.prompt
        places = [said.index(each) for each in ("six times", "42", "And twice?")]
        assert places == sorted(places)
        assert [each.channel for each in new.policy.delivery] == [Channel.INBOX]
        assert answer.headers["location"] == f"/api/v1/runs/{new.id}"
        again = await rig.client.post(path, json={"text": "And twice?"}, headers=key)
        assert again.json()["id"] == new.id
        thai = await rig.client.post(path, json={"text": "x", "language": "th"})
        in_thai = await rig.store.get_run(thai.json()["id"])
        assert in_thai is not None
        assert isinstance(in_thai.target, AgentTarget)
        assert "Earlier I asked you" not in in_thai.target.prompt


@pytest.mark.parametrize("text", ["", "  ", "x" * 4001])
async def test_empty_or_too_long_reply_is_rejected(text: str) -> None:
    async with serving() as rig:
        run = an_agent_run()
        await rig.store.load([run])
        answer = await rig.client.post(f"/api/v1/runs/{run.id}/reply", json={"text": text})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/text"


async def test_only_succeeded_agent_runs_accept_replies() -> None:
    async with serving() as rig:
        waiting, plain = an_agent_run(status=RunStatus.QUEUED), a_run(status=RunStatus.SUCCEEDED)
        await rig.store.load([waiting, plain])
        for run in (waiting, plain):
            answer = await rig.client.post(f"/api/v1/runs/{run.id}/reply", json={"text": "x"})
            assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_reply_to")


async def test_reply_needs_rights_on_the_run() -> None:
    async with serving() as rig:
        run = an_agent_run(owner=ALICE)
        await rig.store.load([run])
        path, body = f"/api/v1/runs/{run.id}/reply", {"text": "x"}
        for role, owner, status in (
            (Role.VIEWER, ALICE, 403),
            (Role.MEMBER, BOB, 404),
            (Role.MEMBER, ALICE, 202),
        ):
            key = await rig.key(role, owner)
            answer = await rig.client.post(path, json=body, headers=key)
            assert answer.status_code == status, (role, owner)


# --- saved filters --------------------------------------------------------------------------------
async def test_filters_are_saved_renamed_and_removed(any_rig: Rig) -> None:
    client = any_rig.client
    assert (await client.get(FILTERS)).json() == {"items": []}
    assert (await client.post(FILTERS, json=WEEK)).json() == WEEK
    other = WEEK | {"list": "schedules", "filter": "status:paused"}
    await client.post(FILTERS, json=other)
    renamed = await client.patch(
        FILTERS, json={"list": "runs", "name": "this WEEK", "to": "Broken / 100%"}
    )
    assert renamed.json() == WEEK | {"name": "Broken / 100%"}
    assert (await client.get(FILTERS)).json()["items"] == [renamed.json(), other]
    gone = await client.delete(FILTERS, params={"list": "runs", "name": "Broken / 100%"})
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await client.get(FILTERS)).json()["items"] == [other]


async def test_invalid_filters_are_rejected() -> None:
    async with serving() as rig:
        await rig.client.post(FILTERS, json=WEEK)
        await rig.client.post(FILTERS, json=WEEK | {"name": "two"})
        taken = await rig.client.patch(
            FILTERS, json={"list": "runs", "name": "two", "to": "This week"}
        )
        assert (taken.status_code, taken.json()["code"]) == (409, "taken")
        nobody = await rig.client.delete(FILTERS, params={"list": "runs", "name": "three"})
        assert nobody.status_code == 404
        for wrong in ({"list": "nodes"}, {"name": " "}, {"filter": ""}, {"filter": "x" * 501}):
            answer = await rig.client.post(FILTERS, json=WEEK | wrong)
            assert answer.status_code == 422, wrong


async def test_filters_are_per_owner() -> None:
    async with serving() as rig:
        alice, bob = await rig.key(Role.VIEWER, ALICE), await rig.key(Role.MEMBER, BOB)
        saved = await rig.client.post(FILTERS, json=WEEK, headers=alice)
        assert saved.status_code == 200
        assert (await rig.client.get(FILTERS, headers=bob)).json() == {"items": []}
        where = {"list": "runs", "name": "This week"}
        gone = await rig.client.delete(FILTERS, params=where, headers=bob)
        assert gone.status_code == 404
