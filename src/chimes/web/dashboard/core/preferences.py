"""How somebody wants to see pages: language, theme, zone, calendar. It is in one cookie, so that a
page comes right at once, also before anybody has signed in."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, Message, _
from chimes.language.languages import LANGUAGES, accepted
from chimes.services.preferences import LOOKS, ListName, Preferences
from chimes.triggers.zones import parse_zone

COOKIE = "chimes_look"
_CHOICES: Mapping[str, tuple[str, ...]] = {"language": tuple(LANGUAGES), **LOOKS}


@dataclass(frozen=True, kw_only=True, slots=True)
class DisplayPreferences:
    language: str = ENGLISH
    theme: str = "auto"
    clock: str = "mine"
    #: The reader's zone; `chosen` if it was said and not guessed.
    zone: str = "UTC"
    zone_chosen: bool = False
    era: str = "ce"
    shortcuts: str = "on"


def parse_display_cookie(cookie: str) -> dict[str, str]:
    """What a cookie says that we can use; the rest of it is left out."""
    try:
        pairs = parse_qsl(cookie, max_num_fields=20) if len(cookie) < 500 else []
    except ValueError:
        return {}
    return {
        name: value
        for name, value in pairs
        if value in _CHOICES.get(name, ()) or (name in ("zone", "seen_zone") and _is_zone(value))
    }


def resolve_display(
    cookie: str, *, accept_language: str, default_zone: str, preferred: Preferences | None = None
) -> DisplayPreferences:
    """From what was chosen here, what the owner has chosen anywhere, and what the browser says.

    `seen_zone` is the browser's own, which a script has noticed; it is only a guess."""
    chosen = parse_display_cookie(cookie)
    owner = preferred or Preferences()
    language = chosen.get("language") or owner.language or accepted(accept_language)
    zone = chosen.get("zone") or owner.timezone
    return DisplayPreferences(
        language=language,
        theme=chosen.get("theme") or owner.theme or "auto",
        clock=chosen.get("clock") or owner.clock or "mine",
        zone=zone or chosen.get("seen_zone") or default_zone,
        zone_chosen=zone is not None,
        era=chosen.get("era") or owner.era or "ce",
        shortcuts=chosen.get("shortcuts") or owner.shortcuts or "on",
    )


def with_choices(cookie: str, wanted: Mapping[str, str]) -> str:
    """The cookie after somebody chose; InvalidInput for what there is not. An empty zone forgets
    the choice."""
    chosen = parse_display_cookie(cookie)
    for name, value in wanted.items():
        if name == "zone":
            if value:
                chosen["zone"] = parse_zone(value).name
            else:
                chosen.pop("zone", None)
        elif value in _CHOICES.get(name, ()):
            chosen[name] = value
        else:
            raise InvalidInput(field=name, code="unknown_choice")
    return urlencode(chosen)


def primary_zone(display: DisplayPreferences, zone: str | None) -> str:
    """The zone by which a time of something in `zone` is shown first."""
    if display.clock == "utc":
        return "UTC"
    if display.clock == "schedule" and zone is not None:
        return zone
    return display.zone


def secondary_zone(display: DisplayPreferences, zone: str | None) -> str | None:
    """The zone for the second line, where there is one to show."""
    if display.clock == "mine" and zone is not None and zone != display.zone:
        return zone
    if display.clock == "schedule" and zone is not None and zone != display.zone:
        return display.zone
    return None


def _is_zone(name: str) -> bool:
    try:
        parse_zone(name)
    except InvalidInput:
        return False
    return True


# @@ The cookies of the dashboard, and what guards forms (RELIABILITY 8).
#
# Over https they are `__Host-` and Secure; on plain http (loopback) their names have the port, so
# that two servers on one machine do not sign each other's people out.

SESSION = "session"
#: Guards forms of those who have no session: open mode, and the login page.
GUARD = "guard"
FLASH = "flash"
_HEX = 16


def _name(request: Request, what: str) -> str:
    if _encrypted(request):
        return f"__Host-chimes_{what}"
    return f"chimes_{what}_{request.url.port or 80}"


def _encrypted(request: Request) -> bool:
    return bool(request.url.scheme == "https")


def cookie(request: Request, what: str) -> str:
    return request.cookies.get(_name(request, what), "")[:4000]


