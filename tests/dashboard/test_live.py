"""The stream of signals: what it says, to whom, where it is taken up again (UX A.0, S06, S11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.doors.dashboard import live as live_module
from chimes.doors.dashboard.live import TOPICS, Live, Seen, Watch, seen_from
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.testing import SettableClock
from tests.doors.rig import Rig, serving
from tests.store_contract.stores import KINDS, Home, StoreKind

ANNA = Owner(type=OwnerType.USER, id="anna")
FIRST = Seen(("00000000",) * len(TOPICS))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the store all the time, by a clock that the test moves."""
    monkeypatch.setattr(live_module, "LOOK_AT_MOST", 0.0)
    monkeypatch.setattr(live_module, "LOOK_EVERY", 0.0)


async def always() -> bool:
    return True


@asynccontextmanager
async def listening(
    rig: Rig, actor: Actor | None = None, known: Seen | None = None
) -> AsyncIterator[AsyncIterator[str]]:
    stream = Live(rig.doorway).signals(actor or Actor(), known, always)
    assert await anext(stream) == "retry: 1000\n\n"
    try:
        yield stream
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


async def next_event(stream: AsyncIterator[str]) -> tuple[str, str]:
    async with asyncio.timeout(10):
        text = await anext(stream)
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return fields["event"], fields["id"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_change_is_heard_on_every_store(kind: StoreKind, tmp_path: Path) -> None:
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        async with serving(store, clock) as rig:
            watch = Watch(rig.doorway, Actor())
            empty = await watch.look()
            made = await rig.create()
            after = await watch.look()
            assert "schedules" in after.changed_since(empty)
            assert "runs" not in after.changed_since(empty)
            await rig.client.post(f"/api/v1/schedules/{made['id']}/run")
            assert "runs" in (await watch.look()).changed_since(after)
    finally:
        await home.close()


async def test_who_comes_back_hears_of_what_it_missed_and_of_nothing_else() -> None:
    async with serving() as rig:
        async with listening(rig) as stream:
            assert (await next_event(stream))[0] == "beat"
            await rig.create()
            kind, position = await next_event(stream)
            assert kind == "schedules.changed"
        # To another node: the id says what was seen.
        async with listening(rig, known=seen_from(position)) as stream:
            assert await next_event(stream) == ("beat", position)
        await rig.create(name="another")
        async with listening(rig, known=seen_from(position)) as stream:
            assert (await next_event(stream))[0] == "schedules.changed"


async def test_an_owner_hears_nothing_of_others() -> None:
    # S06
    async with serving() as rig:
        anna = Watch(rig.doorway, Actor(owner=ANNA, role=Role.MEMBER))
        before = await anna.look()
        await rig.create()
        assert await anna.look() == before


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.2.3.4", "00000000.00000000.00000000", "0000000\n.00000000.00000000.00000000"],
)
def test_a_position_that_is_none_of_ours_is_no_position(text: str) -> None:
    assert seen_from(text) is None
    assert seen_from(FIRST.id) == FIRST


async def test_a_stream_ends_with_its_session() -> None:
    # S11
    async with serving() as rig:
        welcome = True

        async def still() -> bool:
            return welcome

        stream = Live(rig.doorway).signals(Actor(), None, still)
        await anext(stream)
        assert (await next_event(stream))[0] == "beat"
        welcome = False
        rig.clock.advance(timedelta(seconds=11))
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(10):
                await anext(stream)


async def test_a_node_that_drains_lets_its_listeners_go() -> None:
    state = ""
    async with serving(not_ready=lambda: state) as rig, listening(rig) as stream:
        await next_event(stream)
        state = "draining"
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(10):
                await anext(stream)


async def test_all_listeners_of_the_same_rights_share_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_module, "LOOK_EVERY", 2.0)
    async with serving() as rig:
        asked = 0
        real = rig.store.list_runs

        async def counted(*arguments: object) -> object:
            nonlocal asked
            asked += 1
            return await real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(rig.store, "list_runs", counted)
        watch = Watch(rig.doorway, Actor())
        await asyncio.gather(*(watch.look() for _ in range(50)))
        assert asked == 2
