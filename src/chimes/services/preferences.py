"""Preferences of an owner: time zone, language, display options and saved filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.language.languages import LANGUAGES, known
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers.zones import parse_zone

_PREFERENCE_STATE = "me:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preferences:
    """None: not set."""

    timezone: str | None = None
    language: str | None = None
    #: Display options of the dashboard; values in `DISPLAY_CHOICES`.
    theme: str | None = None
    clock: str | None = None
    era: str | None = None
    shortcuts: str | None = None


#: Display options of the dashboard: theme, clock of displayed times, calendar era, keyboard
#: shortcuts.
DISPLAY_CHOICES: Mapping[str, tuple[str, ...]] = {
    "theme": ("auto", "light", "dark"),
    "clock": ("schedule", "mine", "utc"),
    "era": ("ce", "be"),
    "shortcuts": ("on", "off"),
}
NO_PREFERENCES = Preferences()


class PreferenceService:
    """Not cached: a schedule must not get an outdated zone that was changed on another node."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, owner: Owner) -> Preferences:
        return _read(await self._document(owner).read())

    async def change(
        self, actor: Actor, chosen: Mapping[str, str | None], *, owner: Owner | None = None
    ) -> Preferences:
        """Sets the named preferences; None removes one. `owner`: None is the actor's owner; an
        admin may change the preferences of others."""
        owner = owner or actor.owner
        if not _may_change(actor, owner):
            raise NotAllowed()
        now = await self._store.now()

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            before = _read(stored)
            after = Preferences(
                **{
                    name: _checked(name, chosen[name]) if name in chosen else value
                    for name, value in asdict(before).items()
                }
            )
            if after == before:
                return stored, None
            audit = entry(
                actor,
                "update_preferences",
                "owner",
                str(owner),
                at=now,
                owner=owner,
                changes=_changes(before, after),
            )
            return {name: each for name, each in asdict(after).items() if each}, audit

        return _read(await self._document(owner).change(change))

    def _document(self, owner: Owner) -> DocumentStore:
        return DocumentStore(self._store, f"{_PREFERENCE_STATE}{owner}")


def _may_change(actor: Actor, owner: Owner) -> bool:
    """A viewer may change its own preferences, but a key with scopes only what they allow."""
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
            _("must be one of {known}", known=", ".join(DISPLAY_CHOICES[name])),
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
            _("language must be one of {languages}", languages=", ".join(LANGUAGES)),
            field="language",
            code="unknown_language",
        )
    return found


def _read(stored: Document) -> Preferences:
    """Corrupt or unknown values count as not set."""
    return Preferences(
        **{name: _valid_or_none(name, stored.get(name)) for name in asdict(NO_PREFERENCES)}
    )


def _valid_or_none(name: str, value: object) -> str | None:
    try:
        return _checked(name, value) if isinstance(value, str) else None
    except InvalidInput:
        return None


# --- saved filters --------------------------------------------------------------------------------
#: Saved filters of one owner, over all lists.
MAX_SAVED_FILTERS = 50
MAX_FILTER_NAME, MAX_FILTER_TEXT = 60, 500
_FILTER_STATE = "filters:"


class ListName(StrEnum):
    """The list that a filter belongs to."""

    SCHEDULES = "schedules"
    RUNS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedFilter:
    list: ListName
    #: Unique within its list, ignoring case.
    name: str
    #: The filter expression, such as `status:failed since:7d`.
    text: str


_Change = Callable[[Sequence[SavedFilter]], Sequence[SavedFilter]]


