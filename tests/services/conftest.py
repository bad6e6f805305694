from __future__ import annotations

import pytest

from chimes.model.access import Actor, Role
from chimes.model.target import Target
from chimes.services.access import AccessService
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunService
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB

ADMIN = Actor()
OPERATOR = Actor(role=Role.OPERATOR, owner=BOB)
MEMBER = Actor(role=Role.MEMBER, owner=ALICE)
VIEWER = Actor(role=Role.VIEWER, owner=ALICE)
STRANGER = Actor(role=Role.MEMBER, owner=BOB)


def any_target(target: Target) -> None:
    """Accepts every target; target rules have their own tests."""


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def schedules(store: MemoryStore) -> ScheduleService:
    return ScheduleService(store, ScheduleRules(store, check_target=any_target))


@pytest.fixture
def manual_runs(store: MemoryStore, schedules: ScheduleService) -> ManualRuns:
    return ManualRuns(store, schedules.rules)


@pytest.fixture
def runs(store: MemoryStore) -> RunService:
    return RunService(store)


@pytest.fixture
def access(store: MemoryStore, clock: SettableClock) -> AccessService:
    return AccessService(store, clock)
