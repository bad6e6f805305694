"""Limits page: named limits and their current use."""

from __future__ import annotations

from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.limit import Breaker
from chimes.services.limits import LimitValues
from chimes.triggers import parse_duration
from chimes.web.api.paging import owner_filter
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)
from chimes.web.dashboard.system.routes import require_operator

router = PageRouter()
_PATH = "/ui/system/limits"


@router.get("/system/limits")
async def limits(request: PageRequest) -> Response:
    return await _page(request)


@router.post("/system/limits")
async def set_limit(request: PageRequest) -> Response:
    require_operator(request)
    form = request.form
    name = form.text("name")
    try:
        found = await request.context.limits.put(
            request.actor, name, _values(request), shared=form.text("shared") == "yes"
        )
    except FORM_ERRORS as error:
        return await _page(request, error=await request.form_error(error))
    return request.redirect_with_toast(_("Limit {name} set.", name=found.use.limit.name), to=_PATH)


@router.post("/system/limits/{name}/remove")
async def remove_limit(request: PageRequest) -> Response:
    require_operator(request)
    name, form = request.path_params["name"], request.form
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Delete this limit?"),
            text=_("Only a limit that no schedule names can be deleted."),
            button=_("Delete"),
            names=[name],
        ),
        lambda: request.context.limits.remove(
            request.actor,
            name,
            owner_filter(form.text("owner") or None),
            shared=form.text("shared") == "yes",
        ),
        _("Limit {name} deleted.", name=name),
        to=_PATH,
    )


async def _page(request: PageRequest, *, error: FormError | None = None) -> Response:
    require_operator(request)
    return request.render(
        "system/limits.html",
        status=status_of(error),
        limits=await request.context.limits.list_limits(request.actor),
        may_write=request.actor.may_write(request.actor.owner),
        error=error,
        given=request.form,
    )


def _values(request: PageRequest) -> LimitValues:
    form = request.form
    failures, pause = form.number("failures"), form.text("pause")
    if (failures is None) != (not pause):
        raise InvalidInput(
            _("A circuit breaker needs both a number of failures and a pause."), field="failures"
        )
    return LimitValues(
        concurrency=form.number("concurrency"),
        rate=form.text("rate"),
        burst=form.number("burst"),
        breaker=None
        if failures is None
        else Breaker(failures=failures, pause=parse_duration(pause, field="pause")),
    )
