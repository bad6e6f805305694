"""Event stream of pages: events, permissions, resumption."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.errors import StoreUnavailable
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.testing import SettableClock
from chimes.web import live_updates as live_module
from chimes.web.live_updates import (
    TOPICS,
    ChangePoller,
    LiveUpdates,
    Snapshot,
    parse_event_id,
)
from chimes.web.requests import WebContext
from tests.builders import NOW, SECOND, a_completion
from tests.store_contract.scenes import running_run
from tests.store_contract.stores import KINDS, Home, StoreKind
from tests.web.dashboard.browsing import browsing
from tests.web.rig import Rig, serving

ANNA = Owner(type=OwnerType.USER, id="anna")
FIRST = Snapshot(("00000000",) * len(TOPICS))


@pytest.fixture(autouse=True)
def _fast_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls the store continuously, by the clock of the test."""
    monkeypatch.setattr(live_module, "MIN_POLL_INTERVAL", 0.0)
    monkeypatch.setattr(live_module, "POLL_INTERVAL", 0.0)


async def always() -> bool:
    return True


@asynccontextmanager
async def listening(
    rig: Rig, actor: Actor | None = None, known: Snapshot | None = None
) -> AsyncIterator[AsyncIterator[str]]:
    stream = LiveUpdates(rig.context).stream(actor or Actor(), known, always)
    assert await anext(stream) == "retry: 1000\n\n"
    try:
        yield stream
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


async def next_event(stream: AsyncIterator[str]) -> tuple[str, str]:
    async with asyncio.timeout(60):
        text = await anext(stream)
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return fields["event"], fields["id"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_changes_are_detected_on_every_store(kind: StoreKind, tmp_path: Path) -> None:
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        async with serving(store, clock) as rig:
            watch = ChangePoller(rig.context, Actor())
            empty = await watch.poll()
            made = await rig.create()
            after = await watch.poll()
            assert "schedules" in after.changed_since(empty)
            assert "runs" not in after.changed_since(empty)
            await rig.client.post(f"/api/v1/schedules/{made['id']}/run")
            assert "runs" in (await watch.poll()).changed_since(after)
    finally:
        await home.close()


async def test_a_reconnected_stream_gets_missed_events_only() -> None:
    async with serving() as rig:
        async with listening(rig) as stream:
            assert (await next_event(stream))[0] == "beat"
            await rig.create()
            kind, position = await next_event(stream)
            assert kind == "schedules.changed"
        # A reconnect to another node: the event id contains the seen state.
        async with listening(rig, known=parse_event_id(position)) as stream:
            assert await next_event(stream) == ("beat", position)
        await rig.create(name="another")
        async with listening(rig, known=parse_event_id(position)) as stream:
            assert (await next_event(stream))[0] == "schedules.changed"


async def test_changes_of_other_owners_are_not_detected() -> None:
    async with serving() as rig:
        anna = ChangePoller(rig.context, Actor(owner=ANNA, role=Role.MEMBER))
        before = await anna.poll()
        await rig.create()
        assert await anna.poll() == before


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.2.3.4", "00000000.00000000.00000000", "0000000\n.00000000.00000000.00000000"],
)
def test_invalid_event_ids_are_ignored(text: str) -> None:
    assert parse_event_id(text) is None
    assert parse_event_id(FIRST.id) == FIRST


async def test_a_stream_ends_with_its_session() -> None:
    async with serving() as rig:
        welcome = True

        async def still() -> bool:
            return welcome

        stream = LiveUpdates(rig.context).stream(Actor(), None, still)
        await anext(stream)
        assert (await next_event(stream))[0] == "beat"
        welcome = False
        rig.clock.advance(timedelta(seconds=11))
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(60):
                await anext(stream)


async def test_streams_end_when_the_node_drains() -> None:
    state = ""
    async with serving(not_ready=lambda: state) as rig, listening(rig) as stream:
        await next_event(stream)
        state = "draining"
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(60):
                await anext(stream)


async def test_streams_with_the_same_permissions_share_one_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_module, "POLL_INTERVAL", 2.0)
    async with serving() as rig:
        polls = 0
        real = rig.store.list_runs

        async def counted(*arguments: object) -> object:
            nonlocal polls
            polls += 1
            return await real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(rig.store, "list_runs", counted)
        watch = ChangePoller(rig.context, Actor())
        await asyncio.gather(*(watch.poll() for _ in range(50)))
        assert polls == 2


