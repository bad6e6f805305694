"""How the engine passes named secrets to targets and masks what comes back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from chimes.engine.events import TargetRaised
from chimes.errors import SecretUnreadable, StoreUnavailable
from chimes.model.access import Actor, Role
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import AttemptEnd, Outcome, RunStatus
from chimes.model.sync import task_policy
from chimes.model.target import HttpTarget
from chimes.notifications.base import DeliveryAttempt, Refused, Result
from chimes.services.secrets import SecretService
from chimes.targets.base import Call
from tests.builders import ALICE
from tests.engine.rig import Faults, Rig, eventually
from tests.targets.sync_calls import PAIR, a_runner

VALUE = "the-5ecret-value"
TARGET = HttpTarget(url="http://h.example/", body="{{secret.TOKEN}}")
NO_RETRY = Policy(max_retries=0)


async def store_secret(rig: Rig, value: str = VALUE) -> None:
    await SecretService(rig.store).put(Actor(owner=ALICE, role=Role.MEMBER), "TOKEN", value)


async def test_what_a_target_leaves_behind_is_masked(rig: Rig) -> None:
    await store_secret(rig)

    async def echo(call: Call) -> Outcome:
        assert call.secrets == {"TOKEN": VALUE}
        call.log("info", f"logged {VALUE}")
        result = {"deep": [{VALUE: f"<{VALUE}>"}]}
        return Outcome(end=AttemptEnd.SUCCEEDED, result=result, error=f"odd {VALUE}")

    async def fail(call: Call) -> Outcome:
        raise ValueError(f"raised {VALUE}")

    rig.runner.script = [echo, fail]
    await rig.engine()
    first = await rig.due_now(target=TARGET, owner=ALICE, policy=NO_RETRY)
    (run,) = await rig.ended(first)
    assert run.status is RunStatus.SUCCEEDED
    assert run.result == {"deep": [{"***": "<***>"}]}
    lines = await rig.store.read_logs(run.id, limit=100)
    assert [line.message for line in lines] == ["logged ***"]
    second = await rig.due_now(target=TARGET, owner=ALICE, policy=NO_RETRY)
    (failed,) = await rig.ended(second)
    assert failed.error == "RuntimeError: ValueError: raised ***"
    (raised,) = rig.emitted(TargetRaised)
    assert VALUE not in f"{raised.error!r} {raised.error.__cause__!r}"


async def test_an_attempt_waits_for_the_store_and_fails_without_the_key(rig: Rig) -> None:
    await store_secret(rig)
    faults = Faults(rig.store)
    faults.failing["get_checkpoint"] = StoreUnavailable("away")
    await rig.engine(store=faults.store)
    schedule = await rig.due_now(target=TARGET, owner=ALICE, policy=NO_RETRY)
    await eventually(lambda: _count(faults), lambda count: count >= 2)
    assert rig.runner.calls == []
    del faults.failing["get_checkpoint"]
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.SUCCEEDED
    faults.failing["get_checkpoint"] = SecretUnreadable("no key")
    other = await rig.due_now(target=TARGET, owner=ALICE, policy=NO_RETRY)
    (failed,) = await rig.ended(other)
    assert "no key" in failed.error
    assert len(rig.runner.calls) == 1


async def _count(faults: Faults) -> int:
    return faults.count["get_checkpoint"]


async def test_the_environment_of_a_sync_command_has_the_secret(rig: Rig, tmp_path: Path) -> None:
    await store_secret(rig)
    config = {
        "command": ["sh", "-c", 'echo "got $TOKEN"; test "$TOKEN" = the-5ecret-value'],
        "env": {"TOKEN": "{{secret.TOKEN}}"},
    }
    runner = a_runner("command", config, tmp_path)
    await rig.engine(runners=[runner])
    policy = task_policy(PAIR, timeout=timedelta(seconds=60))
    schedule = await rig.due_now(target=PAIR, owner=ALICE, policy=policy)
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.SUCCEEDED, run.error
    lines = [line.message for line in await rig.store.read_logs(run.id, limit=100)]
    assert "got ***" in lines


class Hook:
    """A channel that repeats what it was given."""

    channel = Channel.WEBHOOK
    capacity = 1

    def __init__(self) -> None:
        self.attempts: list[DeliveryAttempt] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, attempt: DeliveryAttempt) -> Result:
        self.attempts.append(attempt)
        return Refused(error=f"no: {attempt.secrets['TOKEN']}", code="no")


async def test_a_channel_gets_the_secrets_of_its_recipient(rig: Rig) -> None:
    from chimes.model.listing import DeliveryQuery

    await store_secret(rig)
    hook = Hook()
    to = "http://h.example/?key={{secret.TOKEN}}"
    recipient = Recipient(channel=Channel.WEBHOOK, to=to)
    await rig.engine(senders=[hook])
    await rig.due_now(owner=ALICE, policy=Policy(delivery=(recipient,)))

    async def ended() -> list[str]:
        found = (await rig.store.list_deliveries(DeliveryQuery())).items
        return [each.error for each in found if each.code == "no"]

    assert await eventually(ended, len) == ["no: ***"]
    (attempt,) = hook.attempts
    assert attempt.recipient.to == to
    assert VALUE not in repr(attempt)
