"""Runs by owner, API keys, rate limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
)
from chimes.model.access import Role
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.run import Origin, RunStatus
from chimes.services.access import AccessService, RateLimiter
from chimes.services.runs import RunService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, NOW, a_run
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, STRANGER, VIEWER


class TestRuns:
    async def test_runs_of_other_owners_are_not_found(
        self, runs: RunService, store: MemoryStore
    ) -> None:
        (run,) = await store.add_runs([a_run(owner=ALICE)])
        for actor in (ADMIN, OPERATOR, MEMBER, VIEWER):
            assert await runs.get(actor, run.id) == run
            assert (await runs.find(actor, RunQuery())).items == (run,)
        assert (await runs.find(STRANGER, RunQuery())).items == ()
        for hidden in (
            runs.get(STRANGER, run.id),
            runs.list_logs(STRANGER, run.id),
            runs.cancel(STRANGER, run.id),
            runs.retry(STRANGER, run.id),
            runs.get(ADMIN, RunId("nobody")),
        ):
            with pytest.raises(NotFound):
                await hidden
        with pytest.raises(NotAllowed):
            await runs.cancel(VIEWER, run.id)

    async def test_cancel_ends_a_queued_run_once(
        self, runs: RunService, store: MemoryStore
    ) -> None:
        (run,) = await store.add_runs([a_run()])
        with pytest.raises(Conflict, match="not ended"):
            await runs.retry(ADMIN, run.id)
        assert (await runs.cancel(ADMIN, run.id)).status is RunStatus.CANCELED
        with pytest.raises(Conflict, match="ended already"):
            await runs.cancel(ADMIN, run.id)

    async def test_cancel_of_a_run_deleted_meanwhile_is_not_found(
        self, runs: RunService, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (run,) = await store.add_runs([a_run()])

        async def pruned(*_: object) -> None:
            return None

        monkeypatch.setattr(store, "cancel_run", pruned)
        with pytest.raises(NotFound):
            await runs.cancel(ADMIN, run.id)

    async def test_retry_creates_a_new_audited_run(
        self, runs: RunService, store: MemoryStore
    ) -> None:
        (run,) = await store.add_runs([a_run()])
        await runs.cancel(ADMIN, run.id)
        again, _ = await runs.retry(ADMIN, run.id)
        assert (again.retry_of, again.origin) == (run.id, Origin.MANUAL)
        assert again.id != run.id
        assert await runs.list_logs(ADMIN, again.id) == ()
        verbs = [entry.verb for entry in await store.list_audit(AuditQuery())]
        assert verbs == ["retry", "cancel"]


class TestKeys:
    async def test_a_key_is_valid_until_revoked(
        self, access: AccessService, clock: SettableClock
    ) -> None:
        assert not await access.auth_enabled()
        made = await access.create(ADMIN, name="ci", role=Role.MEMBER, owner=ALICE)
        assert await access.auth_enabled()
        assert made.text.startswith(f"chm_{made.key.id}_")
        assert made.text.split("_", 2)[2] not in repr(made.key)
        actor = await access.authenticate(made.text, interface="native", address="127.0.0.1")
        assert (actor.owner, actor.role, actor.name) == (ALICE, Role.MEMBER, f"key:{made.key.id}")
        await access.revoke(ADMIN, made.key.id)
        with pytest.raises(NotAuthenticated):
            await access.authenticate(made.text, interface="native")
        assert (await access.keys(ADMIN))[0].revoked_at == NOW

    async def test_every_invalid_key_has_the_same_error(self, access: AccessService) -> None:
        made = await access.create(ADMIN, name="ci", role=Role.ADMIN)
        wrong = made.text[:-1] + ("A" if made.text[-1] != "A" else "B")
        unknown = "chm_aaaaaaaaaaaa_" + made.text.split("_", 2)[2]
        messages = set()
        for presented in ("", "nonsense", "chm_x", wrong, unknown, "chm__", "\ud800"):
            with pytest.raises(NotAuthenticated) as refused:
                await access.authenticate(presented, interface="native")
            messages.add(refused.value.message)
        assert len(messages) == 1

    async def test_an_expired_key_is_refused(
        self, access: AccessService, clock: SettableClock
    ) -> None:
        hour = timedelta(hours=1)
        made = await access.create(ADMIN, name="ci", role=Role.ADMIN, expires_at=NOW + hour)
        await access.authenticate(made.text, interface="native")
        clock.advance(hour)
        with pytest.raises(NotAuthenticated):
            await access.authenticate(made.text, interface="native")
        with pytest.raises(InvalidInput):
            await access.create(ADMIN, name="late", role=Role.ADMIN, expires_at=NOW)

    async def test_last_use_is_stored_once_a_minute(
        self, access: AccessService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await access.create(ADMIN, name="ci", role=Role.ADMIN)
        for seconds in (0, 1, 30):
            clock.advance(seconds)
            await access.authenticate(made.text, interface="native")
        key = await store.get_key(made.key.id)
        assert key is not None
        assert key.last_used_at == NOW
        clock.advance(61)
        await access.authenticate(made.text, interface="native")
        key = await store.get_key(made.key.id)
        assert key is not None
        assert key.last_used_at == clock.now()

    async def test_only_admins_manage_keys(self, access: AccessService) -> None:
        made = await access.create(ADMIN, name="ci", role=Role.MEMBER)
        for actor in (OPERATOR, MEMBER, VIEWER):
            for refused in (
                access.create(actor, name="x", role=Role.VIEWER),
                access.keys(actor),
                access.revoke(actor, made.key.id),
            ):
                with pytest.raises(NotAllowed):
                    await refused

    async def test_configured_keys_are_admins(
        self, store: MemoryStore, clock: SettableClock
    ) -> None:
        access = AccessService(store, clock, fixed=["s3cret"])
        assert await access.auth_enabled()
        assert (await access.authenticate("s3cret", interface="ksana")).role is Role.ADMIN
        with pytest.raises(NotAuthenticated):
            await access.authenticate("s3cre", interface="ksana")

    async def test_a_key_of_another_process_enables_authentication(
        self, access: AccessService, store: MemoryStore, clock: SettableClock
    ) -> None:
        assert not await access.auth_enabled()
        await AccessService(store, clock).create(ADMIN, name="ci", role=Role.ADMIN)
        assert not await access.auth_enabled()
        clock.advance(6)
        assert await access.auth_enabled()

    async def test_an_expired_key_does_not_reenable_open_mode(
        self, access: AccessService, store: MemoryStore, clock: SettableClock
    ) -> None:
        hour = timedelta(hours=1)
        made = await access.create(ADMIN, name="x", role=Role.ADMIN, expires_at=NOW + hour)
        clock.advance(hour)
        assert await AccessService(store, clock).auth_enabled()
        await access.revoke(ADMIN, made.key.id)
        assert not await AccessService(store, clock).auth_enabled()


class TestRateLimit:
    def test_limiter_allows_a_burst_then_the_rate(self, clock: SettableClock) -> None:
        limiter = RateLimiter(clock, rate=2, burst=3)
        assert [limiter.take("a").remaining for _ in range(3)] == [2, 1, 0]
        with pytest.raises(RateLimited) as refused:
            limiter.take("a")
        assert refused.value.retry_after == timedelta(seconds=0.5)
        assert limiter.take("b").remaining == 2
        clock.advance(0.5)
        assert limiter.take("a").remaining == 0

    def test_check_takes_no_token(self, clock: SettableClock) -> None:
        limiter = RateLimiter(clock, rate=1, burst=1)
        limiter.check("a")
        limiter.take("a")
        with pytest.raises(RateLimited):
            limiter.check("a")

    def test_idle_callers_are_evicted(self, clock: SettableClock) -> None:
        limiter = RateLimiter(clock, rate=1, burst=1)
        for number in range(10_001):
            limiter.take(str(number))
        limiter.check("0")
        with pytest.raises(RateLimited):
            limiter.check("10000")
