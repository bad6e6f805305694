"""What an owner likes: the zone of its schedules, and the language in which it is spoken to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

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
        """Set the named ones (`timezone`, `language`); None forgets one. `owner`: None is the
        actor's own; somebody else's are for an admin."""
        owner = owner or actor.owner
        if not _may_choose(actor, owner):
            raise NotAllowed()
        before = await self.of(owner)
        wanted = {"timezone": before.timezone, "language": before.language}
        if "timezone" in chosen:
            wanted["timezone"] = _zone(chosen["timezone"])
        if "language" in chosen:
            wanted["language"] = _language(chosen["language"])
        after = Preferences(**wanted)
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
            value = json.dumps({"timezone": after.timezone, "language": after.language})
        await self._store.set_state(f"{_STATE}{owner}", value, note)
        return after


def _may_choose(actor: Actor, owner: Owner) -> bool:
    """Whoever writes no schedules is somebody with a language all the same. (A viewer's key without
    scopes is a person's; a narrowed one changes nothing but what its scopes say.)"""
    own = owner == actor.owner and not actor.scopes
    return own or actor.may_write(owner)


def _changes(before: Preferences, after: Preferences) -> dict[str, object]:
    pairs = {
        "timezone": [before.timezone, after.timezone],
        "language": [before.language, after.language],
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _zone(name: str | None) -> str | None:
    return None if name is None else parse_zone(name).name


def _language(tag: str | None) -> str | None:
    if tag is None:
        return None
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
    timezone, language = found.get("timezone"), found.get("language")
    try:
        zone = _zone(timezone) if isinstance(timezone, str) else None
    except InvalidInput:
        zone = None
    return Preferences(
        timezone=zone, language=known(language) if isinstance(language, str) else None
    )
