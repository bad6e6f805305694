"""Keys with scopes, and keys of agents."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import InvalidInput, NotAllowed
from chimes.model import replace
from chimes.model.access import SCOPES_OF, Actor, Role, Scope
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.policy import Policy
from chimes.model.run import RunStatus
from chimes.model.target import AgentTarget, HttpTarget
from chimes.services.access import AccessService
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest, RunService
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.triggers import Every
from tests.builders import ALICE, a_run, a_schedule
from tests.services.conftest import ADMIN, MEMBER
from tests.tables import each_row

PROMPT = AgentTarget(prompt="do it")
CALL = HttpTarget(url="http://127.0.0.1:9/")
AGENT = replace(MEMBER, scopes=(Scope.AGENT,))
MAKER = replace(MEMBER, scopes=(Scope.OPERATE, Scope.WRITE, Scope.AGENT, Scope.AGENT_SCHEDULES))


@each_row(
    ("scopes", "write", "operate", "create"),
    [
        ((), True, True, True),
        ((Scope.READ,), False, False, False),
        ((Scope.OPERATE,), False, True, False),
        ((Scope.WRITE,), True, False, True),
        ((Scope.READ, Scope.OPERATE, Scope.WRITE), True, True, True),
        ((Scope.AGENT,), False, False, False),
        ((Scope.WRITE, Scope.AGENT), True, False, False),
        ((Scope.AGENT, Scope.AGENT_SCHEDULES), False, False, True),
    ],
)
@each_row("role", [Role.MEMBER, Role.ADMIN])
def test_scopes_restrict_a_role(
    role: Role, scopes: tuple[Scope, ...], write: bool, operate: bool, create: bool
) -> None:
    actor = Actor(role=role, owner=ALICE, scopes=scopes)
    assert actor.may_see(ALICE)
    assert actor.may_write(ALICE) is write
    assert actor.may_operate(ALICE) is operate
    assert actor.may_create(ALICE) is create
    assert actor.administers is (role is Role.ADMIN and not scopes)


def test_scopes_add_nothing_to_a_role() -> None:
    everything = tuple(Scope)
    viewer = Actor(role=Role.VIEWER, owner=ALICE, scopes=everything)
    operator = Actor(role=Role.OPERATOR, owner=ALICE, scopes=everything)
    assert not viewer.may_write(ALICE)
    assert not viewer.may_operate(ALICE)
    assert not viewer.may_create(ALICE)
    assert operator.may_operate(ALICE)
    assert not operator.may_write(ALICE)
    assert not operator.may_create(ALICE)


async def test_scopes_beyond_the_role_are_rejected(access: AccessService) -> None:
    for role in Role:
        for scope in Scope:
            wanted = {scope, Scope.AGENT} if scope is Scope.AGENT_SCHEDULES else {scope}
            if scope in SCOPES_OF[role]:
                made = await access.create(ADMIN, name="x", role=role, scopes=wanted)
                actor = await access.authenticate(made.text, interface="native")
                assert set(actor.scopes) == wanted
            else:
                with pytest.raises(InvalidInput, match=f"the role {role} does not include"):
                    await access.create(ADMIN, name="x", role=role, scopes=wanted)
    with pytest.raises(InvalidInput, match="requires agent"):
        await access.create(ADMIN, name="x", role=Role.MEMBER, scopes=[Scope.AGENT_SCHEDULES])


async def test_an_admin_with_scopes_creates_no_keys(access: AccessService) -> None:
    narrowed = replace(ADMIN, scopes=(Scope.READ, Scope.WRITE))
    with pytest.raises(NotAllowed):
        await access.create(narrowed, name="x", role=Role.VIEWER)
    with pytest.raises(NotAllowed):
        await access.keys(narrowed)


# Without the scope agent_schedules.
async def test_an_agent_creates_no_schedules(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    for target in (CALL, PROMPT):
        with pytest.raises(NotAllowed):
            await schedules.create(AGENT, a_schedule(owner=ALICE, target=target))
        with pytest.raises(NotAllowed):
            await manual_runs.start(AGENT, RunRequest(target=target, policy=Policy()))


# Otherwise agents could recurse.
async def test_an_agent_starts_no_agents(
    schedules: ScheduleService, manual_runs: ManualRuns, runs: RunService, store: MemoryStore
) -> None:
    made = await schedules.create(MAKER, a_schedule(owner=ALICE, target=CALL))
    await manual_runs.start(MAKER, RunRequest(target=CALL, policy=Policy()))
    prompt = await schedules.create(
        MEMBER, a_schedule(id=ScheduleId("p"), owner=ALICE, target=PROMPT)
    )
    ended = a_run(owner=ALICE, target=PROMPT, status=RunStatus.FAILED)
    await store.load([ended])
    for refused in (
        schedules.create(MAKER, a_schedule(owner=ALICE, target=PROMPT)),
        manual_runs.start(MAKER, RunRequest(target=PROMPT, policy=Policy())),
        schedules.change(MAKER, made.id, lambda s: replace(s, target=PROMPT)),
        schedules.change(MAKER, prompt.id, lambda s: replace(s, target=AgentTarget(prompt="x"))),
        manual_runs.run_now(MAKER, prompt.id),
        runs.retry(MAKER, ended.id),
    ):
        with pytest.raises(NotAllowed, match="prompts"):
            await refused
    await manual_runs.run_now(MAKER, made.id)


# Changes that would run a prompt, or run it more often, are denied.
async def test_an_agent_changes_no_prompt_schedules(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    prompt = await schedules.create(
        MEMBER, a_schedule(id=ScheduleId("p"), owner=ALICE, target=PROMPT)
    )
    often = Every(timedelta(minutes=1))
    await schedules.pause(MAKER, prompt.id)
    now = await store.now()
    for refused in (
        schedules.resume(MAKER, prompt.id),
        schedules.change(MAKER, prompt.id, lambda s: replace(s, enabled=True)),
        schedules.change(MAKER, prompt.id, lambda s: replace(s, trigger=often)),
        schedules.change(MAKER, prompt.id, lambda s: replace(s, name="other")),
        schedules.skip(MAKER, prompt.id),
        schedules.move(MAKER, prompt.id, now + timedelta(hours=1)),
        schedules.reschedule(MAKER, prompt.id, now),
        manual_runs.backfill(MAKER, prompt.id, now - timedelta(days=3), now),
    ):
        with pytest.raises(NotAllowed, match="prompts"):
            await refused
    assert not (await store.list_runs(RunQuery())).items
    await schedules.delete(MAKER, prompt.id)
