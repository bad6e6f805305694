"""Routes and error format of the Ksana API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.i18n import ENGLISH, _, in_language
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId, uuid7
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.web.compat.base import CompatRouter, Schema, object_schema, request_body
from chimes.web.compat.ksana.translate import (
    READ_ONLY,
    Job,
    JobDefaults,
    edited_by_job,
    job_from_schedule,
    schedule_from_job,
)
from chimes.web.problems import Problem
from chimes.web.requests import (
    WebContext,
    authenticate,
    invalid_json,
    language_of_headers,
    negotiated_language,
    read_json,
    set_language,
)

INTERFACE = "ksana"
Handler = Callable[..., Awaitable[Response]]
_ACCEPTS = ("ApiKey", "X-API-Key", "Bearer")
#: Codes of URLs that are valid and yet refused: the reason is more helpful than Ksana's text.
_VALID_URLS = ("egress_denied", "unknown_secret")
_TITLES = {
    400: _("Validation failed"),
    401: _("Unauthorized"),
    403: _("Forbidden"),
    404: _("Job not found"),
    405: _("Method not allowed"),
    409: _("Conflict"),
    413: _("Request body too large"),
    415: _("Unsupported media type"),
    429: _("Too many requests"),
    503: _("Service unavailable"),
}


def ksana_router(context: WebContext) -> CompatRouter:
    """All routes under /jobs; /health is a route of the server."""
    router = CompatRouter(
        interface=INTERFACE, prefixes=["/jobs"], render=render, error_fields=("error", "message")
    )
    jobs = _Jobs(context)
    routes: Sequence[tuple[str, str, Handler, int]] = (
        ("/jobs", "POST", jobs.create, 201),
        ("/jobs", "GET", jobs.all, 200),
        ("/jobs/{job_id}", "GET", jobs.one, 200),
        ("/jobs/{job_id}", "PATCH", jobs.patch, 200),
        ("/jobs/{job_id}", "DELETE", jobs.delete, 204),
        ("/jobs/{job_id}/run-now", "POST", jobs.run_now, 200),
        ("/jobs/{job_id}/pause", "POST", jobs.pause, 200),
        ("/jobs/{job_id}/resume", "POST", jobs.resume, 200),
    )
    for path, method, handler, status in routes:
        schema = _BODIES.get(handler.__name__)
        router.add_api_route(
            path,
            handler,
            methods=[method],
            response_model=None,
            status_code=status,
            openapi_extra=schema and {"requestBody": request_body(schema)},
        )
    return router


_TEXT: Schema = {"type": ["string", "null"]}
_JOB: dict[str, Schema] = {
    "name": {"type": "string", "minLength": 1},
    "enabled": {"type": ["boolean", "null"]},
    "type": {"type": ["string", "null"], "description": "`http`."},
    "http": object_schema(
        {
            "method": {"type": ["string", "null"], "description": "GET or POST."},
            "url": _TEXT,
            "headers": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
            "body": _TEXT,
        }
    ),
    "schedule": object_schema(
        {
            "kind": {"type": "string", "description": "`once` or `every`."},
            "run_at": {"type": ["string", "null"], "description": "Time of a `once`."},
            "every": {"type": ["string", "null"], "description": "A duration such as 1h30m."},
            "start_at": _TEXT,
            "jitter": _TEXT,
        }
    ),
    "timeout": {"type": ["string", "null"], "description": "A duration such as 10s."},
    "max_retries": {"type": ["integer", "null"], "minimum": 0},
    "retry_backoff": _TEXT,
    **{name: {"description": "Ignored."} for name in READ_ONLY},
}
_BODIES: dict[str, Schema] = {
    "create": object_schema(_JOB | {"id": _TEXT}, ("name", "http", "schedule"))
    | {
        "examples": [
            {
                "name": "report",
                "http": {"url": "https://example.com/report"},
                "schedule": {"kind": "every", "every": "1h"},
            }
        ]
    },
    # A target of another kind can be sent back unchanged.
    "patch": object_schema(_JOB | {"id": _TEXT}, open=True),
}


class _Jobs:
    def __init__(self, context: WebContext) -> None:
        settings = context.settings
        self._schedules = context.schedules
        self._manual_runs = context.manual_runs
        self._store = context.store
        self._defaults = JobDefaults(
            timeout=settings.default_timeout,
            max_retries=settings.max_retries,
            retry_backoff=settings.retry_backoff,
        )

    async def create(self, request: Request) -> Response:
        actor = await _actor(request)
        data = await _body(request)
        now = await self._store.now()
        new_id = uuid7(now).replace("-", "")
        draft = schedule_from_job(data, actor, self._defaults, new_id=new_id, now=now)
        return await self._job_response(
            request, actor, await self._schedules.create(actor, draft), 201
        )

    async def all(self, request: Request) -> Response:
        actor = await _actor(request)
        page = await self._schedules.find(actor, ScheduleQuery(limit=None))
        now = await self._store.now()
        lang = await _language(request, page.items)
        jobs = [job_from_schedule(schedule, actor, now, lang) for schedule in page.items]
        return set_language(JSONResponse(jobs), lang)

    async def one(self, request: Request, job_id: str) -> Response:
        actor = await _actor(request)
        return await self._job_response(
            request, actor, await self._schedules.get(actor, _id(job_id))
        )

    async def patch(self, request: Request, job_id: str) -> Response:
        actor = await _actor(request)
        data = await _body(request)
        now = await self._store.now()
        changed = await self._schedules.change(
            actor, _id(job_id), lambda schedule: edited_by_job(schedule, data, now)
        )
        return await self._job_response(request, actor, changed)

    async def delete(self, request: Request, job_id: str) -> Response:
        await self._schedules.delete(await _actor(request), _id(job_id))
        return Response(status_code=204)

    async def run_now(self, request: Request, job_id: str) -> Response:
        """Run a job at once, even if a run of it is active."""
        run = await self._manual_runs.run_now(
            await _actor(request), _id(job_id), beside_others=True
        )
        headers: dict[str, str] = {"X-Ksana-Run-Id": run.id}
        return await _message(request, _("Job triggered successfully"), headers)

    async def pause(self, request: Request, job_id: str) -> Response:
        await self._schedules.pause(await _actor(request), _id(job_id))
        return await _message(request, _("Job paused successfully"))

    async def resume(self, request: Request, job_id: str) -> Response:
        await self._schedules.resume(await _actor(request), _id(job_id))
        return await _message(request, _("Job resumed successfully"))

    async def _job_response(
        self, request: Request, actor: Actor, schedule: Schedule, status: int = 200
    ) -> Response:
        lang = await _language(request, [schedule])
        job: Job = job_from_schedule(schedule, actor, await self._store.now(), lang)
        return set_language(JSONResponse(job, status_code=status), lang)


def render(request: Request, problem: Problem) -> Response:
    """`{error, message}`. Invalid input is 400; a wrong key is 403, a missing one 401."""
    status = 400 if problem.status == 422 else problem.status
    title = _TITLES.get(status, problem.title)
    headers = dict(problem.headers)
    if problem.code == "bad_json":
        title = _("Invalid JSON")
    if status == 401:
        headers["WWW-Authenticate"] = "ApiKey"
        if _has_key(request):
            status, title = 403, _TITLES[403]
    message = problem.detail
    if problem.errors:
        first = problem.errors[0]
        bad_url = first.name == "target.url" and first.code not in _VALID_URLS
        message = problem.translate(_("invalid HTTP URL")) if bad_url else first.detail
    content = {"error": problem.translate(title), "message": message}
    return JSONResponse(content, status_code=status, headers=headers)


def _has_key(request: Request) -> bool:
    return "authorization" in request.headers or "x-api-key" in request.headers


async def _actor(request: Request) -> Actor:
    return await authenticate(request, interface=INTERFACE, accepts=_ACCEPTS)


async def _body(request: Request) -> object:
    data = await read_json(request)
    if not isinstance(data, dict):
        raise invalid_json(_("a job is an object"))
    return data


async def _language(request: Request, schedules: Sequence[Schedule]) -> str:
    """Reads the preference of the caller only if there is text to translate."""
    if any(schedule.last_error for schedule in schedules):
        return await negotiated_language(request)
    return language_of_headers(request) or ENGLISH


def _id(job_id: str) -> ScheduleId:
    return ScheduleId(job_id)


async def _message(request: Request, text: str, headers: dict[str, str] | None = None) -> Response:
    lang = await negotiated_language(request)
    response = JSONResponse({"message": in_language(text, lang)}, headers=headers)
    return set_language(response, lang)