def set_cookie(
    request: Request,
    response: Response,
    what: str,
    value: str,
    *,
    lasts: timedelta | None = None,
) -> None:
    """Lax and not strict: whoever follows a link from elsewhere is still the same visitor."""
    response.set_cookie(
        _name(request, what),
        value,
        max_age=None if lasts is None else int(lasts.total_seconds()),
        path="/",
        secure=_encrypted(request),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(request: Request, response: Response, what: str) -> None:
    response.delete_cookie(
        _name(request, what), path="/", secure=_encrypted(request), httponly=True, samesite="lax"
    )


def new_guard() -> str:
    return secrets.token_hex(_HEX)


def form_token(secret: str) -> str:
    """What each form carries: whoever cannot read the cookie cannot know it (S49)."""
    return hashlib.sha256(f"form:{secret}".encode()).hexdigest()[:40]


def token_matches(secret: str, given: str) -> bool:
    return bool(secret) and hmac.compare_digest(form_token(secret).encode(), given.encode())


# @@ How somebody likes lists: as what, and without which columns. In a cookie of this browser.

_COOKIE = "lists"
_A_YEAR = timedelta(days=365)
VIEWS = ("table", "cards", "month")
#: What can be left out of a row, in the order of the page; the rest is what makes it a row.
COLUMNS: Mapping[ListName, Mapping[str, Message]] = {
    ListName.SCHEDULES: {
        "status": _("Status"),
        "labels": _("Labels"),
        "owner": _("Owner"),
        "kind": _("Kind"),
        "when": _("When"),
        "zone": _("Time zone"),
        "results": _("Results"),
        "duration": _("Duration"),
        "next": _("Next"),
    },
    ListName.RUNS: {
        "origin": _("Origin"),
        "planned": _("Planned for"),
        "lag": _("Lag"),
        "started": _("Started"),
        "duration": _("Duration"),
        "attempt": _("Attempt"),
        "node": _("Node"),
        "error": _("Error"),
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ListChoices:
    view: str = VIEWS[0]
    hidden: Mapping[ListName, frozenset[str]] = field(default_factory=dict)

    def shows(self, list_: ListName) -> tuple[str, ...]:
        """Those that are not hidden: a column that a newer version brings is seen."""
        hidden = self.hidden.get(list_, frozenset())
        return tuple(name for name in COLUMNS[list_] if name not in hidden)

    @property
    def text(self) -> str:
        found = {"view": self.view}
        found |= {list_.value: ".".join(sorted(names)) for list_, names in self.hidden.items()}
        return urlencode({name: value for name, value in found.items() if value})


def parse_list_choices(text: str) -> ListChoices:
    """What a cookie says that we can use; the rest of it is left out."""
    try:
        given = dict(parse_qsl(text, max_num_fields=10)) if len(text) < 1000 else {}
    except ValueError:
        given = {}
    view = given.get("view", "")
    hidden = {
        list_: frozenset(given.get(list_.value, "").split(".")) & COLUMNS[list_].keys()
        for list_ in ListName
    }
    return ListChoices(
        view=view if view in VIEWS else VIEWS[0],
        hidden={list_: names for list_, names in hidden.items() if names},
    )


def with_view(before: ListChoices, view: str) -> ListChoices:
    """As the address says, if it says something that there is."""
    return ListChoices(view=view, hidden=before.hidden) if view in VIEWS else before


def with_columns(before: ListChoices, list_: ListName, shown: Iterable[str]) -> ListChoices:
    """InvalidInput for a column that there is not."""
    wanted = frozenset(shown)
    if unknown := wanted - COLUMNS[list_].keys():
        raise InvalidInput(
            _("there is no column {name!r}", name=min(unknown)), field="column", code="unknown"
        )
    hidden = frozenset(COLUMNS[list_]) - wanted
    return ListChoices(view=before.view, hidden={**before.hidden, list_: hidden})


def parse_list_name(text: str) -> ListName:
    if text not in set(ListName):
        raise InvalidInput(_("one of {known}", known=", ".join(ListName)), field="list")
    return ListName(text)


def list_choices_of(request: Request) -> ListChoices:
    return parse_list_choices(cookie(request, _COOKIE))


def remember_list_choices(request: Request, response: Response, choices: ListChoices) -> Response:
    """Only where it is new: most answers set no cookie."""
    if choices != list_choices_of(request):
        set_cookie(request, response, _COOKIE, choices.text, lasts=_A_YEAR)
    return response
