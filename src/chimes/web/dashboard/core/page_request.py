"""A request for a dashboard page: its user and form, and the responses to it.

A response is a page or a part of it, a confirm dialog, or a redirect with a flash message: a cookie
carries the result of an action and its undo form to the next page.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from chimes.errors import (
    ChimesError,
    Conflict,
    InvalidInput,
    NotAllowed,
    QuotaExceeded,
    RateLimited,
)
from chimes.i18n import Message, _, in_language
from chimes.model.access import Actor
from chimes.services.insights import ClockWatch
from chimes.services.single_sign_on import OidcProvider
from chimes.services.users import Session, SessionService, UserService
from chimes.web.dashboard.core.preferences import (
    FLASH,
    DisplayPreferences,
    cookie,
    drop_cookie,
    form_token,
    set_cookie,
)
from chimes.web.dashboard.core.templates import (
    accepts_gzip,
    render_template,
    render_template_block,
    viewer_context,
)
from chimes.web.problems import Problem, problem_of
from chimes.web.requests import Authenticator, RequestRejected, WebContext

T = TypeVar("T")


# --- forms ----------------------------------------------------------------------------------------
_MEDIA_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 2000
#: Fields that every form has anew: token, page to return to, confirmation.
_FORM_FIELDS = ("csrf", "back", "sure")


class Form:
    """Submitted fields in their order; a name may occur several times (check boxes)."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        self._last = dict(self._pairs)

    def text(self, name: str, default: str = "") -> str:
        """Without surrounding blanks."""
        return self._last.get(name, default).strip()

    def raw(self, name: str) -> str:
        """As typed, for passwords, prompts and bodies; only line ends are normalised."""
        return self._last.get(name, "").replace("\r\n", "\n")

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self._pairs if key == name)

    def is_checked(self, name: str) -> bool:
        return name in self._last

    def number(self, name: str, default: int | None = None) -> int | None:
        """InvalidInput, naming the field, if it is not an integer."""
        text = self.text(name)
        if not text:
            return default
        if not text.lstrip("-").isdigit() or len(text) > 18:
            raise InvalidInput(_("must be a whole number"), field=name, code="not_a_number")
        return int(text)

    def __contains__(self, name: object) -> bool:
        return name in self._last

    def items(self) -> tuple[tuple[str, str], ...]:
        return self._pairs

    def repeated(self, *without: str) -> list[tuple[str, str]]:
        """The fields that a following form of the same action sends again."""
        return [pair for pair in self._pairs if pair[0] not in (*_FORM_FIELDS, *without)]


async def read_form(http: Request) -> Form:
    media_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await http.body()
    if not body and not media_type:
        return Form()
    if media_type != _MEDIA_TYPE:
        # Other sites can make a browser send some other types without a CORS preflight.
        raise RequestRejected(
            415,
            "unsupported_media_type",
            _("a form must be sent as {media_type}", media_type=_MEDIA_TYPE),
        )
    try:
        text = body.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidInput(_("the form cannot be read"), code="bad_form") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise InvalidInput(_("a field contains a NUL character"), code="bad_character")
    return Form(pairs)


#: Errors that are shown in the form, together with the input. An unavailable store is not one of
#: them, because the form cannot be rendered without it: see `PendingForm`.
FORM_ERRORS = (InvalidInput, Conflict, NotAllowed, RateLimited)


@dataclass(frozen=True, kw_only=True, slots=True)
class FormError:
    message: str
    #: The invalid field; empty: the error is about no field.
    field: str
    status: int


def status_of(error: FormError | None) -> int:
    """Status of a page with a form."""
    return 200 if error is None else error.status


def form_error_from(error: ChimesError) -> FormError:
    field = error.field if isinstance(error, InvalidInput) else None
    problem = reword_problem(problem_of(error))
    message = problem.detail if isinstance(error, NotAllowed) else error.message
    return FormError(message=message, field=field or "", status=problem.status)


