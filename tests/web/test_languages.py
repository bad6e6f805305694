"""Errors of every API are in the language of the caller: by `X-Language`, then by
`Accept-Language`, then by the preference of the caller."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx2
import pytest

from chimes.errors import StoreUnavailable
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import NodeId
from chimes.model.run import AttemptEnd, RunStatus
from chimes.store.port import Checkpoint
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.eventnative.routes import eventnative_router
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.softnix.routes import softnix_router
from chimes.web.middleware import BODY_LIMIT
from tests.builders import NOW, a_delivery, a_run, a_schedule, an_attempt
from tests.web.rig import Rig, definition, serving

SCRIPTS = {"th": re.compile("[\u0e01-\u0e5b]"), "zh": re.compile("[\u4e00-\u9fff]")}
TAGS = {"th": "th-TH", "zh": "zh-CN"}
#: Members of a response that contain text.
TEXT_FIELDS = frozenset(
    {"title", "detail", "message", "hint", "error", "description", "solution", "error_details"}
)
JOB = {"name": "a", "schedule": {"kind": "every", "every": "1h"}, "http": {"url": "x"}}

ACTIONS = "/api/bkn-backend/v1/knowledge-networks/kn/action-schedules"

#: API, request and status; each error must be translated.
BAD: Mapping[str, tuple[str, str, Mapping[str, Any], int]] = {
    "native: a trigger": (
        "POST",
        "/api/v1/schedules",
        {"json": definition(trigger={"kind": "cron", "expression": "61 * * * *"})},
        422,
    ),
    "native: a type": ("POST", "/api/v1/schedules", {"json": definition(name=5)}, 422),
    "native: a field": ("POST", "/api/v1/schedules", {"json": definition(labelz=[])}, 422),
    "native: a number": (
        "POST",
        "/api/v1/schedules",
        {"json": definition(policy={"max_retries": -1})},
        422,
    ),
    "native: a choice": (
        "POST",
        "/api/v1/schedules",
        {"json": definition(policy={"overlap": "never"})},
        422,
    ),
    "native: nothing": ("POST", "/api/v1/schedules", {}, 422),
    "native: a query": ("GET", "/api/v1/runs?limit=many", {}, 422),
    "native: a cursor": ("GET", "/api/v1/runs?cursor=x", {}, 422),
    "native: an id": ("GET", "/api/v1/runs/nobody", {}, 404),
    "native: a method": ("PUT", "/api/v1/runs", {}, 405),
    "native: a path": ("GET", "/api/v1/nowhere", {}, 404),
    "native: no JSON": (
        "POST",
        "/api/v1/schedules",
        {"content": b"{", "headers": {"Content-Type": "application/json"}},
        400,
    ),
    "native: a media type": ("POST", "/api/v1/schedules", {"content": b"{}"}, 415),
    "native: a long body": (
        "POST",
        "/api/v1/schedules",
        {"content": b" " * (BODY_LIMIT + 1)},
        413,
    ),
    "native: a host": ("GET", "/api/v1/runs", {"headers": {"Host": "evil.example"}}, 421),
    "native: an origin": (
        "POST",
        "/api/v1/schedules",
        {"json": {}, "headers": {"Origin": "http://evil.example"}},
        403,
    ),
    "native: long headers": ("GET", "/api/v1/runs", {"headers": {"X-Long": "x" * 9000}}, 431),
    "native: words": ("POST", "/api/v1/explain", {"json": {}}, 422),
    "ksana: a job": ("POST", "/jobs", {"json": {}}, 400),
    "ksana: an address": ("POST", "/jobs", {"json": JOB}, 400),
    "ksana: a field": ("POST", "/jobs", {"json": JOB | {"htpp": {}}}, 400),
    "ksana: an id": ("GET", "/jobs/nobody", {}, 404),
    "ksana: a method": ("PUT", "/jobs", {}, 405),
    "softnix: a prompt": ("POST", "/schedules", {"json": {"run_at": "2030-02-01T00:00"}}, 400),
    "softnix: an expression": (
        "POST",
        "/schedules",
        {"json": {"schedule_type": "cron", "cron_expr": "61 * * * *", "task": "a"}},
        400,
    ),
    "softnix: an id": ("GET", "/schedules/nobody", {}, 404),
    "eventnative: a source": ("GET", "/tasks", {}, 400),
    "eventnative: a moment": ("GET", "/tasks?source=a&start=b&end=c", {}, 400),
    "eventnative: a task": ("GET", "/tasks/nobody", {}, 404),
    "kweaver: an action": ("POST", ACTIONS, {"json": {"name": "a"}}, 400),
    "kweaver: a media type": ("POST", ACTIONS, {"content": b"{}"}, 406),
    "kweaver: an id": ("GET", f"{ACTIONS}/nobody", {}, 404),
    "catbird: a method": ("POST", "/api/schedules", {"json": {}}, 405),
}


@pytest.fixture
async def all_apis() -> AsyncIterator[Rig]:
    routers = [ksana_router, softnix_router, eventnative_router, kweaver_router, catbird_router]
    async with serving(routers=routers) as rig:
        yield rig


def sentences(answer: object, name: str = "") -> Iterator[str]:
    """All user-facing texts of a response."""
    if isinstance(answer, dict):
        for key, each in answer.items():
            yield from sentences(each, key)
    elif isinstance(answer, list):
        for each in answer:
            yield from sentences(each, name)
    elif isinstance(answer, str) and answer and name in TEXT_FIELDS:
        yield answer


async def sent(rig: Rig, bad: str, headers: Mapping[str, str]) -> httpx2.Response:
    method, path, given, status = BAD[bad]
    own = dict(given.get("headers", {}))
    rest = {name: each for name, each in given.items() if name != "headers"}
    answer = await rig.client.request(method, path, headers={**own, **headers}, **rest)
    assert answer.status_code == status, answer.text
    return answer


def without_request_id(answer: httpx2.Response) -> dict[str, object]:
    return {name: each for name, each in answer.json().items() if name != "request_id"}


def check(answer: httpx2.Response, language: str) -> None:
    assert answer.headers["Content-Language"] == language
    assert {"X-Language", "Accept-Language"} <= set(re.split(", ?", answer.headers["Vary"]))
    said = list(sentences(answer.json()))
    assert said, answer.text
    if language in SCRIPTS:
        assert [each for each in said if not SCRIPTS[language].search(each)] == []
    else:
        assert not any(script.search(each) for each in said for script in SCRIPTS.values())


@pytest.mark.parametrize(
    "interface", ["native", "ksana", "softnix", "eventnative", "kweaver", "catbird"]
)
async def test_every_error_is_translated(all_apis: Rig, interface: str) -> None:
    for bad in (each for each in BAD if each.startswith(f"{interface}:")):
        for language, tag in TAGS.items():
            check(await sent(all_apis, bad, {"X-Language": tag}), language)
        english = await sent(all_apis, bad, {})
        check(english, "en")
        unknown = await sent(all_apis, bad, {"X-Language": "tlh", "Accept-Language": "fr, *;q=0"})
        assert without_request_id(unknown) == without_request_id(english)


FIRST_OF_EACH_API = [
    "native: a trigger",
    "ksana: an id",
    "softnix: an id",
    "eventnative: a task",
    "kweaver: an id",
    "catbird: a method",
]


@pytest.mark.parametrize(("language", "other"), [("th", "zh"), ("zh", "th")])
async def test_x_language_overrides_accept_language(
    all_apis: Rig, language: str, other: str
) -> None:
    accepted = {"Accept-Language": f"{TAGS[language]},{language};q=0.9,en;q=0.8"}
    for bad in FIRST_OF_EACH_API:
        check(await sent(all_apis, bad, accepted), language)
        check(await sent(all_apis, bad, accepted | {"X-Language": TAGS[other]}), other)
        check(await sent(all_apis, bad, accepted | {"X-Language": "en-US"}), "en")
        check(await sent(all_apis, bad, accepted | {"X-Language": "fr"}), language)
        check(await sent(all_apis, bad, {"X-Language": language.upper()}), language)


@pytest.mark.parametrize("language", TAGS)
async def test_preference_applies_without_headers(all_apis: Rig, language: str) -> None:
    await all_apis.context.preferences.change(Actor(), {"language": language})
    # The last case, an unknown method, is rejected before authentication.
    for bad in FIRST_OF_EACH_API[:-1]:
        check(await sent(all_apis, bad, {}), language)
        check(await sent(all_apis, bad, {"Accept-Language": "en"}), "en")
    check(await sent(all_apis, FIRST_OF_EACH_API[-1], {}), "en")


async def test_unreadable_preference_is_ignored(
    all_apis: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_checkpoint = all_apis.store.get_checkpoint

    async def down(name: str) -> Checkpoint | None:
        if name.startswith("me:"):
            raise StoreUnavailable()
        return await get_checkpoint(name)

    monkeypatch.setattr(all_apis.store, "get_checkpoint", down)
    for bad in ("native: no JSON", "ksana: an id", "softnix: an id", "eventnative: a task"):
        check(await sent(all_apis, bad, {}), "en")
        check(await sent(all_apis, bad, {"X-Language": "th"}), "th")


async def test_unauthenticated_caller_gets_the_language_of_its_headers(all_apis: Rig) -> None:
    await all_apis.key(Role.ADMIN)
    for path in ("/api/v1/runs", "/jobs", "/schedules", "/tasks", "/api/schedules"):
        answer = await all_apis.client.get(path, headers={"X-Language": "th"})
        assert answer.status_code == 401
        check(answer, "th")
        check(await all_apis.client.get(path), "en")


async def test_internal_error_is_translated(all_apis: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_unused: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(all_apis.store, "get_run", broken)
    answer = await all_apis.client.get("/api/v1/runs/a", headers={"X-Language": "zh"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    check(answer, "zh")


@pytest.mark.parametrize("language", TAGS)
async def test_described_responses_follow_x_language(all_apis: Rig, language: str) -> None:
    ours = {"X-Language": TAGS[language], "Accept-Language": "en"}
    made = await all_apis.client.post("/api/v1/schedules", json=definition(), headers=ours)
    assert (made.status_code, made.headers["Content-Language"]) == (201, language)
    assert SCRIPTS[language].search(made.json()["words"])
    explained = await all_apis.client.post(
        "/api/v1/explain", json={"expression": "0 9 * * *"}, headers=ours
    )
    assert SCRIPTS[language].search(explained.json()["words"])
    job = f"/jobs/{made.json()['id']}"
    paused = await all_apis.client.post(f"{job}/pause", headers=ours)
    assert SCRIPTS[language].search(paused.json()["message"])
    assert (await all_apis.client.post(f"{job}/resume")).json() == {
        "message": "Job resumed successfully"
    }


# --- stored errors ------------------------------------------------------------------------------
LOST_ERROR = _("the connection was lost before the answer was whole")
OWN_ERROR = "ValueError: the price of tea"


async def test_stored_errors_are_translated(all_apis: Rig) -> None:
    schedule = a_schedule(last_error=LOST_ERROR)
    run = a_run(
        schedule,
        status=RunStatus.FAILED,
        error=LOST_ERROR,
        reason="connect_failed",
        finished_at=NOW,
        holder=NodeId("node-1"),
        claimed_at=NOW,
        started_at=NOW,
    )
    attempts = (
        an_attempt(run, NOW, AttemptEnd.FAILED, LOST_ERROR),
        an_attempt(run, NOW, AttemptEnd.FAILED, OWN_ERROR),
    )
    run = replace(run, attempts=attempts, holder=None)
    await all_apis.store.load([schedule, run, a_delivery(run_id=run.id, error=LOST_ERROR)])
    for language in ("th", "zh", "en"):
        ours = {"X-Language": language}
        client = all_apis.client
        shown = (await client.get(f"/api/v1/runs/{run.id}", headers=ours)).json()
        listed = (await client.get("/api/v1/runs", headers=ours)).json()["items"][0]
        kept = (await client.get(f"/api/v1/schedules/{schedule.id}", headers=ours)).json()
        sendings = (await client.get("/api/v1/deliveries", headers=ours)).json()["items"]
        without_request_id = [
            shown["error"],
            listed["error"],
            kept["last_error"],
            sendings[0]["error"],
        ]
        without_request_id.append(shown["attempts"][0]["error"])
        without_request_id.append(
            (await client.get(f"/jobs/{schedule.id}", headers=ours)).json()["last_error"]
        )
        without_request_id.append((await client.get("/jobs", headers=ours)).json()[0]["last_error"])
        if language == "en":
            assert set(without_request_id) == {LOST_ERROR}
        else:
            assert [each for each in without_request_id if not SCRIPTS[language].search(each)] == []
        # Output of a task and codes are not translated.
        assert (shown["attempts"][1]["error"], shown["reason"]) == (OWN_ERROR, "connect_failed")
