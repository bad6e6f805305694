"""What every page has around it: the rail, who is here, what can be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chimes.doors.dashboard.script_words import script_words
from chimes.model.access import Actor
from chimes.wording import Wording, say

if TYPE_CHECKING:
    from chimes.doors.dashboard.visit import Visit


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One of the five of the rail, or a page that only the palette names."""

    name: str
    title: Wording
    address: str
    #: Behind `g`; empty: there is none.
    key: str = ""
    #: About everybody: for those who see everything.
    wide: bool = False
    #: For those who may make schedules, or hand out access.
    makes: bool = False
    admin: bool = False

    def is_for(self, actor: Actor) -> bool:
        return (
            (actor.sees_everything or not self.wide)
            and (actor.may_create(actor.owner) or not self.makes)
            and (actor.administers or not self.admin)
        )


RAIL = (
    Entry(name="today", title=say("Today"), address="/ui/", key="t"),
    Entry(name="schedules", title=say("Schedules"), address="/ui/schedules", key="s"),
    Entry(name="runs", title=say("Runs"), address="/ui/runs", key="r"),
    Entry(name="inbox", title=say("Inbox"), address="/ui/inbox", key="i"),
    Entry(name="system", title=say("System"), address="/ui/system", key="y", wide=True),
)
FURTHER = (
    Entry(name="import", title=say("Import schedules"), address="/ui/schedules/import", makes=True),
    Entry(name="month", title=say("Month"), address="/ui/schedules?view=month"),
    Entry(name="failed", title=say("Failed runs"), address="/ui/runs?q=status:failed"),
    Entry(name="telegram", title=say("Telegram"), address="/ui/telegram"),
    Entry(name="audit", title=say("Audit"), address="/ui/system/audit", wide=True),
    Entry(name="access", title=say("Access"), address="/ui/system/access", admin=True),
    Entry(name="channels", title=say("Channels"), address="/ui/system/channels", wide=True),
    Entry(name="settings", title=say("Settings"), address="/ui/system/settings", wide=True),
    Entry(name="about", title=say("About"), address="/ui/system/about", wide=True),
)
#: Each in its own words.
LANGUAGE_NAMES = {"en": "English", "th": "ไทย", "zh": "中文"}


def here(path: str) -> str:
    """Which entry of the rail a page belongs to."""
    for entry in RAIL[1:]:
        if path == entry.address or path.startswith(f"{entry.address}/"):
            return entry.name
    return RAIL[0].name if path in ("/ui", "/ui/", "/ui/attention") else ""


def frame_values(visit: Visit) -> dict[str, object]:
    url = visit.request.url
    address = url.path + (f"?{url.query}" if url.query else "")
    if "back" in visit.form:
        # The answer to a form: its own address may have no page.
        address = visit.back()
    return {
        "visit": visit,
        "rail": [entry for entry in RAIL if entry.is_for(visit.actor)],
        "further": [entry for entry in FURTHER if entry.is_for(visit.actor)],
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
