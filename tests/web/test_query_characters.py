"""Special characters in queries are rejected or match nothing, in every API.

The tests use PostgreSQL, which does not accept NUL in texts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from chimes.testing import SettableClock
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.eventnative.routes import eventnative_router
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.softnix.routes import softnix_router
from tests.store_contract.stores import KINDS, Home
from tests.web.rig import Rig, serving

ROUTERS = (kweaver_router, ksana_router, eventnative_router, softnix_router, catbird_router)
SPECIAL_CHARACTERS = [
    quote(text) for text in ("\0", "a\0b", "\x85", "\u202e", "'\"\\%_", "\U0001f600")
]
SPECIAL_CHARACTERS += ["%ff%fe", "%ed%a0%80"]
KWEAVER = "/knowledge-networks/kn1/action-schedules"
QUERIES = [
    *(f"{KWEAVER}?{name}=" for name in ("name_pattern", "action_type_id", "branch", "status")),
    *(f"{KWEAVER}?{name}=" for name in ("sort", "direction", "limit", "offset")),
    f"/in/v1{KWEAVER}/due?branch=",
    "/schedules?owner_type=user&owner_id=",
    "/schedules?status=",
    "/api/v1/tasks?start=2030-01-01T00:00:00Z&end=2030-01-02T00:00:00Z&source=s&collection=",
    "/api/v1/tasks?start=2030-01-01T00:00:00Z&end=2030-01-02T00:00:00Z&source=",
    "/jobs?x=",
    "/api/schedules?x=",
    *(f"/api/v1/schedules?{name}=" for name in ("name", "q", "label", "kind", "cursor")),
    *(f"/api/v1/schedules?{name}=" for name in ("namespace", "owner")),
    *(f"/api/v1/runs?{name}=" for name in ("schedule_id", "parent_id", "namespace", "since")),
    "/api/v1/audit?object_id=",
]


@pytest.fixture
async def on_postgresql(tmp_path: Path) -> AsyncIterator[Rig]:
    (kind,) = (each for each in KINDS if each.name == "postgresql")
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    try:
        async with serving(await home.open(), clock, routers=ROUTERS) as rig:
            yield rig
    finally:
        await home.close()


async def test_special_characters_cause_no_server_error(on_postgresql: Rig) -> None:
    answers = {}
    for path in QUERIES:
        for odd in SPECIAL_CHARACTERS:
            answer = await on_postgresql.client.get(f"{path}{odd}")
            answers[f"{path}{odd}"] = answer.status_code
    assert {path: status for path, status in answers.items() if status >= 500} == {}
    # Most paths are existing routes.
    assert sum(status != 404 for status in answers.values()) > len(answers) * 0.8


@pytest.mark.parametrize(
    "path",
    [
        f"{KWEAVER}?name_pattern=",
        f"{KWEAVER}?action_type_id=",
        "/schedules?owner_type=user&owner_id=",
    ],
)
async def test_nul_is_rejected_in_the_format_of_the_api(on_postgresql: Rig, path: str) -> None:
    answer = await on_postgresql.client.get(f"{path}a%00", headers={"X-Language": "zh"})
    assert answer.status_code == 400
    assert answer.headers["content-language"] == "zh"
    if path.startswith(KWEAVER):
        code = answer.json()["error_code"]
        assert code == "BknBackend.ActionSchedule.InvalidParameter"
