"""Documents: a change computed from an old value does not overwrite a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import pytest

from chimes.errors import NotAuthenticated, NotFound, StaleVersion, StoreBusy, StoreUnavailable
from chimes.model.access import Actor, Role
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH, Checkpoint
from chimes.model.listing import AuditQuery
from chimes.services import documents
from chimes.services.access import USERS, AccessService
from chimes.services.documents import DocumentStore
from chimes.services.users import STATE as SESSIONS
from chimes.services.users import SessionService, UserService
from chimes.store.memory import MemoryStore
from chimes.telegram.links import Chat, Links
from chimes.testing import SettableClock

ADMIN = Actor()
PASSWORD = "correct horse battery"
MINUTE = timedelta(minutes=1)


class StallingStore(MemoryStore):
    """A node stalls after it has read a checkpoint, until `resume` is set."""

    def __init__(self, clock: SettableClock) -> None:
        super().__init__(clock)
        #: Name of the checkpoint.
        self.stalls_after = ""
        self.read, self.resume = asyncio.Event(), asyncio.Event()

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        found = await super().get_checkpoint(name)
        if name == self.stalls_after:
            self.stalls_after = ""
            self.read.set()
            await self.resume.wait()
        return found

    async def interleave(self, name: str, slow: Awaitable[object], fast: Awaitable[object]) -> None:
        """Runs `fast` while `slow` stalls after it has read the checkpoint."""
        self.stalls_after = name
        stalled = asyncio.ensure_future(slow)
        await self.read.wait()
        await fast
        self.resume.set()
        await stalled


@pytest.fixture
def store(clock: SettableClock) -> StallingStore:
    return StallingStore(clock)


async def _remove_later(users: UserService, name: str, clock: SettableClock) -> None:
    clock.advance(MINUTE)
    await users.remove(ADMIN, name)


async def test_removed_user_does_not_come_back_when_a_stalled_node_continues(
    store: StallingStore, clock: SettableClock
) -> None:
    node_a, node_b = UserService(store), UserService(store)
    for name in ("anna", "bert"):
        await node_a.create(ADMIN, name=name, password=PASSWORD, role=Role.MEMBER)
    create = node_a.create(ADMIN, name="carol", password=PASSWORD, role=Role.MEMBER)
    await store.interleave(USERS, create, _remove_later(node_b, "bert", clock))
    assert [user.name for user in await node_b.list_users(ADMIN)] == ["anna", "carol"]
    verbs = [entry.verb for entry in await store.list_audit(AuditQuery(limit=2))]
    assert verbs == ["create_user", "remove_user"]


async def test_password_of_a_user_removed_meanwhile_is_not_set(
    store: StallingStore, clock: SettableClock
) -> None:
    users = UserService(store)
    await users.create(ADMIN, name="bert", password=PASSWORD, role=Role.MEMBER)
    change = users.set_password(ADMIN, "bert", PASSWORD * 2)
    with pytest.raises(NotFound):
        await store.interleave(USERS, change, _remove_later(users, "bert", clock))
    assert not await users.has_users()


async def test_revoked_session_does_not_come_back_when_a_stalled_node_continues(
    store: StallingStore, clock: SettableClock
) -> None:
    users = UserService(store)
    await users.create(ADMIN, name="anna", password=PASSWORD, role=Role.ADMIN)
    node_a, node_b = (
        SessionService(store, AccessService(store, clock), users, clock) for _node in "ab"
    )
    secret, session = await node_a.login_with_password("anna", PASSWORD, address="a", agent="")
    login = node_a.login_with_password("anna", PASSWORD, address="b", agent="")
    await store.interleave(SESSIONS, login, node_b.revoke(ADMIN, session.record.id))
    assert [each.address for each in await node_b.list_sessions(ADMIN)] == ["b"]
    with pytest.raises(NotAuthenticated):
        await node_a.authenticate(secret, address="a")


async def test_unlinked_chat_is_not_linked_again_when_a_stalled_node_continues(
    store: StallingStore,
) -> None:
    links = Links(store)
    linked = Chat(id="7", owner="user:anna", user_id="70")
    await links.change_chat("7", lambda before: linked)
    translate = links.change_chat(
        "7", lambda before: Chat(id="7", owner=before.owner, left=before.left, language="th")
    )
    await store.interleave("telegram:chat:7", translate, links.unlink(ADMIN, linked))
    assert await links.chat("7") == Chat(id="7", language="th", left="user:anna")


# --- the document itself ----------------------------------------------------------------------
async def test_change_gives_up_after_too_many_conflicts(
    clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AlwaysStale(MemoryStore):
        async def set_checkpoint(
            self,
            name: str,
            value: str | None,
            audit: AuditEntry | None = None,
            *,
            expected: int | None = None,
        ) -> Checkpoint | None:
            raise StaleVersion

    monkeypatch.setattr(documents, "_LONGEST_PAUSE", 0)
    calls: list[object] = []

    def change(document: documents.Document) -> tuple[documents.Document, None]:
        calls.append(document)
        return {"a": 1}, None

    with pytest.raises(StoreBusy, match="too many concurrent changes"):
        await DocumentStore(AlwaysStale(clock), "x").change(change)
    assert 10 <= len(calls) <= 100


async def test_unchanged_document_without_audit_entry_is_not_written(
    store: StallingStore, clock: SettableClock
) -> None:
    document = DocumentStore(store, "x")
    await document.change(lambda before: ({"a": 1}, None))
    written = await store.get_checkpoint("x")
    clock.advance(MINUTE)
    assert await document.change(lambda before: (before, None)) == {"a": 1}
    assert await store.get_checkpoint("x") == written


async def test_too_large_document_is_rejected(store: StallingStore) -> None:
    document = DocumentStore(store, "x")
    with pytest.raises(StoreUnavailable, match="x is too large"):
        await document.change(lambda before: ({"a": "b" * MAX_CHECKPOINT_LENGTH}, None))
    assert await store.get_checkpoint("x") is None


@pytest.mark.parametrize("corrupt", ["{", "[1]", "", "null"])
async def test_corrupt_document_reads_as_empty_and_can_be_replaced(
    store: StallingStore, corrupt: str
) -> None:
    await store.set_checkpoint("x", corrupt)
    document = DocumentStore(store, "x")
    assert await document.read() == {}
    await document.change(lambda before: ({**before, "a": 1}, None))
    assert await document.read() == {"a": 1}