# --- from page to stream --------------------------------------------------------------------------
def carried(page: str) -> Snapshot:
    (found,) = re.findall(r'<live-dot [^>]*data-after="([^"]*)"', page)
    seen = parse_event_id(found)
    assert seen is not None, found
    return seen


async def events_before_heartbeat(rig: Rig, known: Snapshot) -> list[str]:
    """Events of a stream before its first heartbeat."""
    found = []
    async with listening(rig, known=known) as stream:
        while (event := (await next_event(stream))[0]) != "beat":
            found.append(event)
    return found


async def test_changes_between_page_and_stream_are_sent() -> None:
    """Otherwise an ended run would stay under "Running now" until another change."""
    async with browsing() as browser:
        rig = browser.rig
        await rig.create()
        run = await running_run(rig.store)
        page = (await browser.get("/ui/")).text
        assert run.id in page
        await rig.store.finish([a_completion(run, NOW + SECOND)])
        assert await events_before_heartbeat(rig, carried(page)) == ["runs.changed"]


@pytest.mark.parametrize("path", ["/ui/", "/ui/schedules", "/ui/runs", "/ui/inbox", "/ui/system"])
async def test_every_page_carries_an_event_id(path: str) -> None:
    async with browsing() as browser:
        await browser.rig.create()
        page = (await browser.get(path)).text
        assert await events_before_heartbeat(browser.rig, carried(page)) == []
        await browser.rig.create(name="another")
        assert await events_before_heartbeat(browser.rig, carried(page)) == ["schedules.changed"]
        # The cached poll may be old; at worst the page gets an event for what it already shows.
        assert carried((await browser.get(path)).text) == carried(page)
        browser.rig.clock.advance(timedelta(seconds=live_module.MAX_SNAPSHOT_AGE + 1))
        again = carried((await browser.get(path)).text)
        assert await events_before_heartbeat(browser.rig, again) == []


async def test_the_page_after_an_action_needs_no_event() -> None:
    async with browsing() as browser:
        made = await browser.rig.create()
        own = f"/ui/schedules/{made['id']}"
        response = await browser.send(f"{own}/pause", on=own)
        done = await browser.send(f"{own}/pause") if response.status_code == 200 else response
        page = (await browser.follow(done)).text
        assert await events_before_heartbeat(browser.rig, carried(page)) == []


async def test_a_form_with_errors_carries_the_event_id() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        before = carried((await browser.get("/ui/schedules/new")).text)
        await browser.rig.create(name="another")
        again = await browser.send("/ui/schedules/new", name="", cron="nonsense")
        assert "<live-dot" in again.text, "it is a page, not a redirect"
        assert carried(again.text) == before
        assert await events_before_heartbeat(browser.rig, before) == ["schedules.changed"]


async def test_a_page_renders_although_polling_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("gone for a moment")

    async with browsing() as browser:
        await browser.rig.create()
        monkeypatch.setattr(browser.rig.store, "list_audit", away)
        answer = await browser.get("/ui/schedules")
        assert answer.status_code == 200
        assert 'data-after=""' in answer.text


async def test_a_run_that_ended_between_polls_is_detected() -> None:
    async with serving() as rig:
        live, actor = LiveUpdates(rig.context), Actor()
        before = parse_event_id(await live.current_event_id(actor))
        assert before is not None
        run = await running_run(rig.store)
        await rig.store.finish([a_completion(run, NOW + SECOND)])
        rig.clock.advance(timedelta(hours=1))
        after = parse_event_id(await live.current_event_id(actor))
        assert after is not None
        assert "runs" in after.changed_since(before)


async def test_the_number_of_pollers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_POLLERS", 2)
    async with serving() as rig:
        live = LiveUpdates(rig.context)
        actors = [
            Actor(owner=Owner(type=OwnerType.USER, id=name), role=Role.MEMBER) for name in "abc"
        ]
        looks: list[Actor] = []

        class RecordingPoller(ChangePoller):
            def __init__(self, context: WebContext, actor: Actor) -> None:
                looks.append(actor)
                super().__init__(context, actor)

        monkeypatch.setattr(live_module, "ChangePoller", RecordingPoller)
        first, second, third = actors
        for actor in (first, second, first, third, first, second):
            await live.current_event_id(actor)
        assert looks == [first, second, third, second], "the least recently used one is removed"
