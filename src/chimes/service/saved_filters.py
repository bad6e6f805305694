"""Filters that somebody has given a name: each owner's own. Where nobody signs in there is one
owner, so everybody shares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.service.audit import entry
from chimes.service.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.wording import say

#: Of one owner, over all lists.
MOST = 50
LONGEST_NAME, LONGEST_TEXT = 60, 500
_STATE = "filters:"


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

    async def of(self, actor: Actor) -> tuple[SavedFilter, ...]:
        """By name."""
        return _read(await self._document(actor).read())

    async def save(self, actor: Actor, list_: ListName, name: str, text: str) -> SavedFilter:
        """Under a name that is taken it replaces what was there. InvalidInput; Conflict if there
        are `MOST` already."""
        name, text = _name(name), _text(text)
        saved = SavedFilter(list=list_, name=name, text=text)

        def change(kept: Sequence[SavedFilter]) -> Sequence[SavedFilter]:
            others = [each for each in kept if not _same(each, list_, name)]
            if len(others) >= MOST:
                raise Conflict(
                    say("there are {most} saved filters already; remove one first", most=MOST),
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
                raise Conflict(say("there is a filter {name!r} already", name=new), code="taken")
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
            after = change(_read(found))
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
        return DocumentStore(self._store, f"{_STATE}{actor.owner}")


def _found(kept: Iterable[SavedFilter], list_: ListName, name: str) -> SavedFilter:
    for each in kept:
        if _same(each, list_, name):
            return each
    raise NotFound(say("there is no filter {name!r}", name=name))


def _same(saved: SavedFilter, list_: ListName, name: str) -> bool:
    return saved.list is list_ and saved.name.casefold() == name.casefold()


def _name(text: str, field: str = "name") -> str:
    name = " ".join(text.split())
    if not name:
        raise InvalidInput(say("a filter needs a name"), field=field, code="missing")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            say("a name has at most {most} characters, all of them visible", most=LONGEST_NAME),
            field=field,
            code="bad_name",
        )
    return name


def _text(text: str) -> str:
    found = text.strip()
    if not found:
        raise InvalidInput(
            say("there is nothing to save: filter the list first"), field="q", code="missing"
        )
    if len(found) > LONGEST_TEXT or "\0" in found:
        raise InvalidInput(
            say("a filter has at most {most} characters", most=LONGEST_TEXT),
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


def _read(document: Document) -> tuple[SavedFilter, ...]:
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
