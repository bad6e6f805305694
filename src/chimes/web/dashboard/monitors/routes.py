"""Routes of monitors: list, details, form and actions."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model import replace
from chimes.model.monitor import Monitor, MonitorStatus
from chimes.services.access import CALCULATIONS
from chimes.services.monitors import MonitorDraft, NewMonitor, ping_token
from chimes.triggers import Trigger, parse_duration, parse_zone
from chimes.web.api.monitors import urls_of
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    FormError,
    PageRequest,
    PageRouter,
    Undo,
    status_of,
)
from chimes.web.dashboard.monitors.views import (
    MonitorForm,
    event_text,
    form_from,
    form_of,
    monitor_row,
    ping_rows,
    recipients_of,
    snippets,
)
from chimes.web.dashboard.runs.views import visible
from chimes.web.pings import base_url

router = PageRouter()
PAGE = "/ui/monitors"
PAGE_SIZE = 100
_STATUSES = tuple(MonitorStatus)


@router.get("/monitors")
async def monitors(request: PageRequest) -> Response:
    chosen = request.query.get("status", "")
    statuses = (MonitorStatus(chosen),) if chosen in _STATUSES else ()
    after = (request.query.get("name", ""), request.query.get("after", ""))
    found = await request.context.monitors.find(
        request.actor,
        statuses=statuses,
        text=request.query.get("q", "")[:200],
        after=after if after[1] else None,
        limit=PAGE_SIZE,
    )
    rows = [
        monitor_row(each, request.actor, request.display, request.now) for each in found.monitors
    ]
    return request.render_page_or_block(
        "monitors/list.html",
        "rows",
        rows=rows,
        visible=visible,
        counts=[(each, found.counts.get(each, 0)) for each in MonitorStatus],
        total=sum(found.counts.values()),
        chosen=statuses[0] if statuses else None,
        text=request.query.get("q", ""),
        following=found.next,
    )


@router.get("/monitors/new")
async def new(request: PageRequest) -> Response:
    if not request.actor.may_write(request.actor.owner) or request.actor.is_agent:
        raise NotAllowed()
    return _form_page(request, MonitorForm(zone=request.display.zone), None)


@router.post("/monitors/new")
async def create(request: PageRequest) -> Response:
    given = form_from(request.form)
    try:
        draft = await _draft(request, given, None)
        made = await request.context.monitors.create(request.actor, draft)
    except FORM_ERRORS as error:
        return _form_page(request, given, None, await request.form_error(error))
    if ping_token(made.monitor):
        return request.redirect_with_toast(_("Monitor created."), to=f"{PAGE}/{made.monitor.id}")
    # The store does not keep the URL: it is shown now and never again.
    return await _page(request, made.monitor, made)


@router.get("/monitors/{id}")
async def show(request: PageRequest) -> Response:
    monitor = await request.context.monitors.get(request.actor, request.path_params["id"])
    return await _page(request, monitor)


@router.get("/monitors/{id}/edit")
async def edit(request: PageRequest) -> Response:
    monitor = await request.context.monitors.get(request.actor, request.path_params["id"])
    if not monitor_row(monitor, request.actor, request.display, request.now).may_write:
        raise NotAllowed()
    return _form_page(request, form_of(monitor), monitor)


@router.post("/monitors/{id}/edit")
async def save(request: PageRequest) -> Response:
    service = request.context.monitors
    monitor = await service.get(request.actor, request.path_params["id"])
    given = form_from(request.form)
    try:
        draft = await _draft(request, given, monitor)

        def change(before: Monitor) -> Monitor:
            return replace(
                before,
                name=draft.name,
                trigger=draft.trigger,
                grace=draft.grace,
                tags=draft.tags,
                delivery=draft.delivery,
            )

        version = request.form.number("version")
        await service.edit(request.actor, monitor.id, change, version=version)
    except FORM_ERRORS as error:
        return _form_page(request, given, monitor, await request.form_error(error))
    return request.redirect_with_toast(_("Saved."), to=f"{PAGE}/{monitor.id}")


@router.post("/monitors/{id}/pause")
async def pause(request: PageRequest) -> Response:
    monitor = await request.context.monitors.pause(request.actor, request.path_params["id"])
    return request.redirect_with_toast(
        _("Monitor paused."),
        to=request.back_url(f"{PAGE}/{monitor.id}"),
        undo=Undo(action=f"{PAGE}/{monitor.id}/resume"),
    )


@router.post("/monitors/{id}/resume")
async def resume(request: PageRequest) -> Response:
    monitor = await request.context.monitors.resume(request.actor, request.path_params["id"])
    return request.redirect_with_toast(
        _("Monitor resumed: check-ins are expected from now on."),
        to=request.back_url(f"{PAGE}/{monitor.id}"),
    )


@router.post("/monitors/{id}/rotate")
async def rotate(request: PageRequest) -> Response:
    monitor_id = request.path_params["id"]
    monitor = await request.context.monitors.get(request.actor, monitor_id)
    if not request.is_confirmed:
        return request.confirm(
            ConfirmDialog(
                title=_("Replace the URLs?"),
                text=_("The old URLs of ping and badge stop working at once."),
                button=_("Replace URLs"),
                names=(monitor.name,),
            )
        )
    made = await request.context.monitors.rotate(request.actor, monitor_id)
    if ping_token(made.monitor):
        return request.redirect_with_toast(_("New URLs."), to=f"{PAGE}/{monitor.id}")
    return await _page(request, made.monitor, made)


@router.post("/monitors/{id}/delete")
async def delete(request: PageRequest) -> Response:
    monitor_id = request.path_params["id"]
    monitor = await request.context.monitors.get(request.actor, monitor_id)
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Delete the monitor?"),
            text=_("Deletes its history. Its URLs stop working."),
            button=_("Delete"),
            names=(monitor.name,),
        ),
        lambda: request.context.monitors.delete(request.actor, monitor_id),
        _("Monitor deleted."),
        to=PAGE,
    )


async def _page(request: PageRequest, monitor: Monitor, made: NewMonitor | None = None) -> Response:
    logs = await request.context.monitors.read_logs(monitor)
    base = base_url(request.http, request.context.settings)
    urls = urls_of(monitor, request.actor, base, made)
    # From the same origin, whatever the public URL is.
    urls["badge_path"] = urls["badge_url"].removeprefix(base)
    return request.render_page_or_block(
        "monitors/page.html",
        "state",
        row=monitor_row(monitor, request.actor, request.display, request.now),
        monitor=monitor,
        visible=visible,
        pings=ping_rows(monitor, logs),
        events=[(each, event_text(each)) for each in reversed(monitor.events)],
        urls=urls,
        masked="*" in urls["ping_url"],
        shown_once=made is not None,
        snippets=snippets(urls["ping_url"]),
    )


def _form_page(
    request: PageRequest,
    given: MonitorForm,
    monitor: Monitor | None,
    error: FormError | None = None,
) -> Response:
    return request.render(
        "monitors/form.html", status=status_of(error), given=given, monitor=monitor, error=error
    )


async def _draft(request: PageRequest, given: MonitorForm, before: Monitor | None) -> MonitorDraft:
    return MonitorDraft(
        name=given.name,
        trigger=await _trigger(request, given, before),
        grace=_grace(given),
        tags=tuple(given.tags.replace(",", " ").split()),
        delivery=recipients_of(given.recipients, () if before is None else before.delivery),
    )


def _grace(given: MonitorForm) -> timedelta:
    return parse_duration(given.grace, field="grace")


async def _trigger(request: PageRequest, given: MonitorForm, before: Monitor | None) -> Trigger:
    """The text as a trigger. One that has not changed keeps what it does not show, such as
    excluded days."""
    if before is not None:
        known = form_of(before)
        if (given.when, given.zone) == (known.when, known.zone):
            return before.trigger
    if not given.when:
        raise InvalidInput(_("say when check-ins are expected"), field="when", code="missing")
    zone = parse_zone(given.zone or request.display.zone).name

    def read() -> Trigger:
        from chimes.language import read_trigger

        return read_trigger(given.when, now=request.now, timezone=zone).trigger

    try:
        # In a thread: a long text takes half a second.
        return await CALCULATIONS.run(read)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="when", code=error.code) from None
