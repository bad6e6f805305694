"""One request for a page: who asks, how they like it, and the ways to answer."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from chimes.errors import ChimesError, NotAllowed, QuotaExceeded
from chimes.i18n import Message, _, in_language
from chimes.model.access import Actor
from chimes.services.insights import ClockWatch
from chimes.services.users import Guest, SignInService, UserService
from chimes.web.auth import Authenticator
from chimes.web.context import WebContext
from chimes.web.dashboard.core.assets import accepts_gzip
from chimes.web.dashboard.core.flash import Toast, Undo, toast_from
from chimes.web.dashboard.core.forms import Form, Question, Refused, refused_by
from chimes.web.dashboard.core.locale import speaking_to
from chimes.web.dashboard.core.preferences import (
    FLASH,
    DisplayPreferences,
    cookie,
    drop_cookie,
    form_token,
    set_cookie,
)
from chimes.web.dashboard.core.templates import block_rendered, rendered

# @@ The few words that scripts say by themselves.


@cache
def script_words(language: str) -> dict[str, str]:
    """By name; what is in braces the script fills in."""
    found = {
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
        "not_copied": _("This browser does not let us copy; select the text instead"),
        "failed": _("That did not work. Is the server still running?"),
        "too_slow": _("The server takes long to answer …"),
        "no_matches": _("Nothing matches"),
    }
    return {name: in_language(text, language) for name, text in found.items()}


# @@ What every page has around it: the rail, who is here, what can be chosen.


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One of the five of the rail, or a page that only the palette names."""

    name: str
    title: Message
    address: str
    #: Behind `g`; empty: there is none.
    key: str = ""
    #: About everybody: for those who see everything.
    wide: bool = False
    #: For those who may make schedules, or hand out access.
    makes: bool = False
    admin: bool = False

    def is_for(self, actor: Actor) -> bool:
        return (
            (actor.sees_everything or not self.wide)
            and (actor.may_create(actor.owner) or not self.makes)
            and (actor.administers or not self.admin)
        )


RAIL = (
    Entry(name="today", title=_("Today"), address="/ui/", key="t"),
    Entry(name="schedules", title=_("Schedules"), address="/ui/schedules", key="s"),
    Entry(name="runs", title=_("Runs"), address="/ui/runs", key="r"),
    Entry(name="inbox", title=_("Inbox"), address="/ui/inbox", key="i"),
    Entry(name="system", title=_("System"), address="/ui/system", key="y", wide=True),
)
FURTHER = (
    Entry(name="import", title=_("Import schedules"), address="/ui/schedules/import", makes=True),
    Entry(name="month", title=_("Month"), address="/ui/schedules?view=month"),
    Entry(name="failed", title=_("Failed runs"), address="/ui/runs?q=status:failed"),
    Entry(name="telegram", title=_("Telegram"), address="/ui/telegram"),
    Entry(name="audit", title=_("Audit"), address="/ui/system/audit", wide=True),
    Entry(name="access", title=_("Access"), address="/ui/system/access", admin=True),
    Entry(name="channels", title=_("Channels"), address="/ui/system/channels", wide=True),
    Entry(name="settings", title=_("Settings"), address="/ui/system/settings", wide=True),
    Entry(name="about", title=_("About"), address="/ui/system/about", wide=True),
)
#: Each in its own words.
LANGUAGE_NAMES = {"en": "English", "th": "ไทย", "zh": "中文"}


def here(path: str) -> str:
    """Which entry of the rail a page belongs to."""
    for entry in RAIL[1:]:
        if path == entry.address or path.startswith(f"{entry.address}/"):
            return entry.name
    return RAIL[0].name if path in ("/ui", "/ui/", "/ui/attention") else ""


def frame_values(visit: PageRequest) -> dict[str, object]:
    url = visit.request.url
    address = url.path + (f"?{url.query}" if url.query else "")
    if "back" in visit.form:
        # The answer to a form: its own address may have no page.
        address = visit.back()
    return {
        "visit": visit,
        "rail": [entry for entry in RAIL if entry.is_for(visit.actor)],
        "further": [entry for entry in FURTHER if entry.is_for(visit.actor)],
        "may_create": visit.actor.may_create(visit.actor.owner),
        "here": here(url.path),
        "address": address,
        "csrf": visit.token,
        "languages": LANGUAGE_NAMES,
        "actor": visit.actor,
        "guest": visit.guest,
        "version": visit.door.version,
        "script_words": script_words(visit.look.language),
    }


