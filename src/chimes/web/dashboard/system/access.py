"""Access page: users, API keys and sessions. Only for admins; a new key is shown once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Role, Scope
from chimes.model.ids import KeyId
from chimes.services.schedules.setup import Misconfigured
from chimes.services.users import LIFE
from chimes.web.api.paging import owner_filter
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)
from chimes.web.dashboard.core.preferences import SESSION, set_cookie

router = PageRouter()
_PATH = "/ui/system/access"
#: Schedules that are listed when the first key denies their callbacks.
_MAX_DENIED = 100
_MAX_DAYS = 3650


@router.get("/system/access")
async def access(request: PageRequest) -> Response:
    return await _page(request)


@router.post("/system/access/users")
async def create_user(request: PageRequest) -> Response:
    was_open = not await request.context.access.auth_enabled()
    try:
        user = await request.users.create(
            request.actor,
            name=request.form.text("name"),
            password=request.form.raw("password"),
            role=_role(request),
        )
    except FORM_ERRORS as error:
        return await _page(request, error=await request.form_error(error), form="user")
    response = request.redirect_with_toast(_("User {name} created.", name=user.name), to=_PATH)
    if was_open:
        # Open mode has ended: the creator of the first user is signed in as that user.
        secret, _session = await request.sessions.login_with_password(
            user.name,
            request.form.raw("password"),
            address=request.actor.address,
            agent=request.http.headers.get("user-agent", ""),
        )
        set_cookie(request.http, response, SESSION, secret, max_age=LIFE)
    return response


@router.post("/system/access/users/{name}/role")
async def change_role(request: PageRequest) -> Response:
    user = await request.users.set_role(request.actor, request.path_params["name"], _role(request))
    return request.redirect_with_toast(_("Role of {name} changed.", name=user.name), to=_PATH)


@router.post("/system/access/users/{name}/password")
async def change_password(request: PageRequest) -> Response:
    name = request.path_params["name"]
    try:
        await request.users.set_password(request.actor, name, request.form.raw("password"))
    except FORM_ERRORS as error:
        return await _page(request, error=await request.form_error(error), form=f"password-{name}")
    text = _("Password of {name} changed. All sessions of {name} have ended.", name=name)
    return request.redirect_with_toast(text, to=_PATH)


@router.post("/system/access/users/{name}/remove")
async def remove_user(request: PageRequest) -> Response:
    name = request.path_params["name"]
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Remove this user?"),
            text=_("The user is signed out immediately. Their schedules are kept."),
            button=_("Remove"),
            names=[name],
        ),
        lambda: request.users.remove(request.actor, name),
        _("User {name} removed.", name=name),
        to=_PATH,
    )


@router.post("/system/access/keys")
async def create_key(request: PageRequest) -> Response:
    """Creates a key; only this response shows it."""
    form = request.form
    try:
        days = form.number("days")
        if days is not None and not 1 <= days <= _MAX_DAYS:
            raise InvalidInput(_("between 1 and {limit} days", limit=_MAX_DAYS), field="days")
        is_first = not await request.context.access.auth_enabled()
        new_key = await request.context.access.create(
            request.actor,
            name=form.text("name"),
            role=_role(request),
            owner=owner_filter(form.text("owner") or None) or SYSTEM_OWNER,
            expires_at=None if days is None else request.now + timedelta(days=days),
            scopes=tuple(Scope(each) for each in form.all("scope") if each in set(Scope)),
        )
    except FORM_ERRORS as error:
        return await _page(request, error=await request.form_error(error), form="key")
    denied = await request.context.setup.find_denied(limit=_MAX_DENIED) if is_first else ()
    return await _page(request, new_key=new_key.text, denied=denied)


@router.post("/system/access/keys/{id}/revoke")
async def revoke_key(request: PageRequest) -> Response:
    key_id = KeyId(request.path_params["id"])
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Revoke this key?"),
            text=_("Requests with this key are rejected immediately. This cannot be undone."),
            button=_("Revoke"),
            names=[key_id],
        ),
        lambda: request.context.access.revoke(request.actor, key_id),
        lambda key: _("API key {name} revoked.", name=key.name),
        to=_PATH,
    )


@router.post("/system/access/sessions/{id}/end")
async def end_session(request: PageRequest) -> Response:
    await request.sessions.revoke(request.actor, request.path_params["id"])
    return request.redirect_with_toast(_("Session ended."), to=_PATH)


async def _page(
    request: PageRequest,
    *,
    new_key: str = "",
    denied: Sequence[Misconfigured] = (),
    error: FormError | None = None,
    form: str = "",
) -> Response:
    if not request.actor.administers:
        raise NotAllowed()
    return request.render(
        "system/access.html",
        status=status_of(error),
        open_mode=not await request.context.access.auth_enabled(),
        users=await request.users.list_users(request.actor),
        keys=await request.context.access.keys(request.actor),
        sessions=await request.sessions.list_sessions(request.actor),
        own=request.session.record.id if request.session else "",
        roles=[role.value for role in Role],
        scopes=[scope.value for scope in Scope],
        new_key=new_key,
        denied=denied,
        error=error,
        failed=form,
        given=request.form,
    )


def _role(request: PageRequest) -> Role:
    given = request.form.text("role")
    if given not in set(Role):
        raise InvalidInput(_("viewer, member, operator or admin"), field="role")
    return Role(given)
