"""Which store this is (F41). A store has an id from its set-up on, and every script checks it, so
that a server that was emptied or exchanged is noticed by the next call, whatever that is.

Across restarts a small file in the data directory remembers the id: an empty server is then known
to be one that has lost its data, and not a new one. Who has no such file cannot know better and
sets an empty server up; but whoever used the store before takes another one for its own only if
somebody has said `chimes store init --force`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from chimes.errors import SchemaMismatch, StoreLost
from chimes.store.redis.address import Address
from chimes.store.redis.connections import Connections
from chimes.store.redis.scripts import FOUNDING
from chimes.store.redis.wire import texts, unpacked
from chimes.wording import say

_log = logging.getLogger(__name__)

#: How keys and records are laid out.
LAYOUT = "1"


@dataclass(frozen=True, slots=True)
class Identity:
    id: str
    layout: str
    #: Somebody said that it takes the place of whatever was there before.
    forced: bool


class Marker:
    """The file that remembers which store was used. None: there is no place for it."""

    def __init__(self, path: Path | None, address: Address) -> None:
        self._path = path
        self._location = address.shown

    def known(self) -> str:
        if self._path is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._path.read_text("utf-8"))
            if isinstance(found, dict):
                return str(found.get(self._location, ""))
        return ""

    def keep(self, store_id: str) -> None:
        if self._path is None or self.known() == store_id:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            found: dict[str, str] = {}
            with contextlib.suppress(OSError, ValueError):
                found = dict(json.loads(self._path.read_text("utf-8")))
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(found | {self._location: store_id}), "utf-8")
            draft.replace(self._path)
        except OSError as error:
            _log.warning("which store was used cannot be remembered: %s", error)


async def opened(connections: Connections, marker: Marker) -> Identity:
    """The store that is there; one that never was is set up."""
    known = marker.known()
    found = await _founded(connections, create=not known)
    if found is None:
        raise StoreLost(
            say(
                "store_lost: Redis at {address} is empty, but held data before: it"
                " was emptied, or came back without its files. Restore it, or set it up anew with"
                " chimes store init --force",
                address=connections.address.shown,
            ),
            code="store_lost",
        )
    if known and known != found.id:
        if not found.forced:
            raise exchanged(connections.address)
        _log.warning("the store at %s was set up anew since", connections.address.shown)
    marker.keep(found.id)
    return found


def exchanged(address: Address) -> StoreLost:
    return StoreLost(
        say(
            "store_lost: Redis at {address} holds another store than before: it was emptied or"
            " exchanged, and a node that did not know has set it up. Restore it, or go on with"
            " what is there by chimes store init --force",
            address=address.shown,
        ),
        code="store_lost",
    )


async def present(connections: Connections) -> Identity | None:
    return await _founded(connections, create=False)


async def set_up_anew(connections: Connections, marker: Marker) -> Identity:
    """A new identity, whatever was there; records that are there stay."""
    found = await _founded(connections, create=True, anew=True)
    assert found is not None
    marker.keep(found.id)
    return found


async def _founded(
    connections: Connections, *, create: bool, anew: bool = False
) -> Identity | None:
    answer = await connections.tell(
        FOUNDING,
        connections.address.prefix,
        uuid4().hex,
        LAYOUT,
        "1" if create else "",
        "1" if anew else "",
    )
    store_id, layout, founded = texts(unpacked(answer))
    if not store_id:
        return None
    if layout != LAYOUT:
        raise SchemaMismatch(
            say(
                "the layout of Redis at {address} is {layout}; this"
                " version of Chimes needs {needed}",
                address=connections.address.shown,
                layout=layout or say("unknown"),
                needed=LAYOUT,
            )
        )
    return Identity(store_id, layout, founded == "forced")