HOME = "/ui/"
#: Without a word of where they come from, browsers would send forms as from nowhere; nobody else
#: hears of it.
HTML_HEADERS = {"Vary": "Accept-Encoding", "Referrer-Policy": "same-origin"}
#: Below this a packet is a packet.
_WORTH_PACKING = 1400


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    request: Request
    door: WebContext
    users: UserService
    sign_ins: SignInService
    #: Changes of the clocks that are near.
    clock_watch: ClockWatch
    actor: Actor
    #: None in open mode.
    guest: Guest | None
    look: DisplayPreferences
    #: The store's, and the only one: every countdown of a page is from here.
    now: datetime
    #: The secret behind the tokens of this visitor's forms.
    guard: str
    #: What had been seen before this page was made; its stream goes on from there (`live.py`).
    seen: str = ""
    #: Has a value in a POST only.
    form: Form = field(default_factory=Form)

    # --- reading ------------------------------------------------------------------------------
    @property
    def path(self) -> Mapping[str, str]:
        """What the address of the route has in braces."""
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def partial(self) -> bool:
        """Asked by htmx: a part is wanted, not a page."""
        return self.request.headers.get("hx-request", "").lower() == "true"

    # --- answering ----------------------------------------------------------------------------
    def page(self, template: str, /, *, status: int = 200, **values: object) -> Response:
        """The whole page. What the frame needs is there already (`frame.py`)."""
        toast = toast_from(cookie(self.request, FLASH))
        with speaking_to(self.look, self.now):
            text = rendered(template, {**frame_values(self), "toast": toast, **values})
        answer = self._html(text, status)
        if toast is not None:
            drop_cookie(self.request, answer, FLASH)
        return answer

    def part(
        self, template: str, block: str, /, *, status: int = 200, **values: object
    ) -> Response:
        """One block of a page, for htmx."""
        with speaking_to(self.look, self.now):
            text = block_rendered(template, block, {**frame_values(self), "toast": None, **values})
        return self._html(text, status)

    def page_or_part(
        self, template: str, block: str, /, *, status: int = 200, **values: object
    ) -> Response:
        """The block if htmx asks, otherwise the page with it: one address for both."""
        if self.partial:
            answer = self.part(template, block, status=status, **values)
        else:
            answer = self.page(template, status=status, **values)
        answer.headers.add_vary_header("HX-Request")
        return answer

    def done(
        self, text: str, /, *, to: str, undo: Undo | None = None, kind: str = "done"
    ) -> Response:
        """After an action: on to a page, which says what happened (303, so that going back or
        loading again repeats nothing). `text` is said (`say`, `counted`)."""
        answer = self.redirect(to)
        packed = Toast(text=text, kind=kind, undo=undo).packed(self.look.language)
        set_cookie(self.request, answer, FLASH, packed)
        return answer

    def ask(self, question: Question, /, refused: Refused | None = None) -> Response:
        """Before something wide or final: a dialog, or a page where there are no scripts. The
        answer comes to the same handler, with the same fields and `sure` (`visit.sure`). If that
        was `refused`, it is asked again with the reason that was typed."""
        ask = question.completed(self.request.url.path, self.form, self.back())
        if refused is not None:
            ask = replace(ask, error=refused.message)
        status = 200 if refused is None else refused.status
        return self.page_or_part("ask.html", "part", status=status, ask=ask)

    async def refused(self, error: ChimesError) -> Refused:
        """What the form says that comes again. What somebody may not is on record, as it is where
        such an error goes further (S08)."""
        if isinstance(error, NotAllowed | QuotaExceeded):
            gatekeeper: Authenticator = self.request.app.state.gatekeeper
            await gatekeeper.refused(self.request, self.actor, error)
        return refused_by(error)

    @property
    def sure(self) -> bool:
        return self.form.ticked("sure")

    def redirect(self, to: str) -> Response:
        """Only ever to a page of ours (S52)."""
        target = local_address(to)
        if self.partial:
            return Response(status_code=204, headers={"HX-Redirect": target})
        return RedirectResponse(target, status_code=303)

    def back(self, default: str = HOME) -> str:
        """The page that the form was on: its `back` field, or where the browser says it was."""
        given = self.form.text("back") or self.query.get("back", "")
        return local_address(given, default)

    def _html(self, text: str, status: int) -> Response:
        content = text.encode()
        headers = {**HTML_HEADERS, "Content-Language": self.look.language}
        if len(content) > _WORTH_PACKING and accepts_gzip(self.request):
            headers["Content-Encoding"] = "gzip"
            content = gzip.compress(content, 5, mtime=0)
        return HTMLResponse(content, status_code=status, headers=headers)

    @property
    def token(self) -> str:
        """For the field `csrf` of every form."""
        return form_token(self.guard)


def local_address(given: str, default: str = HOME) -> str:
    """An address within the dashboard, or the default: nobody is sent elsewhere (S52)."""
    text = given.strip()
    if not text.startswith("/ui") or text[3:4] not in ("", "/", "?", "#"):
        return default
    if any(sign in text for sign in "\\\r\n\t\0") or not text.isprintable():
        return default
    parts = urlsplit(text)
    if parts.scheme or parts.netloc or ".." in parts.path:
        return default
    return text


# @@ The one field of a small form, as it was typed, where the form stands on many pages.


def asked_again(
    visit: PageRequest,
    why: Refused,
    *,
    title: str,
    label: str,
    field: str,
    back: str,
    others: Sequence[tuple[str, str]] = (),
) -> Response:
    """`others`: what the form says besides. Its texts are said (`say`)."""
    return visit.page(
        "one_field.html",
        status=why.status,
        title=title,
        label=label,
        action=visit.request.url.path,
        field=field,
        typed=visit.form.raw(field),
        others=others,
        error=why,
        back=back,
    )
