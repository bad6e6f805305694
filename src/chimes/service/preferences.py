"""What an owner likes: the zone of its schedules, the language in which it is spoken to, and how
pages look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from chimes.errors import InvalidInput, NotAllowed
from chimes.language.choosing import LANGUAGES, known
from chimes.model.access import Actor, Owner
from chimes.service.audit import entry
from chimes.store.port import Store
from chimes.triggers.zone import parse_zone
from chimes.wording import say

_STATE = "me:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preferences:
    """None: not chosen."""

    timezone: str | None = None
    language: str | None = None
    #: Of the dashboard: one of `LOOKS` each.
    theme: str | None = None
    clock: str | None = None
    era: str | None = None
    shortcuts: str | None = None


#: How pages can look: the theme, whose clock times are shown by, which years, and whether letters
#: are shortcuts.
LOOKS: Mapping[str, tuple[str, ...]] = {
    "theme": ("auto", "light", "dark"),
    "clock": ("schedule", "mine", "utc"),
    "era": ("ce", "be"),
    "shortcuts": ("on", "off"),
}
NOTHING_CHOSEN = Preferences()


class PreferenceService:
    """Every reading is of the store: a schedule must not get the zone that its owner had a second
    ago on another node."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, owner: Owner) -> Preferences:
        state = await self._store.read_state(f"{_STATE}{owner}")
        return NOTHING_CHOSEN if state is None else _read(state.value)

    async def change(
        self, actor: Actor, chosen: Mapping[str, str | None], *, owner: Owner | None = None
    ) -> Preferences:
        """Set the named ones (`timezone`, `language`, and those of `LOOKS`); None forgets one.
        `owner`: None is the actor's own; somebody else's are for an admin."""
        owner = owner or actor.owner
        if not _may_choose(actor, owner):
            raise NotAllowed()
        before = await self.of(owner)
        after = Preferences(
            **{
                name: _checked(name, chosen[name]) if name in chosen else value
                for name, value in asdict(before).items()
            }
        )
        if after == before:
            return before
        note = entry(
            actor,
            "update_preferences",
            "owner",
            str(owner),
            at=await self._store.now(),
            owner=owner,
            changes=_changes(before, after),
        )
        value = None
        if after != NOTHING_CHOSEN:
            value = json.dumps({name: each for name, each in asdict(after).items() if each})
        await self._store.set_state(f"{_STATE}{owner}", value, note)
        return after


def _may_choose(actor: Actor, owner: Owner) -> bool:
    """Whoever writes no schedules is somebody with a language all the same. (A viewer's key without
    scopes is a person's; a narrowed one changes nothing but what its scopes say.)"""
    own = owner == actor.owner and not actor.scopes
    return own or actor.may_write(owner)


def _changes(before: Preferences, after: Preferences) -> dict[str, object]:
    old, new = asdict(before), asdict(after)
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}


def _checked(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    match name:
        case "timezone":
            return _zone(value)
        case "language":
            return _language(value)
    if value not in LOOKS[name]:
        raise InvalidInput(
            say("one of {known}", known=", ".join(LOOKS[name])), field=name, code="unknown_choice"
        )
    return value


def _zone(name: str) -> str:
    return parse_zone(name).name


def _language(tag: str) -> str:
    found = known(tag)
    if found is None:
        raise InvalidInput(
            say("a language is one of {languages}", languages=", ".join(LANGUAGES)),
            field="language",
            code="unknown_language",
        )
    return found


def _read(text: str) -> Preferences:
    """What was damaged, or is no longer known, counts as not chosen."""
    try:
        found = json.loads(text)
    except ValueError:
        return NOTHING_CHOSEN
    if not isinstance(found, dict):
        return NOTHING_CHOSEN
    return Preferences(**{name: _kept(name, found.get(name)) for name in asdict(NOTHING_CHOSEN)})


def _kept(name: str, value: object) -> str | None:
    try:
        return _checked(name, value) if isinstance(value, str) else None
    except InvalidInput:
        return None
