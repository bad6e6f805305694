"""Cookies of the dashboard: display preferences, session, CSRF secret and list views.

Display preferences are in a cookie so that they apply before login, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, Message, _
from chimes.language.languages import LANGUAGES, accepted
from chimes.services.preferences import DISPLAY_CHOICES, ListName, Preferences
from chimes.triggers.zones import parse_zone

COOKIE = "chimes_look"
_CHOICES: Mapping[str, tuple[str, ...]] = {"language": tuple(LANGUAGES), **DISPLAY_CHOICES}


@dataclass(frozen=True, kw_only=True, slots=True)
class DisplayPreferences:
    language: str = ENGLISH
    theme: str = "auto"
    clock: str = "mine"
    zone: str = "UTC"
    #: False: the zone was detected from the browser or is the default.
    zone_chosen: bool = False
    era: str = "ce"
    shortcuts: str = "on"


def parse_display_cookie(cookie: str) -> dict[str, str]:
    """The valid choices of a cookie; invalid ones are ignored."""
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
    """From the choices in this browser, else the preferences of the owner, else the browser's
    language and the time zone that a script detected (`seen_zone`)."""
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
    """The cookie with changed choices; InvalidInput for an unknown one. An empty zone removes the
    choice."""
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
    """The zone in which a time of a schedule in `zone` is shown first."""
    if display.clock == "utc":
        return "UTC"
    if display.clock == "schedule" and zone is not None:
        return zone
    return display.zone


def secondary_zone(display: DisplayPreferences, zone: str | None) -> str | None:
    """The zone of the second line; None: there is no second line."""
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


# Over https the cookies are `__Host-` and Secure; on plain http (loopback) their names contain the
# port, so that two servers on one machine do not overwrite each other's sessions.

SESSION = "session"
#: CSRF secret of forms without a session: in open mode and on the login page.
GUARD = "guard"
FLASH = "flash"
#: State of a sign-in through an identity provider.
SIGN_IN = "sign_in"
_CSRF_SECRET_BYTES = 16


def _cookie_name(http: Request, name: str) -> str:
    if _is_https(http):
        return f"__Host-chimes_{name}"
    return f"chimes_{name}_{http.url.port or 80}"


def _is_https(http: Request) -> bool:
    return bool(http.url.scheme == "https")


def cookie(http: Request, name: str) -> str:
    return http.cookies.get(_cookie_name(http, name), "")[:4000]


def set_cookie(
    http: Request,
    response: Response,
    name: str,
    value: str,
    *,
    max_age: timedelta | None = None,
) -> None:
    """Lax and not strict: a link from another site must not lose the session."""
    response.set_cookie(
        _cookie_name(http, name),
        value,
        max_age=None if max_age is None else int(max_age.total_seconds()),
        path="/",
        secure=_is_https(http),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(http: Request, response: Response, name: str) -> None:
    response.delete_cookie(
        _cookie_name(http, name), path="/", secure=_is_https(http), httponly=True, samesite="lax"
    )


def new_csrf_secret() -> str:
    return secrets.token_hex(_CSRF_SECRET_BYTES)


def form_token(secret: str) -> str:
    """The CSRF token of forms: other sites cannot read the cookie that it is derived from."""
    return hashlib.sha256(f"form:{secret}".encode()).hexdigest()[:40]


def token_matches(secret: str, given: str) -> bool:
    return bool(secret) and hmac.compare_digest(form_token(secret).encode(), given.encode())


LISTS = "lists"
_A_YEAR = timedelta(days=365)
VIEWS = ("table", "cards", "month")
#: Height of the rows of tables: one line, or several with more details.
DENSITIES = ("compact", "comfortable")
#: Columns that can be hidden, in the order of the page.
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
    """View, row height and hidden columns of the lists, remembered in this browser."""

    view: str = VIEWS[0]
    density: str = DENSITIES[0]
    hidden: Mapping[ListName, frozenset[str]] = field(default_factory=dict)

    def shows(self, list_: ListName) -> tuple[str, ...]:
        """Visible columns. Hidden ones are stored, so that new columns appear after an update."""
        hidden = self.hidden.get(list_, frozenset())
        return tuple(name for name in COLUMNS[list_] if name not in hidden)

    @property
    def text(self) -> str:
        values = {"view": self.view}
        if self.density != DENSITIES[0]:
            values["density"] = self.density
        values |= {list_.value: ".".join(sorted(names)) for list_, names in self.hidden.items()}
        return urlencode({name: value for name, value in values.items() if value})


def parse_list_choices(text: str) -> ListChoices:
    """Invalid parts of the cookie are ignored."""
    try:
        given = dict(parse_qsl(text, max_num_fields=10)) if len(text) < 1000 else {}
    except ValueError:
        given = {}
    view, density = given.get("view", ""), given.get("density", "")
    hidden = {
        list_: frozenset(given.get(list_.value, "").split(".")) & COLUMNS[list_].keys()
        for list_ in ListName
    }
    return ListChoices(
        view=view if view in VIEWS else VIEWS[0],
        density=density if density in DENSITIES else DENSITIES[0],
        hidden={list_: names for list_, names in hidden.items() if names},
    )


def with_view(before: ListChoices, view: str) -> ListChoices:
    """Ignores an unknown view."""
    return replace(before, view=view) if view in VIEWS else before


def with_density(before: ListChoices, density: str) -> ListChoices:
    """InvalidInput for an unknown row height."""
    if density not in DENSITIES:
        known = ", ".join(DENSITIES)
        raise InvalidInput(
            _("must be one of {known}", known=known), field="density", code="unknown_choice"
        )
    return replace(before, density=density)


def with_columns(before: ListChoices, list_: ListName, shown: Iterable[str]) -> ListChoices:
    """InvalidInput for an unknown column."""
    wanted = frozenset(shown)
    if unknown := wanted - COLUMNS[list_].keys():
        raise InvalidInput(
            _("unknown column {name!r}", name=min(unknown)), field="column", code="unknown"
        )
    hidden = frozenset(COLUMNS[list_]) - wanted
    return replace(before, hidden={**before.hidden, list_: hidden})


def parse_list_name(text: str) -> ListName:
    if text not in set(ListName):
        raise InvalidInput(_("must be one of {known}", known=", ".join(ListName)), field="list")
    return ListName(text)


def list_choices_of(http: Request) -> ListChoices:
    return parse_list_choices(cookie(http, LISTS))


def remember_list_choices(http: Request, response: Response, choices: ListChoices) -> Response:
    """Sets the cookie only if the choices have changed."""
    if choices != list_choices_of(http):
        set_cookie(http, response, LISTS, choices.text, max_age=_A_YEAR)
    return response
