"""What every page has around it: the rail, who is here, what can be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chimes.doors.dashboard.script_words import script_words
from chimes.wording import Wording, say

if TYPE_CHECKING:
    from chimes.doors.dashboard.visit import Visit


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One of the five of the rail."""

    name: str
    title: Wording
    address: str
    #: Behind `g`.
    key: str
    #: About everybody: for those who see everything.
    wide: bool = False


RAIL = (
    Entry(name="today", title=say("Today"), address="/ui/", key="t"),
    Entry(name="schedules", title=say("Schedules"), address="/ui/schedules", key="s"),
    Entry(name="runs", title=say("Runs"), address="/ui/runs", key="r"),
    Entry(name="inbox", title=say("Inbox"), address="/ui/inbox", key="i"),
    Entry(name="system", title=say("System"), address="/ui/system", key="y", wide=True),
)
#: Each in its own words.
LANGUAGE_NAMES = {"en": "English", "th": "ไทย", "zh": "中文"}


def here(path: str) -> str:
    """Which entry of the rail a page belongs to."""
    for entry in RAIL[1:]:
        if path == entry.address or path.startswith(f"{entry.address}/"):
            return entry.name
    return RAIL[0].name if path in ("/ui", "/ui/") else ""


def frame_values(visit: Visit) -> dict[str, object]:
    url = visit.request.url
    address = url.path + (f"?{url.query}" if url.query else "")
    if "back" in visit.form:
        # The answer to a form: its own address may have no page.
        address = visit.back()
    return {
        "visit": visit,
        "rail": [entry for entry in RAIL if visit.actor.sees_everything or not entry.wide],
        "may_create": visit.actor.may_create(visit.actor.owner),
        "here": here(url.path),
        "address": address,
        "csrf": visit.token,
        "languages": LANGUAGE_NAMES,
        "actor": visit.actor,
        "guest": visit.guest,
        "version": visit.door.version,
        "script_words": script_words(visit.look.language),
    }
