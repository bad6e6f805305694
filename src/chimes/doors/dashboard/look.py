"""How somebody wants to see pages: language, theme, zone, calendar. It is in one cookie, so that a
page comes right at once, also before anybody has signed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from chimes.errors import InvalidInput
from chimes.language.choosing import LANGUAGES, accepted
from chimes.service.preferences import LOOKS, Preferences
from chimes.triggers.zone import parse_zone
from chimes.wording import ENGLISH

COOKIE = "chimes_look"
_CHOICES: Mapping[str, tuple[str, ...]] = {"language": tuple(LANGUAGES), **LOOKS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    language: str = ENGLISH
    theme: str = "auto"
    clock: str = "mine"
    #: The reader's zone; `chosen` if it was said and not guessed.
    zone: str = "UTC"
    zone_chosen: bool = False
    era: str = "ce"
    shortcuts: str = "on"


def chosen_in(cookie: str) -> dict[str, str]:
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


def look_of(
    cookie: str, *, accept_language: str, default_zone: str, preferred: Preferences | None = None
) -> Look:
    """From what was chosen here, what the owner has chosen anywhere, and what the browser says.

    `seen_zone` is the browser's own, which a script has noticed; it is only a guess."""
    chosen = chosen_in(cookie)
    owner = preferred or Preferences()
    language = chosen.get("language") or owner.language or accepted(accept_language)
    zone = chosen.get("zone") or owner.timezone
    return Look(
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
    chosen = chosen_in(cookie)
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


def by_clock(look: Look, zone: str | None) -> str:
    """The zone by which a time of something in `zone` is shown first."""
    if look.clock == "utc":
        return "UTC"
    if look.clock == "schedule" and zone is not None:
        return zone
    return look.zone


def second_zone(look: Look, zone: str | None) -> str | None:
    """The zone for the second line, where there is one to show."""
    if look.clock == "mine" and zone is not None and zone != look.zone:
        return zone
    if look.clock == "schedule" and zone is not None and zone != look.zone:
        return look.zone
    return None


def in_zone(look: Look, zone: str) -> Look:
    return replace(look, zone=zone, zone_chosen=True)


def _is_zone(name: str) -> bool:
    try:
        parse_zone(name)
    except InvalidInput:
        return False
    return True
