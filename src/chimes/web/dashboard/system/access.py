"""System, access: users, keys and who is signed in. For admins; a key is shown once."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Role, Scope
from chimes.model.ids import KeyId
from chimes.web.api.paging import owner_asked_for
from chimes.web.dashboard.core.forms import REFUSALS, Question, Refused
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages

pages = Pages()
HERE = "/ui/system/access"
_LONGEST_DAYS = 3650


@pages.get("/system/access")
async def access(visit: PageRequest) -> Response:
    return await _page(visit)


@pages.post("/system/access/users")
async def create_user(visit: PageRequest) -> Response:
    try:
        user = await visit.users.create(
            visit.actor,
            name=visit.form.text("name"),
            password=visit.form.raw("password"),
            role=_role(visit),
        )
    except REFUSALS as error:
        return await _page(visit, error=await visit.refused(error), form="user")
    return visit.done(_("{name} can sign in now.", name=user.name), to=HERE)


@pages.post("/system/access/users/{name}/role")
async def change_role(visit: PageRequest) -> Response:
    user = await visit.users.set_role(visit.actor, visit.path["name"], _role(visit))
    return visit.done(_("{name} has another role now.", name=user.name), to=HERE)


@pages.post("/system/access/users/{name}/password")
async def change_password(visit: PageRequest) -> Response:
    name = visit.path["name"]
    try:
        await visit.users.set_password(visit.actor, name, visit.form.raw("password"))
    except REFUSALS as error:
        return await _page(visit, error=await visit.refused(error), form=f"password-{name}")
    text = _("{name} has another password now, and has to sign in again.", name=name)
    return visit.done(text, to=HERE)


@pages.post("/system/access/users/{name}/remove")
async def remove_user(visit: PageRequest) -> Response:
    name = visit.path["name"]
    if not visit.sure:
        question = Question(
            title=_("Remove this user?"),
            text=_("Whoever is signed in with it is out at once; its schedules stay."),
            button=_("Remove"),
            names=[name],
        )
        return visit.ask(question)
    await visit.users.remove(visit.actor, name)
    return visit.done(_("{name} was removed.", name=name), to=HERE)


@pages.post("/system/access/keys")
async def create_key(visit: PageRequest) -> Response:
    """The page that answers is the only one that ever shows the key."""
    form = visit.form
    try:
        days = form.number("days")
        if days is not None and not 1 <= days <= _LONGEST_DAYS:
            raise InvalidInput(_("between 1 and {most} days", most=_LONGEST_DAYS), field="days")
        made = await visit.door.access.create(
            visit.actor,
            name=form.text("name"),
            role=_role(visit),
            owner=owner_asked_for(form.text("owner") or None) or SYSTEM_OWNER,
            expires_at=None if days is None else visit.now + timedelta(days=days),
            scopes=tuple(Scope(each) for each in form.all("scope") if each in set(Scope)),
        )
    except REFUSALS as error:
        return await _page(visit, error=await visit.refused(error), form="key")
    return await _page(visit, made=made.text)


@pages.post("/system/access/keys/{id}/revoke")
async def revoke_key(visit: PageRequest) -> Response:
    key_id = KeyId(visit.path["id"])
    if not visit.sure:
        question = Question(
            title=_("Revoke this key?"),
            text=_("Whoever uses it is refused from the next call on. It cannot be undone."),
            button=_("Revoke"),
            names=[key_id],
        )
        return visit.ask(question)
    key = await visit.door.access.revoke(visit.actor, key_id)
    return visit.done(_("The key {name} is of no use any more.", name=key.name), to=HERE)


@pages.post("/system/access/sessions/{id}/end")
async def end_session(visit: PageRequest) -> Response:
    await visit.sign_ins.revoke(visit.actor, visit.path["id"])
    return visit.done(_("That sign-in has ended."), to=HERE)


async def _page(
    visit: PageRequest,
    *,
    made: str = "",
    error: Refused | None = None,
    form: str = "",
) -> Response:
    if not visit.actor.administers:
        raise NotAllowed()
    return visit.page(
        "system/access.html",
        status=200 if error is None else error.status,
        open_mode=not await visit.door.access.keys_on(),
        users=await visit.users.all(visit.actor),
        keys=await visit.door.access.keys(visit.actor),
        sessions=await visit.sign_ins.all(visit.actor),
        own=visit.guest.session.id if visit.guest else "",
        roles=[role.value for role in Role],
        scopes=[scope.value for scope in Scope],
        made=made,
        error=error,
        failed=form,
        given=visit.form,
    )


def _role(visit: PageRequest) -> Role:
    given = visit.form.text("role")
    if given not in set(Role):
        raise InvalidInput(_("viewer, member, operator or admin"), field="role")
    return Role(given)