def reword_problem(problem: Problem) -> Problem:
    """The API's text about a denied action speaks of the API key, which dashboard users may not
    have."""
    if problem.kind != "not_allowed":
        return problem
    title = _("You are not allowed to do that")
    has_detail = problem.detail not in (problem.title, NotAllowed().message)
    return replace(problem, title=title, detail=problem.detail if has_detail else title)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfirmDialog:
    """Asks before a bulk or irreversible action; shows how many objects it affects."""

    title: str
    button: str
    #: A highlighted text above it.
    warning: str = ""
    text: str = ""
    #: Names of the affected objects; the first five are shown.
    names: Sequence[str] = ()
    #: Number of affected objects; 0: the number of names.
    total: int = 0
    dangerous: bool = True
    #: Whether the dialog has a field for a reason, which goes to the audit log.
    reason: bool = False
    #: Template of further inputs.
    inputs: str = ""
    #: Fields that the confirmation sends; None: those of the submitted form.
    fields: Sequence[tuple[str, str]] | None = None

    @property
    def count(self) -> int:
        return self.total or len(self.names)


# --- flash messages -------------------------------------------------------------------------------
_MAX_COOKIE_LENGTH = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """The form behind the Undo button."""

    action: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toast:
    text: str
    #: `done`, `warning` or `error`; errors stay until they are dismissed.
    kind: str = "done"
    undo: Undo | None = None

    def packed(self, language: str) -> str:
        """The cookie value, with the text translated. Too long for a cookie: without the undo."""
        plain: dict[str, object] = {"text": in_language(self.text, language)[:500]}
        if self.kind != "done":
            plain["kind"] = self.kind
        if self.undo is not None:
            plain["undo"] = {"action": self.undo.action, "fields": dict(self.undo.fields)}
        content = base64.urlsafe_b64encode(json.dumps(plain).encode()).decode()
        if len(content) > _MAX_COOKIE_LENGTH and self.undo is not None:
            return Toast(text=self.text, kind=self.kind).packed(language)
        return content