class SavedFilters:
    """Named filters of an owner. In open mode all users share one owner."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_filters(self, actor: Actor) -> tuple[SavedFilter, ...]:
        """Sorted by name."""
        return _read_filters(await self._document(actor).read())

    async def save(self, actor: Actor, list_: ListName, name: str, text: str) -> SavedFilter:
        """Saves a filter and replaces one of the same name. Raises InvalidInput, and Conflict
        beyond MAX_SAVED_FILTERS."""
        name, text = _name(name), _text(text)
        saved = SavedFilter(list=list_, name=name, text=text)

        def change(saved_filters: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            others = [each for each in saved_filters if not _same(each, list_, name)]
            if len(others) >= MAX_SAVED_FILTERS:
                raise Conflict(
                    _("at most {most} saved filters; remove one first", most=MAX_SAVED_FILTERS),
                    code="too_many",
                )
            return [*others, saved]

        await self._change(actor, change, "save_filter", {"name": name, "filter": text})
        return saved

    async def rename(self, actor: Actor, list_: ListName, name: str, to: str) -> SavedFilter:
        """Raises NotFound, InvalidInput, and Conflict if the new name is taken."""
        new = _name(to, field="to")

        def change(saved_filters: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            before = _get(saved_filters, list_, name)
            others = [each for each in saved_filters if each != before]
            if any(_same(each, list_, new) for each in others):
                raise Conflict(_("a filter named {name!r} already exists", name=new), code="taken")
            return [*others, replace(before, name=new)]

        after = await self._change(actor, change, "rename_filter", {"name": [name, new]})
        return _get(after, list_, new)

    async def remove(self, actor: Actor, list_: ListName, name: str) -> SavedFilter:
        """Removes a filter and returns it, so that it can be restored. Raises NotFound."""
        gone: list[SavedFilter] = []

        def change(saved_filters: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            gone.append(_get(saved_filters, list_, name))
            return [each for each in saved_filters if each != gone[-1]]

        await self._change(actor, change, "remove_filter", {"name": name})
        return gone[-1]

    async def _change(
        self,
        actor: Actor,
        change: _Change,
        verb: str,
        changes: Mapping[str, object],
    ) -> tuple[SavedFilter, ...]:
        # Every role may save filters, but a key with scopes only what they allow.
        if actor.scopes and not actor.may_write(actor.owner):
            raise NotAllowed()
        audit = entry(
            actor,
            verb,
            "owner",
            str(actor.owner),
            at=await self._store.now(),
            owner=actor.owner,
            changes=changes,
        )
        return _read_filters(
            await self._document(actor).change(
                lambda stored: (_to_document(change(_read_filters(stored))), audit)
            )
        )

    def _document(self, actor: Actor) -> DocumentStore:
        return DocumentStore(self._store, f"{_FILTER_STATE}{actor.owner}")


def _get(saved_filters: Iterable[SavedFilter], list_: ListName, name: str) -> SavedFilter:
    for each in saved_filters:
        if _same(each, list_, name):
            return each
    raise NotFound(_("filter {name!r} not found", name=name))


def _same(saved: SavedFilter, list_: ListName, name: str) -> bool:
    return saved.list is list_ and saved.name.casefold() == name.casefold()


def _name(text: str, field: str = "name") -> str:
    name = " ".join(text.split())
    if not name:
        raise InvalidInput(_("a filter needs a name"), field=field, code="missing")
    if len(name) > MAX_FILTER_NAME or not name.isprintable():
        raise InvalidInput(
            _("a name has at most {most} printable characters", most=MAX_FILTER_NAME),
            field=field,
            code="bad_name",
        )
    return name


def _text(text: str) -> str:
    found = text.strip()
    if not found:
        raise InvalidInput(
            _("the filter is empty; filter the list first"), field="q", code="missing"
        )
    if len(found) > MAX_FILTER_TEXT or "\0" in found:
        raise InvalidInput(
            _("a filter has at most {most} characters", most=MAX_FILTER_TEXT),
            field="q",
            code="too_long",
        )
    return found


def _to_document(saved_filters: Iterable[SavedFilter]) -> Document:
    document: Document = {}
    for list_ in ListName:
        named = {each.name: each.text for each in saved_filters if each.list is list_}
        if named:
            document[list_.value] = named
    return document


def _read_filters(document: Document) -> tuple[SavedFilter, ...]:
    """Corrupt parts are ignored."""
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
