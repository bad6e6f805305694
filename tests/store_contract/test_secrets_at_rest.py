"""Secrets are encrypted in every store, found again with the key, and survive a new one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from chimes.envelope import Keyring, _known, new_key
from chimes.errors import SecretUnreadable
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.planning import plan
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Reason, RunDefinition
from chimes.model.target import HttpTarget, TaskTarget
from chimes.store.port import IdempotencyRecord, Store
from chimes.store.sql.tables import definitions, metadata
from tests.builders import (
    MINUTE,
    a_delivery,
    a_node,
    a_run,
    a_schedule,
    claim_request,
    due_schedule,
)
from tests.store_contract import stores
from tests.store_contract.stores import Home
from tests.web.rig import serving

#: Each stands in one field only.
PLAIN = {
    "header": "Bearer hdr-5ecret-1",
    "query": "qry-5ecret-2",
    "password": "pwd-5ecret-3",
    "body": "bdy-5ecret-4",
    "signing": "whsec_c2lnbmluZy01ZWNyZXQtNQ==",
    "hook": "hok-5ecret-6",
    "args": "arg-5ecret-7",
    "state": "sta-5ecret-8",
    "response": "rsp-5ecret-9",
}
TARGET = HttpTarget(
    url=f"https://me:{PLAIN['password']}@sink.example/x?token={PLAIN['query']}",
    headers={"Authorization": PLAIN["header"], "Accept": "text/plain"},
    body=json.dumps({"name": "visible", "password": PLAIN["body"], "nested": {"a": [1, None]}}),
    signing_secrets=(PLAIN["signing"],),
)
RECIPIENT = Recipient(channel=Channel.WEBHOOK, to=f"https://hook.example/?key={PLAIN['hook']}")
POLICY = Policy(delivery=(RECIPIENT,))


@pytest.fixture
async def home(durable_home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    """With keys of its own, which the process forgets afterwards."""
    monkeypatch.setattr(stores, "KEYRING", Keyring([new_key()]))
    before = dict(_known)
    yield durable_home
    _known.clear()
    _known.update(before)


async def fill(store: Store) -> list[Any]:
    """Stores all secrets; returns what must be read back."""
    schedule = due_schedule(target=TARGET, policy=POLICY)
    await store.add_schedule(schedule)
    await store.fire_due(plan, limit=10)
    task = TaskTarget(name="copy", args={"api_key": PLAIN["args"], "rows": 5})
    run = a_run(definition=RunDefinition(target=task, policy=Policy()))
    await store.add_runs([run])
    await store.add_delivery(a_delivery(recipient=RECIPIENT))
    await store.set_checkpoint("agent:1", json.dumps({"token": PLAIN["state"]}))
    await store.remember_request("scope", "key", "print", keep=timedelta(hours=1))
    answer = IdempotencyRecord(
        fingerprint="print", status=201, body=json.dumps({"key": "x", "token": PLAIN["response"]})
    )
    await store.answer_request("scope", "key", answer)
    return await contents(store)


async def contents(store: Store) -> list[Any]:
    found: list[Any] = [item async for item in store.dump()]
    found.append(await store.remember_request("scope", "key", "print", keep=timedelta(hours=1)))
    return sorted(found, key=repr)


async def raw(home: Home, store: Store) -> str:
    """Everything that the store wrote down."""
    directory = home._directory
    if home.kind.name == "redis":
        return _redis(directory)
    if home.kind.name in ("postgresql", "mariadb"):
        return await store._database.read(  # type: ignore[attr-defined]
            lambda tx: "\n".join(
                str(value)
                for table in metadata.sorted_tables
                for row in tx.rows(select(table))
                for value in row
            )
        )
    files = [each for each in directory.rglob("*") if each.is_file() and each.name != "secret.key"]
    return "\n".join(each.read_bytes().decode("latin-1") for each in files)


def _redis(directory: Path) -> str:
    from redis import Redis

    url = (directory / "redis").read_text().partition("?")[0]
    found: list[str] = []
    with Redis.from_url(url) as client:
        for key in client.scan_iter():
            kind = client.type(key)
            read = {
                b"hash": client.hgetall,
                b"string": client.get,
                b"set": client.smembers,
                b"zset": lambda name: client.zrange(name, 0, -1),
                b"list": lambda name: client.lrange(name, 0, -1),
            }[kind]
            found.append(f"{key!r} {read(key)!r}")
    return "\n".join(found)


def plain_in(content: str) -> list[str]:
    return [name for name, value in PLAIN.items() if value in content]


async def test_no_secret_is_written_in_plain_text(home: Home) -> None:
    store = await home.open()
    before = await fill(store)
    written = await raw(home, store)
    assert plain_in(written) == []
    assert "sink.example" not in written
    assert written.count("chimes:sealed:1:") >= 8
    # What is not secret stays readable.
    assert "text/plain" in written
    store = await home.reopen()
    assert await contents(store) == before
    assert plain_in(await raw(home, store)) == []


async def test_equal_definitions_are_stored_once(home: Home) -> None:
    """Although each envelope has its own nonce."""
    if home.kind.name == "json":
        return
    store = await home.open()
    definition = RunDefinition(target=TARGET, policy=POLICY)
    await store.add_runs([a_run(definition=definition)])
    other = await home.open()
    await other.add_runs([a_run(definition=replace(definition))])
    if home.kind.name == "redis":
        assert _redis(home._directory).count(":definition:") == 1
        return
    rows = await store._database.read(  # type: ignore[attr-defined]
        lambda tx: tx.rows(select(definitions))
    )
    assert len(rows) == 1


async def test_a_copied_envelope_is_not_opened(home: Home) -> None:
    store = await home.open()
    key = store.keyring.current()
    assert key is not None
    copied = key.seal("Bearer stolen", "body")
    mine = a_schedule(target=HttpTarget(url="https://mine.example/", body=copied))
    await store.add_schedule(mine)
    task = TaskTarget(name="copy", args={"body": copied})
    run = a_run(definition=RunDefinition(target=task, policy=Policy()))
    await store.add_runs([run])
    store = await home.reopen()
    found = await store.get_schedule(mine.id)
    assert found is not None
    assert found.target == mine.target
    stored = await store.get_run(run.id)
    assert stored is not None
    assert stored.target == task


async def test_a_new_key_takes_over_while_nodes_work(home: Home) -> None:
    store = await home.open()
    before = await fill(store)
    old = store.keyring.keys()[0]
    if store.keyring.file is None:
        new = new_key()
        stores.KEYRING = Keyring([new, old])
        store = await home.open()
    else:
        new = store.keyring.add_key()
    # A node still writes with the key that it knows while the values are encrypted again.
    schedule = a_schedule(target=replace(TARGET, body="x"))
    await store.add_schedule(schedule)
    changed = await store.reseal()
    assert changed >= 1
    assert await store.reseal() == 0
    if home.kind.name == "sqlite":
        await home.close()
    written = await raw(home, store)
    assert plain_in(written) == []
    kept = 1 if home.kind.name == "redis" else 0
    assert written.count(f":sealed:1:{old.id}:") == kept, "only the kept response on Redis"
    if store.keyring.file is None:
        stores.KEYRING = Keyring([new])
    else:
        store.keyring.drop_old_keys()
    if not kept:
        _known.pop(old.id)
    await home.close()
    store = await home.open()
    found = [each for each in await contents(store) if each != schedule]
    assert len(found) == len(before)
    assert all(each in before for each in found)


async def test_a_value_in_plain_text_is_encrypted_by_reseal(home: Home) -> None:
    if home.kind.name == "json":
        return  # It is written as a whole when it is opened.
    ring = stores.KEYRING
    stores.KEYRING = Keyring()
    store = await home.open()
    if store.keyring.file is not None:
        store._database.dialect.keyring = Keyring()  # type: ignore[attr-defined]
    before = await fill(store)
    assert len(plain_in(await raw(home, store))) == len(PLAIN)
    stores.KEYRING = ring
    store = await home.reopen()
    assert await contents(store) == before
    assert await store.reseal() >= 5
    assert await contents(store) == before
    if home.kind.name == "sqlite":
        await home.close()
    assert set(plain_in(await raw(home, store))) <= {"response"}


async def test_without_the_key_runs_fail_and_the_rest_is_readable(home: Home) -> None:
    if home.kind.name == "json":
        return
    store = await home.open()
    await store.join(a_node(), MINUTE)
    secret = due_schedule(target=TARGET)
    ordinary = due_schedule()
    run = a_run(definition=RunDefinition(target=TARGET, policy=Policy()))
    for schedule in (secret, ordinary):
        await store.add_schedule(schedule)
    await store.add_runs([run])
    key_id = store.keyring.keys()[0].id
    await home.close()
    stores.KEYRING = Keyring([new_key()])
    (home._directory / "secret.key").unlink(missing_ok=True)
    _known.clear()
    store = await home.open()
    found = await store.get_schedule(secret.id)
    assert found is not None
    assert key_id in found.last_error
    assert "sealed" not in found.last_error
    await store.claim(claim_request(free=5))
    unreadable = await store.get_run(run.id)
    assert unreadable is not None
    assert unreadable.reason == Reason.UNREADABLE
    assert key_id in unreadable.error
    fired = await store.fire_due(plan, limit=5)
    assert ordinary.id in {each.schedule_id for each in fired.others}
    with pytest.raises(SecretUnreadable, match=key_id):
        await store.reseal()


async def test_proposed_changes_are_not_written_in_plain_text(home: Home) -> None:
    store = await home.open()
    headers = {"Authorization": PLAIN["header"]}
    wanted = {
        "trigger": {"kind": "cron", "expression": "0 9 * * *"},
        "target": {"kind": "http", "url": "https://example.org/", "headers": headers},
    }
    async with serving(store) as web:
        proposal = await web.context.proposals.propose(
            Actor(), {"schedules": {"new": wanted}}, reason="because"
        )
        assert plain_in(await raw(home, store)) == []
        approved = await web.context.proposals.approve(Actor(), proposal.id)
        assert approved.status == "approved"
        made = await store.get_schedule(ScheduleId(approved.plan[0].id))
    assert made is not None
    assert PLAIN["header"] in str(made.target)
    assert plain_in(await raw(home, store)) == []
