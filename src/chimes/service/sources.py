"""The sources that this node knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from chimes.errors import Conflict, NotAllowed
from chimes.model.access import Actor
from chimes.model.source import Sources
from chimes.wording import say

Word = Literal["created", "updated", "deleted", "unchanged", "kept"]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What becomes of one schedule, by its name `source/collection`."""

    name: str
    #: `kept`: the file does not have it, but another node that is alive does.
    what: Word


@dataclass(frozen=True, kw_only=True, slots=True)
class Reloaded:
    file: str
    changes: tuple[SourceChange, ...]


#: Reads the file again; True: only says what would change.
Reload = Callable[[bool], Awaitable[Reloaded]]


class KnownSources:
    """Those of this node's file as it was last read: a reload puts others in their place."""

    def __init__(self, sources: Sources | None = None, *, file: str = "") -> None:
        self._sources = sources or Sources()
        self._reload: Reload | None = None
        #: Where they stand; empty: there is no file.
        self.file = file

    @property
    def now(self) -> Sources:
        """A frozen value: whoever goes on for a while takes it once."""
        return self._sources

    def put(self, sources: Sources) -> None:
        self._sources = sources

    def reloaded_by(self, reload: Reload) -> None:
        self._reload = reload

    async def reload(self, actor: Actor, *, dry_run: bool = False) -> Reloaded:
        """Raises ConfigError, and leaves everything as it is, for a file that is not valid."""
        if not actor.administers:
            raise NotAllowed()
        if self._reload is None or not self.file:
            raise Conflict(say("this node has no configuration file to read again"), code="no_file")
        return await self._reload(dry_run)
