"""What an owner likes: the zone of its schedules, the language in which it is spoken to, and how
pages look."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import StrEnum

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound, StoreUnavailable
from chimes.i18n import _
from chimes.language.languages import LANGUAGES, known
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH
from chimes.services.audit import entry
from chimes.store.port import Store
from chimes.triggers.zones import parse_zone

_STATE = "me:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preferences:
    """None: not chosen."""

    timezone: str | None = None
    language: str | None = None
    #: Of the dashboard: one of `DISPLAY_CHOICES` each.
    theme: str | None = None
    clock: str | None = None
    era: str | None = None
    shortcuts: str | None = None


#: How pages can look: the theme, whose clock times are shown by, which years, and whether letters
#: are shortcuts.
DISPLAY_CHOICES: Mapping[str, tuple[str, ...]] = {
    "theme": ("auto", "light", "dark"),
    "clock": ("schedule", "mine", "utc"),
    "era": ("ce", "be"),
    "shortcuts": ("on", "off"),
}
NO_PREFERENCES = Preferences()


class PreferenceService:
    """Every reading is of the store: a schedule must not get the zone that its owner had a second
    ago on another node."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, owner: Owner) -> Preferences:
        state = await self._store.get_checkpoint(f"{_STATE}{owner}")
        return NO_PREFERENCES if state is None else _read(state.value)

    async def change(
        self, actor: Actor, chosen: Mapping[str, str | None], *, owner: Owner | None = None
    ) -> Preferences:
        """Set the named ones (`timezone`, `language`, and those of `DISPLAY_CHOICES`); None forgets one.
        `owner`: None is the actor's own; somebody else's are for an admin."""
        owner = owner or actor.owner
        if not _may_choose(actor, owner):
            raise NotAllowed()
        before = await self.get(owner)
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
        if after != NO_PREFERENCES:
            value = json.dumps({name: each for name, each in asdict(after).items() if each})
        await self._store.set_checkpoint(f"{_STATE}{owner}", value, note)
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
    if value not in DISPLAY_CHOICES[name]:
        raise InvalidInput(
            _("one of {known}", known=", ".join(DISPLAY_CHOICES[name])),
            field=name,
            code="unknown_choice",
        )
    return value


def _zone(name: str) -> str:
    return parse_zone(name).name


def _language(tag: str) -> str:
    found = known(tag)
    if found is None:
        raise InvalidInput(
            _("a language is one of {languages}", languages=", ".join(LANGUAGES)),
            field="language",
            code="unknown_language",
        )
    return found


def _read(text: str) -> Preferences:
    """What was damaged, or is no longer known, counts as not chosen."""
    try:
        found = json.loads(text)
    except ValueError:
        return NO_PREFERENCES
    if not isinstance(found, dict):
        return NO_PREFERENCES
    return Preferences(**{name: _kept(name, found.get(name)) for name in asdict(NO_PREFERENCES)})


def _kept(name: str, value: object) -> str | None:
    try:
        return _checked(name, value) if isinstance(value, str) else None
    except InvalidInput:
        return None


# @@ Small documents that people change: one at a time, whatever the store and however many nodes.
#
# A kept state has no version to compare, so a change is made under a mark that only one can set.

_SCOPE = "changing"
#: Who holds the mark may have died.
_HOLD = timedelta(seconds=10)
_TRIES, _PAUSE = 400, 0.03

Document = dict[str, object]


