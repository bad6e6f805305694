"""Bulk actions and import of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import yaml

from chimes.errors import InvalidInput, NotAllowed, NotFound, StoreUnavailable
from chimes.model.access import Actor, Role
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.services.schedules.service import ScheduleChange, pause_change
from chimes.store.port import ScheduleEdit
from chimes.web import bulk as core_bulk
from chimes.web.dashboard.core.bulk import Outcome
from chimes.web.dashboard.schedules import bulk as bulk_module
from chimes.web.dashboard.schedules.bulk import worst_first
from chimes.web.dashboard.schedules.importer import parse_items
from tests.web.dashboard.browsing import Browser, browsing

LIST = "/ui/schedules"
BULK = f"{LIST}/bulk"
IMPORT = f"{LIST}/import"
EVERY = {"kind": "every", "every": "5m"}


async def all_matching(browser: Browser, verb: str, q: str = "", **more: str) -> httpx2.Response:
    dialog = await browser.send(BULK, on=f"{LIST}?q={q}", verb=verb, which="all")
    assert dialog.status_code == 200, dialog.text
    return await browser.send(BULK, **more)


async def stored(browser: Browser) -> list[dict[str, object]]:
    answer = await browser.rig.client.get("/api/v1/schedules?limit=200")
    items: list[dict[str, object]] = answer.json()["items"]
    return items


async def test_pausing_all_matching_schedules_after_confirmation() -> None:
    async with browsing() as browser:
        for number in range(500):
            await browser.rig.create(name=f"s{number:03}", labels={"old": None})
        await browser.rig.create(name="other")
        dialog = await browser.send(BULK, on=f"{LIST}?q=label:old", verb="pause", which="all")
        assert "Pause 500 schedules?" in dialog.text
        assert "and 495 more" in dialog.text
        assert len(re.findall(r"<li>s\d{3}</li>", dialog.text)) == 5
        await browser.rig.create(name="meanwhile", labels={"old": None})
        again = await browser.send(BULK, reason="move")
        assert "Pause 501 schedules?" in again.text
        assert "have changed" in again.text
        done = await browser.send(BULK, reason="move")
        assert "501 schedules done." in done.text
        counts = await browser.get(f"{LIST}?q=status:paused")
        assert "501 schedules" in counts.text
        assert "move" in counts.text
        page = await browser.rig.store.list_schedules(ScheduleQuery(enabled=False, limit=500))
        token = re.findall(r'name="csrf" value="([^"]+)"', counts.text)[0]
        fields = {"csrf": token, "verb": "resume", "which": "selected"}
        selected: dict[str, Any] = fields | {"id": [*(each.id for each in page.items), "gone"]}
        again = await browser.post(BULK, selected)
        assert "Resume 500 schedules?" in again.text
        resumed = await browser.post(BULK, selected | {"sure": "yes", "count": "500"})
        assert "500 schedules done." in resumed.text
        assert await browser.rig.store.count_schedules(ScheduleQuery(enabled=False)) == 1


async def test_a_long_bulk_action_continues_and_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_bulk, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(bulk_module, "MAX_IDS", 10)
    async with browsing() as browser:
        for number in range(205):
            await browser.rig.create(name=f"s{number:03}")
        paused = ScheduleQuery(enabled=False)
        before = (await browser.rig.store.list_schedules(ScheduleQuery(limit=1))).items[0]
        await browser.rig.context.schedules.pause(Actor(), before.id, note="mine")
        browser.rig.clock.advance(timedelta(seconds=5))
        # Changed schedules no longer match the filter.
        dialog = await browser.send(BULK, on=f"{LIST}?q=status:enabled", verb="pause", which="all")
        assert "Pause 204 schedules?" in dialog.text
        first = await browser.send(BULK, reason="move")
        assert "100 of 204 schedules so far." in first.text
        assert await browser.rig.store.count_schedules(paused) == 101
        assert 'id="bulk-on"' in first.text
        later = await browser.rig.create(name="later")
        await browser.send(BULK)
        done = await browser.send(BULK)
        assert "204 schedules done." in done.text
        assert await browser.rig.store.count_schedules(paused) == 205
        kept = await browser.rig.store.get_schedule(ScheduleId(str(later["id"])))
        assert kept is not None
        assert kept.enabled, "it was not part of the confirmation"
        browser.rig.clock.advance(timedelta(seconds=5))
        undone = await browser.send(BULK)
        assert "100 of 204 schedules so far." in undone.text
        while 'id="bulk-on"' in undone.text:
            undone = await browser.send(BULK)
        assert "204 schedules done." in undone.text
        (left,) = (await browser.rig.store.list_schedules(paused)).items
        assert (left.id, left.pause_note) == (before.id, "mine"), "paused before, and manual"


async def test_a_long_action_on_selected_schedules_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_bulk, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(core_bulk, "BATCH_SIZE", 2)
    async with browsing() as browser:
        ids = [str((await browser.rig.create(name=f"s{number}"))["id"]) for number in range(5)]
        page = (await browser.get(LIST)).text
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        selected: dict[str, Any] = {
            "csrf": token,
            "verb": "delete",
            "which": "selected",
            "sure": "yes",
        }
        done = await browser.post(BULK, selected | {"id": [*ids[:4], "gone"]})
        assert "2 of 4 schedules so far." in done.text
        fields = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', done.text)
        cursor = dict(fields)["cursor"]
        rest = selected | {"id": [*ids[:4], "gone"], "cursor": cursor, "count": "4", "done": "2"}
        assert (await browser.post(BULK, rest | {"cursor": f"{cursor}x"})).status_code == 422
        assert "4 schedules done." in (await browser.post(BULK, rest)).text
        assert [each["id"] for each in await stored(browser)] == ids[4:]


async def test_a_store_error_keeps_the_results_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_bulk, "BATCH_SIZE", 2)
    async with browsing() as browser:
        for number in range(5):
            await browser.rig.create(name=f"s{number}")
        whole, rounds = browser.rig.store.change_schedules, iter((True, False))

        async def then_gone(edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
            if next(rounds):
                return await whole(edits)
            raise StoreUnavailable("gone")

        monkeypatch.setattr(browser.rig.store, "change_schedules", then_gone)
        outcome = await all_matching(browser, "pause")
        assert "2 of 5 schedules so far." in outcome.text
        monkeypatch.setattr(browser.rig.store, "change_schedules", whole)
        assert "5 schedules done." in (await browser.send(BULK)).text
        assert await browser.rig.store.count_schedules(ScheduleQuery(enabled=True)) == 0


async def test_a_bulk_deletion_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_module, "MAX_IDS", 1)
    async with browsing() as browser:
        for name in ("a", "b", "c"):
            await browser.rig.create(name=name)
        await all_matching(browser, "delete")
        assert await stored(browser) == []
        browser.rig.clock.advance(timedelta(seconds=5))
        undone = await browser.send(BULK)
        assert "3 schedules done." in undone.text
        assert all(each["enabled"] for each in await stored(browser))
        assert len(await stored(browser)) == 3


async def test_one_failure_does_not_stop_a_bulk_action() -> None:
    async with browsing() as browser:
        for name in ("a", "b", "c"):
            await browser.rig.create(name=name)
        seen = (await browser.rig.store.list_schedules(ScheduleQuery())).items
        service, actor = browser.rig.context.schedules, Actor()
        await service.delete(actor, seen[1].id)

        async def pause(each: Schedule) -> ScheduleChange:
            return pause_change(actor, note="n")

        first, gone, last = await service.change_each(actor, seen, pause)
        assert isinstance(gone, NotFound)
        assert isinstance(first, Schedule)
        assert isinstance(last, Schedule)
        assert (first.enabled, last.enabled, last.pause_note) == (False, False, "n")
        viewer = Actor(role=Role.VIEWER)
        assert all(
            isinstance(each, NotAllowed)
            for each in await service.change_each(viewer, [first, last], pause)
        )


async def test_every_bulk_action_and_its_failures() -> None:
    async with browsing() as browser:
        await browser.rig.create(name="daily")
        await browser.rig.create(name="tick", trigger=EVERY)
        await all_matching(browser, "label", label="team=a")
        assert [each["labels"] for each in await stored(browser)] == [{"team": "a"}] * 2
        await all_matching(browser, "overlap", overlap="queue")
        policies = [each["policy"] for each in await stored(browser)]
        assert [isinstance(p, Mapping) and p["overlap"] for p in policies] == ["queue", "queue"]
        zoned = await all_matching(browser, "zone", zone="Asia/Tokyo")
        assert "Done with errors" in zoned.text
        assert "an interval does not depend on the time zone" in zoned.text
        assert sorted(str(each["timezone"]) for each in await stored(browser)) == [
            "Asia/Tokyo",
            "UTC",
        ]
        ran = await all_matching(browser, "run", limit="1", spacing="60")
        assert "limit reached" in ran.text
        assert ran.text.count('href="/ui/runs/') == 1
        assert 'id="bulk-undo"' not in ran.text
        deleted = await all_matching(browser, "delete")
        assert "2 schedules done." in deleted.text
        assert await stored(browser) == []
        ids = re.findall(r'name="id" value="([^"]+)"', deleted.text)
        csrf = re.findall(r'name="csrf" value="([^"]+)"', deleted.text)[0]
        for each in ids:
            fields = {"csrf": csrf, "verb": "restore", "sure": "yes", "id": each}
            assert "1 schedule done." in (await browser.post(BULK, fields)).text
        assert len(await stored(browser)) == 2


async def test_bulk_runs_are_limited_and_spaced() -> None:
    async with browsing() as browser:
        for name in ("a", "b", "c"):
            await browser.rig.create(name=name)
        await all_matching(browser, "run", limit="3", spacing="60")
        runs = (await browser.rig.client.get("/api/v1/runs")).json()["items"]
        moments = sorted(str(each["planned_at"]) for each in runs)
        assert len(set(moments)) == 3


@pytest.mark.parametrize(
    ("verb", "fields", "text"),
    [
        ("zone", {"zone": "Nowhere"}, "Nowhere"),
        ("label", {"label": "=x"}, "name or name=value"),
        ("run", {"limit": "0"}, "between 1 and 500"),
        ("run", {"spacing": "-1"}, "between 0 and 3600"),
        ("overlap", {"overlap": "maybe"}, "one of"),
        ("pause", {"until": "2020-01-01T00:00"}, "must be in the future"),
    ],
)
async def test_an_invalid_bulk_form_changes_nothing(
    verb: str, fields: dict[str, str], text: str
) -> None:
    async with browsing() as browser:
        await browser.rig.create()
        before = await stored(browser)
        answer = await all_matching(browser, verb, **fields)
        assert (answer.status_code, text in answer.text) == (422, True)
        assert await stored(browser) == before


async def test_invalid_bulk_requests_do_nothing() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        none = await browser.send(BULK, on=LIST, verb="delete", which="selected")
        assert "No schedules selected." in (await browser.follow(none)).text
        unknown = await browser.send(BULK, on=LIST, verb="explode", which="all")
        assert unknown.status_code == 422
        broken = await browser.send(BULK, on=LIST, verb="delete", which="all", q="status:nope")
        assert broken.status_code == 422, "an invalid filter must not select all"


@pytest.mark.parametrize("chip", ["owner:zzz", "status:nope"])
async def test_an_invalid_filter_disables_actions_on_all(chip: str) -> None:
    async with browsing() as browser:
        made = await browser.rig.create()
        await browser.rig.client.post(f"/api/v1/schedules/{made['id']}/run")
        for address, offered in (
            (LIST, 'name="which" value="all"'),
            ("/ui/runs", 'name="everything"'),
        ):
            assert offered in (await browser.get(address)).text
            wrong = await browser.get(f"{address}?q={chip}")
            assert "Invalid conditions are ignored" in wrong.text
            assert offered not in wrong.text


async def test_an_export_can_be_imported_again() -> None:
    async with browsing() as browser:
        await browser.rig.create(name="ยอดขาย", labels={"a": None}, id="one")
        await browser.rig.create(name="tick", trigger=EVERY, id="two")
        exported = await browser.get(f"{LIST}/export?format=yaml")
        assert exported.headers["content-disposition"] == 'attachment; filename="schedules.yaml"'
        as_json = await browser.get(f"{LIST}/export?format=json&q=label:a")
        assert [each["id"] for each in json.loads(as_json.text)["schedules"]] == ["one"]
        selected = await browser.send(BULK, on=LIST, verb="export_json", which="selected", id="two")
        assert [each["id"] for each in selected.json()["schedules"]] == ["two"]
        text = exported.text
    async with browsing() as browser:
        shown = await browser.send(IMPORT, on=IMPORT, text=text)
        assert "Create up to 2 schedules" in shown.text
        fields = dict(re.findall(r'type="hidden" name="(csrf)" value="([^"]+)"', shown.text))
        for line in ("1", "2"):
            made = await browser.post(IMPORT, fields | {"text": text, "create": "y", "line": line})
            assert made.status_code == 303
        again = await browser.post(IMPORT, fields | {"text": text, "create": "y", "line": "1"})
        assert "Some schedules could not be created" in again.text
        after = {str(each["id"]): each for each in await stored(browser)}
        given = {each["id"]: each for each in yaml.safe_load(text)["schedules"]}
        assert after["one"]["name"] == given["one"]["name"] == "ยอดขาย"
        assert after["two"]["trigger"] == given["two"]["trigger"]


async def test_a_crontab_is_previewed_and_imported() -> None:
    text = "# Report\n0 9 * * 1-5 curl https://example.com/r\n0 1 * * * /bin/x\n"
    async with browsing() as browser:
        shown = await browser.send(IMPORT, on=IMPORT, text=text, zone="Asia/Bangkok")
        assert "Every weekday at 09:00" in shown.text
        assert "commands are not allowed" in shown.text
        assert await stored(browser) == [], "the preview saves nothing"
        fields = dict(re.findall(r'type="hidden" name="(csrf)" value="([^"]+)"', shown.text))
        fields |= {"text": text, "zone": "Asia/Bangkok", "create": "yes"}
        nothing = await browser.post(IMPORT, fields)
        assert (nothing.status_code, "no schedule selected" in nothing.text) == (422, True)
        made = await browser.post(IMPORT, fields | {"line": "2"})
        assert "1 schedule created." in (await browser.follow(made)).text
        (schedule,) = await stored(browser)
        assert (schedule["name"], schedule["timezone"]) == ("Report", "Asia/Bangkok")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "paste a text"),
        ("just words", "expected a crontab"),
        ("{broken", "invalid JSON"),
        ("a: &x [1]\nb: *x", "alias"),
        ("a: [", "not valid YAML"),
    ],
)
def test_an_unreadable_import_text_is_rejected(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_items(text, format_="auto", zone="UTC")


def test_errors_are_reported_per_entry() -> None:
    good = {"name": "a", "trigger": EVERY, "target": {"kind": "http", "url": "http://127.0.0.1/"}}
    masked = good | {"target": {"kind": "http", "url": "http://x/", "headers": {"Key": "***"}}}
    entries = [good, {"nam": "b"}, masked, 7]
    found = parse_items(json.dumps(entries), format_="auto", zone="UTC")
    assert [bool(each.body) for each in found] == [True, False, False, False]
    assert "nam" in found[1].error
    assert "target.headers.Key" in found[2].error
    assert found[3].error
    dated = "name: a\ntrigger: {kind: once, at: 2030-01-01T09:00:00+07:00}\ntarget: {url: http://x}"
    (item,) = parse_items(dated, format_="yaml", zone="UTC")
    assert item.body is not None, item.error


def test_failed_outcomes_come_first() -> None:
    items = [
        Outcome(id="a", name="a"),
        Outcome(id="b", name="b", over_limit=True),
        Outcome(id="c", name="c", error="no"),
    ]
    assert [each.name for each in worst_first(items)] == ["c", "a", "b"]
