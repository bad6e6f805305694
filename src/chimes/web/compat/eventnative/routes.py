"""Routes and error format of the EventNative task API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from fastapi import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from chimes.errors import NotAllowed, NotFound, StoreBusy
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.listing import RunQuery
from chimes.model.policy import PRIORITY
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.sync import (
    SYNC_NAMESPACE,
    is_task,
    parse_task_id,
    sync_target,
    task_id,
    task_name,
    task_policy,
)
from chimes.model.target import SyncTarget
from chimes.model.validation import PRIORITY_LIMIT
from chimes.services.runs import RunRequest, RunService
from chimes.web.compat.base import CompatRouter, query_parameter
from chimes.web.compat.eventnative.translate import (
    ACCEPTS,
    PREFIXES,
    TIME_LAYOUT,
    Json,
    Listing,
    listing_from,
    log_out,
    number_from,
    pair_from,
    period_from,
    task_out,
    within,
)
from chimes.web.problems import Problem
from chimes.web.requests import (
    RequestRejected,
    WebContext,
    authenticate,
    negotiated_language,
    set_language,
)

INTERFACE = "eventnative"
NO_MATCH = _("Admin token does not match")
_LOG_PAGE = 1000
Handler = Callable[..., Awaitable[Response]]


def eventnative_router(context: WebContext) -> CompatRouter:
    """The same routes at `/tasks` and `/api/v1/tasks`."""
    router = CompatRouter(
        interface=INTERFACE, prefixes=PREFIXES, render=render, error_fields=("message", "error")
    )
    tasks = _Tasks(context)
    routes: Sequence[tuple[str, str, Handler, Sequence[Json]]] = (
        ("", "POST", tasks.create, _PARAMETERS["create"]),
        ("", "GET", tasks.all, _PARAMETERS["all"]),
        ("/{task_id}", "GET", tasks.one, ()),
        ("/{task_id}/logs", "GET", tasks.logs, _PARAMETERS["logs"]),
        ("/{task_id}/cancel", "POST", tasks.cancel, ()),
    )
    first, *aliases = PREFIXES
    for path, method, handler, parameters in routes:
        router.add_api_route(
            f"{first}{path}",
            handler,
            methods=[method],
            response_model=None,
            status_code=201 if handler == tasks.create else 200,
            openapi_extra={"parameters": list(parameters)} if parameters else None,
        )
        others = [f"{each}{path}" for each in aliases]
        others += [f"{each}/" for each in PREFIXES if not path]
        for other in others:
            router.add_api_route(
                other, handler, methods=[method], response_model=None, include_in_schema=False
            )
    return router


class _Tasks:
    def __init__(self, context: WebContext) -> None:
        self._schedules = context.schedules
        self._manual_runs = context.manual_runs
        self._runs = context.runs
        self._sources = context.sources
        self._grace = context.settings.misfire_grace

    async def create(self, request: Request) -> Response:
        """Synchronise a collection: 201 with a new task, or 200 with the task that is already
        scheduled or running."""
        actor = await _admin(request)
        target = pair_from(request.query_params)
        priority = number_from(request.query_params, "priority", maximum=PRIORITY_LIMIT)
        run_request = RunRequest(
            target=target,
            policy=task_policy(target, misfire_grace=self._grace),
            name=task_name(target),
            namespace=SYNC_NAMESPACE,
            priority=priority,
            explicit_fields=frozenset({PRIORITY} if priority else ()),
        )
        try:
            run, created = await self._manual_runs.start_or_get(actor, run_request)
        except StoreBusy:
            raise _sync_is_starting(target) from None
        return JSONResponse({"task_id": task_id(run)}, status_code=201 if created else 200)

    async def all(self, request: Request) -> Response:
        """List the tasks of a source created within a period, oldest first."""
        actor = await _admin(request)
        listing = listing_from(request.query_params)
        pages = _pages(self._runs, actor, listing.query)
        first = await anext(pages)
        if not first:
            await self._check_known(actor, listing)
        return StreamingResponse(
            _stream_tasks(listing, _prepend(first, pages), self._drivers),
            media_type="application/json",
        )

    async def one(self, request: Request, task_id: str) -> Response:
        """Get a task."""
        run = await self._task(await _admin(request), task_id)
        return JSONResponse(task_out(run, self._drivers))

    async def logs(self, request: Request, task_id: str) -> Response:
        """Get the log of a task, optionally of a period."""
        actor = await _admin(request)
        start, end = period_from(request.query_params)
        run = await self._task(actor, task_id)
        found: list[LogEntry] = []
        after = 0
        while page := await self._runs.list_logs(actor, run.id, after=after, limit=_LOG_PAGE):
            after = page[-1].number
            found.extend(entry for entry in page if within(entry, start, end))
            if len(page) < _LOG_PAGE:
                break
        lang = await negotiated_language(request)
        logs = [log_out(task_id, entry) for entry in found]
        return set_language(JSONResponse({"logs": logs}), lang)

    async def cancel(self, request: Request, task_id: str) -> Response:
        """Cancel a task. A scheduled task ends at once, a running one is requested to stop; a task
        that has ended is 409, unless it was canceled."""
        actor = await _admin(request)
        run = await self._task(actor, task_id)
        if run.status is not RunStatus.CANCELED:
            await self._runs.cancel(actor, run.id)
        return JSONResponse({"status": "ok"})

    async def _task(self, actor: Actor, given: str) -> Run:
        parts = parse_task_id(given)
        if parts is None:
            raise _unknown(given)
        try:
            run = await self._runs.get(actor, parts[1])
        except NotFound:
            raise _unknown(given) from None
        if not is_task(run) or task_id(run) != given:
            raise _unknown(given)
        return run

    async def _check_known(self, actor: Actor, listing: Listing) -> None:
        """An unknown source or collection is an error unless it has tasks: the history stays when
        it is removed from the configuration."""
        ever = replace(listing.query, statuses=(), created_since=None, created_until=None, limit=1)
        if (await self._runs.find(actor, ever)).items:
            return
        if listing.collection is not None:
            await self._schedules.rules.get_run_defaults(
                SyncTarget(source=listing.source, collection=listing.collection)
            )
        else:
            await self._schedules.rules.check_source(listing.source)

    @property
    def _drivers(self) -> Mapping[str, str]:
        return {source.id: source.driver for source in self._sources.now.by_id.values()}


async def _pages(runs: RunService, actor: Actor, query: RunQuery) -> AsyncIterator[Sequence[Run]]:
    while True:
        page = await runs.find(actor, query)
        yield page.items
        if page.next is None:
            return
        query = replace(query, after=page.next)


async def _prepend(
    first: Sequence[Run], rest: AsyncIterator[Sequence[Run]]
) -> AsyncIterator[Sequence[Run]]:
    yield first
    async for page in rest:
        yield page


async def _stream_tasks(
    listing: Listing, pages: AsyncIterator[Sequence[Run]], drivers: Mapping[str, str]
) -> AsyncIterator[str]:
    """Streams page by page: the history may not fit into memory."""
    counts: Counter[str] = Counter()
    separator = ""
    yield '{"tasks":['
    async for page in pages:
        rows: list[str] = []
        for run in page:
            collection = sync_target(run).collection
            if listing.limit is None or counts[collection] < listing.limit:
                counts[collection] += 1
                rows.append(json.dumps(task_out(run, drivers), ensure_ascii=False))
        if rows:
            yield separator + ",".join(rows)
            separator = ","
        if listing.limit is not None and counts[listing.collection or ""] >= listing.limit:
            break
    yield "]}"


def render(request: Request, problem: Problem) -> Response:
    """`{message, error}`. Invalid input is 400."""
    if problem.status == 401:
        content = {"message": problem.translate(NO_MATCH)}
        return JSONResponse(content, 401, headers=dict(problem.headers))
    status = 400 if problem.status == 422 else problem.status
    message, error = problem.detail, problem.title
    if problem.errors:
        message, error = problem.errors[0].detail, problem.errors[0].hint
    return JSONResponse(
        {"message": message, "error": "" if error == message else error},
        status_code=status,
        headers=dict(problem.headers),
    )


async def _admin(request: Request) -> Actor:
    """Authenticates an admin."""
    actor = await authenticate(request, interface=INTERFACE, accepts=ACCEPTS)
    if actor.role is not Role.ADMIN:
        raise NotAllowed(_("Only an admin may call this"))
    return actor


def _unknown(task: str) -> NotFound:
    return NotFound(_("Task with id [{task}] does not exist", task=task[:300]))


def _sync_is_starting(target: SyncTarget) -> RequestRejected:
    return RequestRejected(
        409,
        "starting",
        _(
            "source: [{source}] collection: [{collection}] is starting to sync",
            source=target.source,
            collection=target.collection,
        ),
    )


_PARAMETERS: Mapping[str, Sequence[Json]] = {
    "create": (
        query_parameter("source", "Id of the source.", required=True),
        query_parameter("collection", "Name of the collection.", required=True),
        query_parameter("priority", "Priority of the task; default 300."),
    ),
    "all": (
        query_parameter("source", "Id of the source.", required=True),
        query_parameter(
            "start", f"Created at or after this time, as {TIME_LAYOUT}.", required=True
        ),
        query_parameter("end", f"Created at or before this time, as {TIME_LAYOUT}.", required=True),
        query_parameter("collection", "Name of the collection; default: all of the source."),
        query_parameter("status", "SCHEDULED, RUNNING, FAILED, SUCCESS or CANCELED."),
        query_parameter("limit", "Maximum of tasks per collection; 0 for no limit."),
    ),
    "logs": (
        query_parameter("start", f"Written at or after this time, as {TIME_LAYOUT}."),
        query_parameter("end", f"Written at or before this time, as {TIME_LAYOUT}."),
    ),
}
