"""What a word in a filter's box could become; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chimes.doors.dashboard.filters import KINDS, RUN_NAMES, SCHEDULE_NAMES, SCHEDULE_STATES, Chip
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.service.saved_filters import ListName

MOST = 8
_LENGTHS = ("1h", "24h", "7d", "30d")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What there is, as far as the word asks for it."""

    schedules: Sequence[Schedule] = ()
    nodes: Sequence[str] = ()


def completions(word: str, list_: ListName, known: Known) -> list[dict[str, str]]:
    """At most `MOST`: `text` to put in place of the word, `title` to choose it by."""
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    name, colon, begun = word.partition(":")
    if not colon:
        found = [(f"{each}:", f"{each}:") for each in names if each.startswith(name)]
        return _shown(found if word else found[:MOST])
    if name not in names:
        return []
    if name == "schedule":
        return _shown((Chip(name, each.id).text, each.name) for each in known.schedules)
    begun = begun.removeprefix('"').removesuffix('"').casefold()
    texts = (
        Chip(name, value).text
        for value in _values(name, list_, known)
        if value.casefold().startswith(begun)
    )
    return _shown((text, text) for text in texts)


def _shown(found: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"text": text, "title": title} for text, title in dict.fromkeys(found)][:MOST]


def _values(name: str, list_: ListName, known: Known) -> Iterable[str]:
    match name:
        case "status":
            return SCHEDULE_STATES if list_ is ListName.SCHEDULES else tuple(RunStatus)
        case "kind":
            return KINDS
        case "origin":
            return tuple(Origin)
        case "next":
            return tuple(f"<{each}" for each in _LENGTHS)
        case "since" | "until":
            return _LENGTHS
        case "owner":
            return ("me", *sorted({str(each.owner) for each in known.schedules}))
        case "namespace":
            return sorted({each.namespace for each in known.schedules})
        case "label":
            labels = {pair for each in known.schedules for pair in each.labels.items()}
            found = {key if value is None else f"{key}={value}" for key, value in labels}
            return sorted(found | {key for key, _ in labels})
        case "node":
            return known.nodes
        case _:
            return ()