def unpack_toast(packed: str) -> Toast | None:
    """None for an invalid cookie value."""
    if not packed or len(packed) > 2 * _MAX_COOKIE_LENGTH:
        return None
    try:
        plain = json.loads(base64.urlsafe_b64decode(packed.encode()))
        undo = plain.get("undo")
        kind = str(plain.get("kind", "done"))
        return Toast(
            text=str(plain["text"]),
            kind=kind if kind in ("done", "warning", "error") else "done",
            undo=None if undo is None else _unpack_undo(undo),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _unpack_undo(plain: Mapping[str, object]) -> Undo | None:
    action, fields = str(plain["action"]), plain.get("fields")
    if not action.startswith("/ui/"):
        return None
    given = fields if isinstance(fields, dict) else {}
    return Undo(action=action, fields={str(name): str(value) for name, value in given.items()})


# --- frame of the page ----------------------------------------------------------------------------
@cache
def script_texts(language: str) -> dict[str, str]:
    """Texts that scripts show; the scripts fill in the placeholders."""
    texts = {
        # The same templates as in `times`, unfilled.
        "s": _("{count} s"),
        "min": _("{count} min"),
        "h": _("{count} h"),
        "d": _("{count} d"),
        "in": _("in {span}"),
        "ago": _("{span} ago"),
        "now": _("now"),
        "live": _("Live"),
        "reconnecting": _("Reconnecting – data from {span} ago"),
        "signed_out": _("You are signed out"),
        "sign_in": _("Sign in"),
        "paused": _("Paused while this tab is in the background"),
        "copied": _("Copied"),
        "not_copied": _("This browser does not allow copying. Select the text instead."),
        "failed": _("The request failed. Is the server running?"),
        "too_slow": _("The server is slow to respond …"),
        "no_matches": _("No matches"),
    }
    return {name: in_language(text, language) for name, text in texts.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class NavigationEntry:
    """A page in the sidebar or in the command palette."""

    name: str
    title: Message
    url: str
    #: Second key of the shortcut `g` + key; empty: no shortcut.
    key: str = ""
    #: Whether the page is only for users who see the objects of all owners.
    needs_all_owners: bool = False
    #: Whether the page is only for users who may create schedules.
    needs_create: bool = False
    #: Whether the page is only for admins.
    needs_admin: bool = False

    def is_for(self, actor: Actor) -> bool:
        return (
            (actor.sees_everything or not self.needs_all_owners)
            and (actor.may_create(actor.owner) or not self.needs_create)
            and (actor.administers or not self.needs_admin)
        )


SIDEBAR = (
    NavigationEntry(name="today", title=_("Today"), url="/ui/", key="t"),
    NavigationEntry(name="schedules", title=_("Schedules"), url="/ui/schedules", key="s"),
    NavigationEntry(name="runs", title=_("Runs"), url="/ui/runs", key="r"),
    NavigationEntry(name="monitors", title=_("Monitors"), url="/ui/monitors", key="m"),
    NavigationEntry(name="inbox", title=_("Inbox"), url="/ui/inbox", key="i"),
    NavigationEntry(
        name="system", title=_("System"), url="/ui/system", key="y", needs_all_owners=True
    ),
)
#: Pages that only the command palette lists.
PALETTE = (
    NavigationEntry(
        name="import", title=_("Import schedules"), url="/ui/schedules/import", needs_create=True
    ),
    NavigationEntry(name="month", title=_("Month"), url="/ui/schedules?view=month"),
    NavigationEntry(name="simulate", title=_("Simulator"), url="/ui/simulate"),
    NavigationEntry(name="cron", title=_("Cron expressions"), url="/ui/cron"),
    NavigationEntry(name="failed", title=_("Failed runs"), url="/ui/runs?q=status:failed"),
    NavigationEntry(name="proposals", title=_("Proposals"), url="/ui/proposals"),
    NavigationEntry(name="approvals", title=_("Approvals"), url="/ui/approvals"),
    NavigationEntry(name="telegram", title=_("Telegram"), url="/ui/telegram"),
    NavigationEntry(name="audit", title=_("Audit"), url="/ui/system/audit", needs_all_owners=True),
    NavigationEntry(name="access", title=_("Access"), url="/ui/system/access", needs_admin=True),
    NavigationEntry(
        name="channels", title=_("Channels"), url="/ui/system/channels", needs_all_owners=True
    ),
    NavigationEntry(
        name="settings", title=_("Settings"), url="/ui/system/settings", needs_all_owners=True
    ),
    NavigationEntry(name="about", title=_("About"), url="/ui/system/about", needs_all_owners=True),
)
#: Each in its own language.
LANGUAGE_NAMES = {"en": "English", "th": "ไทย", "zh": "中文"}


def active_entry(path: str) -> str:
    """Name of the sidebar entry that a page belongs to."""
    for entry in SIDEBAR[1:]:
        if path == entry.url or path.startswith(f"{entry.url}/"):
            return entry.name
    return SIDEBAR[0].name if path in ("/ui", "/ui/", "/ui/attention") else ""


def frame_values(request: PageRequest) -> dict[str, object]:
    """Template values that `base.html` and the frame macros use."""
    url = request.http.url
    address = url.path + (f"?{url.query}" if url.query else "")
    if "back" in request.form:
        # In the response to a form: the URL of the form may have no page.
        address = request.back_url()
    return {
        "request": request,
        "sidebar": [entry for entry in SIDEBAR if entry.is_for(request.actor)],
        "palette": [entry for entry in PALETTE if entry.is_for(request.actor)],
        "may_create": request.actor.may_create(request.actor.owner),
        "sees_all_owners": request.actor.sees_all_owners,
        "active_entry": active_entry(url.path),
        "address": address,
        "csrf": request.csrf_token,
        "languages": LANGUAGE_NAMES,
        "actor": request.actor,
        "session": request.session,
        "version": request.context.version,
        "script_texts": script_texts(request.display.language),
    }


# --- requests -------------------------------------------------------------------------------------
HOME = "/ui/"
#: With `no-referrer` browsers would send forms with the origin `null`; `same-origin` keeps the
#: header away from other sites.
HTML_HEADERS = {"Vary": "Accept-Encoding", "Referrer-Policy": "same-origin"}
#: Smaller responses fit into one packet anyway.
_MIN_GZIP_BYTES = 1400


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    http: Request
    context: WebContext
    users: UserService
    sessions: SessionService
    #: None: no provider is configured.
    oidc: OidcProvider | None
    #: Upcoming clock changes (daylight saving time).
    clock_watch: ClockWatch
    actor: Actor
    #: None in open mode.
    session: Session | None
    display: DisplayPreferences
    #: The store's time; all relative times of a page are relative to it.
    now: datetime
    #: The secret from which the CSRF tokens of this session's forms are derived.
    csrf_secret: str
    #: Position in the event stream before the page was rendered; the page's stream resumes there.
    last_event_id: str = ""
    #: Empty except in a POST.
    form: Form = field(default_factory=Form)

    @property
    def path_params(self) -> Mapping[str, str]:
        return self.http.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query_params

    @property
    def is_htmx(self) -> bool:
        """Whether htmx requests a fragment instead of a page."""
        return self.http.headers.get("hx-request", "").lower() == "true"

    @property
    def is_confirmed(self) -> bool:
        """Whether the user accepted the confirm dialog of this action."""
        return self.form.is_checked("sure")

    @property
    def csrf_token(self) -> str:
        """For the field `csrf` of every form."""
        return form_token(self.csrf_secret)

    def render(self, template: str, /, *, status: int = 200, **values: object) -> Response:
        """The whole page, with the flash message of the previous action."""
        toast = unpack_toast(cookie(self.http, FLASH))
        with viewer_context(self.display, self.now):
            text = render_template(template, {**frame_values(self), "toast": toast, **values})
        response = self._html(text, status)
        if toast is not None:
            drop_cookie(self.http, response, FLASH)
        return response

    def render_block(
        self, template: str, block: str, /, *, status: int = 200, **values: object
    ) -> Response:
        """One block of a page, for htmx."""
        with viewer_context(self.display, self.now):
            text = render_template_block(
                template, block, {**frame_values(self), "toast": None, **values}
            )
        return self._html(text, status)

    def render_page_or_block(
        self, template: str, block: str, /, *, status: int = 200, **values: object
    ) -> Response:
        """The block for htmx, otherwise the page that contains it."""
        if self.is_htmx:
            response = self.render_block(template, block, status=status, **values)
        else:
            response = self.render(template, status=status, **values)
        response.headers.add_vary_header("HX-Request")
        return response

    def redirect(self, to: str) -> Response:
        """Redirects to a dashboard page, never to another site."""
        target = local_url(to)
        if self.is_htmx:
            return Response(status_code=204, headers={"HX-Redirect": target})
        return RedirectResponse(target, status_code=303)

    def redirect_with_toast(
        self, text: str, /, *, to: str, undo: Undo | None = None, kind: str = "done"
    ) -> Response:
        """Redirects after an action; the next page shows `text`. The status is 303, so that going
        back or reloading does not repeat the action."""
        response = self.redirect(to)
        packed = Toast(text=text, kind=kind, undo=undo).packed(self.display.language)
        set_cookie(self.http, response, FLASH, packed)
        return response

    def confirm(
        self, dialog: ConfirmDialog, /, error: FormError | None = None, **values: object
    ) -> Response:
        """Shows a confirm dialog, or a page without scripts. On confirmation the browser posts the
        same fields to the same handler again, with `is_confirmed` set. With an `error` the dialog
        is shown again, with the input. `values` are for the inputs of the dialog."""
        back = self.back_url()
        fields = self.form.repeated("reason") if dialog.fields is None else dialog.fields
        return self.render_page_or_block(
            "confirm.html",
            "part",
            status=status_of(error),
            dialog=dialog,
            fields=[*fields, ("back", back)],
            back=back,
            given=self.form,
            error=error,
            **values,
        )

    async def run_confirmed(
        self,
        dialog: ConfirmDialog,
        action: Callable[[], Awaitable[T]],
        done: str | Callable[[T], str],
        /,
        *,
        to: str,
        undo: Undo | None = None,
    ) -> Response:
        """Asks, runs the action once the user has confirmed it, and redirects with the toast
        `done`. A dialog with a reason shows why the action was refused."""
        if not self.is_confirmed:
            return self.confirm(dialog)
        try:
            result = await action()
        except FORM_ERRORS as error:
            if not dialog.reason:
                raise
            return self.confirm(dialog, await self.form_error(error))
        text = done if isinstance(done, str) else done(result)
        return self.redirect_with_toast(text, to=to, undo=undo)

    async def form_error(self, error: ChimesError) -> FormError:
        """The error to show in the form. Denied actions are written to the audit log, as they are
        when such an error becomes an error page."""
        if isinstance(error, NotAllowed | QuotaExceeded):
            authenticator: Authenticator = self.http.app.state.authenticator
            await authenticator.audit_refusal(self.http, self.actor, error)
        return form_error_from(error)

    def back_url(self, default: str = HOME) -> str:
        """The page that contained the form, from the `back` parameter."""
        given = self.form.text("back") or self.query.get("back", "")
        return local_url(given, default)

    def _html(self, text: str, status: int) -> Response:
        content = text.encode()
        headers = {**HTML_HEADERS, "Content-Language": self.display.language}
        if len(content) > _MIN_GZIP_BYTES and accepts_gzip(self.http):
            headers["Content-Encoding"] = "gzip"
            content = gzip.compress(content, 5, mtime=0)
        return HTMLResponse(content, status_code=status, headers=headers)


def local_url(given: str, default: str = HOME) -> str:
    """`given` if it is a URL within the dashboard, otherwise the default: prevents open
    redirects."""
    text = given.strip()
    if not text.startswith("/ui") or text[3:4] not in ("", "/", "?", "#"):
        return default
    if any(char in text for char in "\\\r\n\t\0") or not text.isprintable():
        return default
    parts = urlsplit(text)
    if parts.scheme or parts.netloc or ".." in parts.path:
        return default
    return text


def render_field_retry(
    request: PageRequest,
    error: FormError,
    *,
    title: str,
    label: str,
    field: str,
    back: str,
    hidden_fields: Sequence[tuple[str, str]] = (),
) -> Response:
    """A page with one field to correct, for small forms that are embedded in several pages."""
    return request.render(
        "field_retry.html",
        status=error.status,
        title=title,
        label=label,
        action=request.http.url.path,
        field=field,
        typed=request.form.raw(field),
        hidden_fields=hidden_fields,
        error=error,
        back=back,
    )


# --- routes ---------------------------------------------------------------------------------------
Handler = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRoute:
    #: Path below /ui, with `{parameters}`.
    path: str
    method: str
    handler: Handler
    #: Whether the page needs no session.
    public: bool = False


class PageRouter:
    """The routes of one module. GET handlers change nothing; POST handlers get a form whose CSRF
    token was checked."""

    def __init__(self) -> None:
        self.routes: list[PageRoute] = []

    def get(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._register(path, "GET", public)

    def post(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._register(path, "POST", public)

    def _register(self, path: str, method: str, public: bool) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.routes.append(PageRoute(path=path, method=method, handler=handler, public=public))
            return handler

        return register
