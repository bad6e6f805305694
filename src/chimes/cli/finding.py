"""From what a person types to one object: an id, the beginning of one, or a name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from chimes.cli.backend import API, Backend, get, items_of, pages, path_of
from chimes.cli.failure import NOT_FOUND, USAGE, Failure
from chimes.cli.output import Json
from chimes.wording import say

#: How many rows are looked through for a prefix or a name.
_MOST = 5000
_SHORTEST_PREFIX = 3


def find_schedule(backend: Backend, reference: str) -> Json:
    found = _exact(backend, "schedules", reference)
    if found is not None:
        return found
    rows = list(islice(pages(backend, "/schedules"), _MOST))
    named = [row for row in rows if str(row.get("name", "")) == reference]
    folded = reference.casefold()
    alike = named or [
        row for row in rows if _slug(str(row.get("name", ""))) == folded or _begins(row, reference)
    ]
    words = [str(row.get("name", "")) for row in rows] + [str(row["id"]) for row in rows]
    missing = say("There is no schedule {reference!r}", reference=reference)
    return _only(alike, reference, words, missing, say("see `chimes ls`"))


def find_run(backend: Backend, reference: str) -> Json:
    missing = say("There is no run {reference!r}", reference=reference)
    return _by_id(backend, "runs", reference, missing, say("see `chimes runs`"))


def find_delivery(backend: Backend, reference: str) -> Json:
    missing = say("There is no delivery {reference!r}", reference=reference)
    return _by_id(backend, "deliveries", reference, missing, say("see `chimes deliveries`"))


def find_node(backend: Backend, reference: str) -> Json:
    """By its id or the beginning of it, such as the name of its host."""
    missing = say("There is no node {reference!r}", reference=reference)
    rows = items_of(get(backend, "/nodes"))
    alike = [row for row in rows if row["id"] == reference] or [
        row for row in rows if _begins(row, reference)
    ]
    return _only(
        alike, reference, [str(row["id"]) for row in rows], missing, say("see `chimes nodes`")
    )


def find_message(backend: Backend, reference: str, owner: str | None = None) -> Json:
    missing = say("There is no message {reference!r}", reference=reference)
    return _by_id(backend, "inbox", reference, missing, say("see `chimes inbox`"), owner=owner)


def _by_id(
    backend: Backend, kind: str, reference: str, missing: str, see: str, **query: object
) -> Json:
    found = _exact(backend, kind, reference)
    if found is not None:
        return found
    rows = list(islice(pages(backend, f"/{kind}", None, **query), _MOST))
    alike = [row for row in rows if _begins(row, reference)]
    return _only(alike, reference, [str(row["id"]) for row in rows], missing, see)


def _exact(backend: Backend, kind: str, reference: str) -> Json | None:
    # "." and ".." would be read as steps within the path.
    if not reference.strip("."):
        return None
    answer = backend.request("GET", API + path_of(kind, reference))
    return None if answer.status in (404, 422) else answer.json()


def _begins(row: Json, reference: str) -> bool:
    return len(reference) >= _SHORTEST_PREFIX and str(row["id"]).startswith(reference)


def _slug(name: str) -> str:
    return "-".join(name.casefold().split())


def _only(rows: list[Json], reference: str, words: Iterable[str], missing: str, see: str) -> Json:
    """The one row; `missing` and `see` are said where there is none."""
    if len(rows) == 1:
        return rows[0]
    if rows:
        some = ", ".join(str(row["id"]) for row in rows[:5])
        raise Failure(
            say(
                "{reference!r} is the beginning or name of several: {ids}",
                reference=reference,
                ids=some,
            ),
            USAGE,
        )
    from chimes.triggers.reading import nearest

    hint = nearest(reference, [word for word in words if word])
    raise Failure(missing, NOT_FOUND, hint=hint or see)