class DocumentStore:
    """A named JSON object."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def read(self) -> Document:
        """Empty if there is none, or if it was damaged."""
        state = await self._store.get_checkpoint(self._name)
        if state is None:
            return {}
        try:
            found = json.loads(state.value)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    async def write(self, document: Document, audit: AuditEntry | None = None) -> None:
        """Only within `changing`. An empty one is forgotten."""
        if not document:
            await self._store.set_checkpoint(self._name, None, audit)
            return
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        if len(text) > MAX_CHECKPOINT_LENGTH:
            raise StoreUnavailable(_("{name} has grown too large", name=self._name))
        await self._store.set_checkpoint(self._name, text, audit)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[Document]:
        """The document as it is, while nobody else changes it. StoreUnavailable if somebody does
        for too long."""
        mine = secrets.token_hex(8)
        for _unused in range(_TRIES):
            holder = await self._store.remember_request(_SCOPE, self._name, mine, keep=_HOLD)
            if holder is None:
                break
            await asyncio.sleep(_PAUSE)
        else:
            raise StoreUnavailable(_("somebody else is changing {name}", name=self._name))
        try:
            yield await self.read()
        finally:
            await self._store.forget_request(_SCOPE, self._name)


# @@ Filters that somebody has given a name: each owner's own. Where nobody signs in there is one
# owner, so everybody shares them.

#: Of one owner, over all lists.
MOST = 50
LONGEST_NAME, LONGEST_TEXT = 60, 500
_STATE_SAVED_FILTERS = "filters:"


class ListName(StrEnum):
    """What is filtered."""

    SCHEDULES = "schedules"
    RUNS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedFilter:
    list: ListName
    #: Unique within its list, whatever the case.
    name: str
    #: As it stands in the box: `status:failed since:7d`.
    text: str


_Change = Callable[[Sequence[SavedFilter]], Sequence[SavedFilter]]


class SavedFilters:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_filters(self, actor: Actor) -> tuple[SavedFilter, ...]:
        """By name."""
        return _read_saved_filters(await self._document(actor).read())

    async def save(self, actor: Actor, list_: ListName, name: str, text: str) -> SavedFilter:
        """Under a name that is taken it replaces what was there. InvalidInput; Conflict if there
        are `MOST` already."""
        name, text = _name(name), _text(text)
        saved = SavedFilter(list=list_, name=name, text=text)

        def change(kept: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            others = [each for each in kept if not _same(each, list_, name)]
            if len(others) >= MOST:
                raise Conflict(
                    _("there are {most} saved filters already; remove one first", most=MOST),
                    code="too_many",
                )
            return [*others, saved]

        await self._change(actor, change, "save_filter", {"name": name, "filter": text})
        return saved

    async def rename(self, actor: Actor, list_: ListName, name: str, to: str) -> SavedFilter:
        """NotFound; Conflict if another has that name; InvalidInput."""
        new = _name(to, field="to")
        renamed: list[SavedFilter] = []

        def change(kept: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            before = _found(kept, list_, name)
            others = [each for each in kept if each != before]
            if any(_same(each, list_, new) for each in others):
                raise Conflict(_("there is a filter {name!r} already", name=new), code="taken")
            renamed.append(replace(before, name=new))
            return [*others, *renamed]

        await self._change(actor, change, "rename_filter", {"name": [name, new]})
        return renamed[-1]

    async def remove(self, actor: Actor, list_: ListName, name: str) -> SavedFilter:
        """What it was, so that it can be saved again. NotFound."""
        gone: list[SavedFilter] = []

        def change(kept: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            gone.append(_found(kept, list_, name))
            return [each for each in kept if each != gone[-1]]

        await self._change(actor, change, "remove_filter", {"name": name})
        return gone[-1]

    async def _change(
        self,
        actor: Actor,
        change: _Change,
        verb: str,
        changes: Mapping[str, object],
    ) -> None:
        # What somebody looks at is its own affair, unless a key is narrowed down to less.
        if actor.scopes and not actor.may_write(actor.owner):
            raise NotAllowed()
        document = self._document(actor)
        async with document.changing() as found:
            after = change(_read_saved_filters(found))
            note = entry(
                actor,
                verb,
                "owner",
                str(actor.owner),
                at=await self._store.now(),
                owner=actor.owner,
                changes=changes,
            )
            await document.write(_written(after), note)

    def _document(self, actor: Actor) -> DocumentStore:
        return DocumentStore(self._store, f"{_STATE_SAVED_FILTERS}{actor.owner}")


def _found(kept: Iterable[SavedFilter], list_: ListName, name: str) -> SavedFilter:
    for each in kept:
        if _same(each, list_, name):
            return each
    raise NotFound(_("there is no filter {name!r}", name=name))


def _same(saved: SavedFilter, list_: ListName, name: str) -> bool:
    return saved.list is list_ and saved.name.casefold() == name.casefold()


def _name(text: str, field: str = "name") -> str:
    name = " ".join(text.split())
    if not name:
        raise InvalidInput(_("a filter needs a name"), field=field, code="missing")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            _("a name has at most {most} characters, all of them visible", most=LONGEST_NAME),
            field=field,
            code="bad_name",
        )
    return name


def _text(text: str) -> str:
    found = text.strip()
    if not found:
        raise InvalidInput(
            _("there is nothing to save: filter the list first"), field="q", code="missing"
        )
    if len(found) > LONGEST_TEXT or "\0" in found:
        raise InvalidInput(
            _("a filter has at most {most} characters", most=LONGEST_TEXT),
            field="q",
            code="too_long",
        )
    return found


def _written(kept: Iterable[SavedFilter]) -> Document:
    document: Document = {}
    for list_ in ListName:
        named = {each.name: each.text for each in kept if each.list is list_}
        if named:
            document[list_.value] = named
    return document


def _read_saved_filters(document: Document) -> tuple[SavedFilter, ...]:
    """What was damaged counts as not there."""
    found = []
    for list_ in ListName:
        named = document.get(list_.value)
        if isinstance(named, dict):
            found += [
                SavedFilter(list=list_, name=name, text=text)
                for name, text in named.items()
                if isinstance(name, str) and isinstance(text, str)
            ]
    return tuple(sorted(found, key=lambda each: (each.name.casefold(), each.list)))
