"""The whole server over ASGI; every response is checked against the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

import httpx2
from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter
from starlette.routing import BaseRoute
from typing_extensions import TypeAliasType

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor, Owner, Role
from chimes.model.policy import RunDefaults
from chimes.model.sync import Sources, task_policy
from chimes.model.target import Target
from chimes.model.validation import check_target
from chimes.services.access import AccessService
from chimes.services.runs import RunService
from chimes.services.schedules.rules import Limits, ScheduleRules, connection_capabilities
from chimes.services.schedules.service import ScheduleService
from chimes.services.single_sign_on import uses_external_sign_in
from chimes.services.system import SourceRegistry
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.web.api import responses as outputs
from chimes.web.openapi import describe_api
from chimes.web.requests import WebContext
from chimes.web.server import NATIVE_ROUTERS, build_app

HOST = "http://localhost:7100"
#: Statuses that the middleware returns, so no route documents them.
BEFORE_ROUTING = {400, 403, 405, 408, 421, 431}

CRON = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}
HTTP = {"kind": "http", "url": "http://127.0.0.1:9/hook", "method": "POST"}


def definition(**given: Any) -> dict[str, Any]:
    """A valid request body of a schedule."""
    return {"name": "report", "trigger": CRON, "target": HTTP} | given


def check(target: Target) -> None:
    try:
        check_target(target)
    except InvalidInput as error:
        raise error.within("target") from None


@dataclass(kw_only=True)
class Rig:
    clock: SettableClock
    store: Store
    context: WebContext
    app: FastAPI
    client: httpx2.AsyncClient

    async def create(self, **given: Any) -> dict[str, Any]:
        answer = await self.client.post("/api/v1/schedules", json=definition(**given))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def key(self, role: Role, owner: Owner = SYSTEM_OWNER) -> dict[str, str]:
        """Creates a key and returns its headers."""
        made = await self.context.access.create(Actor(), name="test", role=role, owner=owner)
        return {"Authorization": f"Bearer {made.text}"}

    async def snapshot(self) -> list[object]:
        """Contents of the store without the audit log and `last_used_at` of keys."""
        found: list[object] = []
        async for item in self.store.dump():
            if hasattr(item, "last_used_at"):
                found.append(replace(item, last_used_at=None))
            elif not hasattr(item, "verb"):
                found.append(item)
        return found


def capabilities_of(sources: Sources) -> dict[str, RunDefaults]:
    """The capabilities of a node for the sources of its file."""
    return {
        target.key: RunDefaults(
            policy=task_policy(target, timeout=collection.timeout), priority=collection.priority
        )
        for target, collection in sources.pairs()
    }


@asynccontextmanager
async def serving(
    store: Store | None = None,
    clock: SettableClock | None = None,
    *,
    settings: Settings | None = None,
    limits: Callable[[], Limits] = Limits,
    compat: Sequence[APIRouter] = (),
    routers: Sequence[Callable[[WebContext], APIRouter]] = (),
    sources: Sources | None = None,
    fixed_keys: Sequence[str] = (),
    not_ready: Callable[[], str] = lambda: "",
    documented: bool = True,
    origins: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Rig]:
    clock = clock or SettableClock()
    store = store or MemoryStore(clock)
    settings = settings or Settings()
    known = SourceRegistry(sources)
    connections = connection_capabilities(settings)
    context = WebContext(
        schedules=ScheduleService(
            store,
            ScheduleRules(
                store,
                check_target=check,
                limits=limits,
                capabilities=lambda: capabilities_of(known.now) | connections,
                connections=settings.connections,
            ),
        ),
        runs=RunService(store),
        access=AccessService(
            store,
            clock,
            fixed=fixed_keys,
            closed=uses_external_sign_in(settings),
        ),
        store=store,
        settings=settings,
        clock=clock,
        metrics=CollectorRegistry(),
        version="1.2.3",
        port=7100,
        not_ready=not_ready,
        sources=known,
        origins=origins,
    )
    app = build_app(context, compat=[*compat, *(router(context) for router in routers)])
    share_native_routes(app)
    hooks = [Documented(app)] if documented else []
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app),
        base_url=HOST,
        event_hooks={"response": hooks},
    ) as client:
        yield Rig(clock=clock, store=store, context=context, app=app, client=client)


#: Prepared routes by router, shared between apps.
_PREPARED: dict[int, BaseRoute] = {}


def share_native_routes(app: FastAPI) -> None:
    """FastAPI prepares the routes of a router for each app, which takes longer than most tests. The
    native routes do not depend on their app, so all apps share one preparation."""
    native = {id(router) for router in NATIVE_ROUTERS}
    routes = app.router.routes
    for place, route in enumerate(routes):
        router = id(getattr(route, "original_router", None))
        if router in native:
            routes[place] = _PREPARED.setdefault(router, route)


@cache
def _model(name: str) -> TypeAdapter[Any]:
    """Response model, or union of response models, by its name."""
    union = getattr(outputs, f"{name}Out", None)
    if isinstance(union, TypeAliasType):
        return TypeAdapter(union)
    waiting = [outputs.Out]
    while waiting:
        found = waiting.pop()
        if found.__name__ in (name, f"{name}Out"):
            return TypeAdapter(found)
        waiting.extend(found.__subclasses__())
    raise AssertionError(f"{name} is not a response model of the API")


class Documented:
    """Response hook that rejects responses which differ from the OpenAPI document."""

    #: Shared: the native routes are the same in every test, and describing them is slow.
    _document: ClassVar[dict[str, Any]] = {}

    def __init__(self, app: FastAPI) -> None:
        if not Documented._document:
            Documented._document = describe_api(app)

    async def __call__(self, answer: httpx2.Response) -> None:
        await answer.aread()
        operation = self._operation(answer.request)
        if operation is None or answer.status_code in (304, 500):
            return
        if answer.status_code >= 400:
            problem = outputs.ProblemOut.model_validate(answer.json())
            assert problem.status == answer.status_code
            assert answer.headers["content-type"] == "application/problem+json"
        promised = operation["responses"].get(str(answer.status_code))
        if promised is None:
            assert answer.status_code in BEFORE_ROUTING, f"{answer.status_code} is undocumented"
            return
        if "$ref" in promised:
            responses = self._document["components"]["responses"]
            promised = responses[promised["$ref"].rpartition("/")[2]]
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if "content" in promised:
            schema = promised["content"][kind].get("schema", {})
            if "$ref" in schema:
                _model(schema["$ref"].rpartition("/")[2]).validate_python(answer.json())

    def _operation(self, request: httpx2.Request) -> dict[str, Any] | None:
        for template, operations in self._document["paths"].items():
            pattern = re.sub(r"\{[^}]+\}", "[^/]+", template)
            if template.startswith("/api/v1/") and re.fullmatch(pattern, request.url.path):
                found: dict[str, Any] | None = operations.get(request.method.lower())
                if found is not None:
                    return found
        return None
