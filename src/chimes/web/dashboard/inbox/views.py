"""Folders, filters, deliveries and snooze choices of the inbox; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import InboxQuery
from chimes.model.notification import Delivery, DeliveryState, notify_on_for
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import RunStatus
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences

INBOX_PATH = "/ui/inbox"
PAGE = 30
_MORNING = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    name: str
    title: Message


FOLDERS = (
    Folder(name="inbox", title=_("Inbox")),
    Folder(name="unread", title=_("Unread")),
    Folder(name="starred", title=_("Starred")),
    Folder(name="snoozed", title=_("Snoozed")),
    Folder(name="archived", title=_("Archived")),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Kind of message, by the status of its run."""

    name: str
    title: Message
    statuses: tuple[str, ...] = ()


KINDS = (
    Kind(name="", title=_("All")),
    Kind(
        name="alerts",
        title=_("Alerts"),
        statuses=tuple(
            each.value
            for each in RunStatus
            if each.terminal and notify_on_for(each, None) is NotifyOn.FAILURE
        ),
    ),
    Kind(name="results", title=_("Results"), statuses=(RunStatus.SUCCEEDED.value,)),
    Kind(name="digests", title=_("Digests"), statuses=("digest",)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxFilter:
    """Filter of the inbox, as in the URL."""

    folder: str = "inbox"
    kind: str = ""
    schedule_id: ScheduleId | None = None
    owner: Owner | None = None

    def query(self, now: datetime) -> InboxQuery:
        """Builds the query. Snoozed messages are left out, unless starred or archived."""
        statuses = next(each.statuses for each in KINDS if each.name == self.kind)
        query = InboxQuery(
            owner=self.owner, schedule_id=self.schedule_id, statuses=statuses, limit=PAGE
        )
        match self.folder:
            case "unread":
                return replace(query, unread=True, awake_at=now)
            case "starred":
                return replace(query, starred=True, archived=None)
            case "archived":
                return replace(query, archived=True)
            case "snoozed":
                return replace(query, asleep_at=now)
            case _:
                return replace(query, awake_at=now)

    def address(self, item_id: str = "", **more: str) -> str:
        """Returns the URL of the list, or of a message in it."""
        path = f"{INBOX_PATH}/{item_id}" if item_id else INBOX_PATH
        found = self.fields | more
        return f"{path}?{urlencode(found)}" if found else path

    @property
    def fields(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.folder != "inbox":
            found["show"] = self.folder
        if self.kind:
            found["of"] = self.kind
        if self.schedule_id is not None:
            found["schedule"] = self.schedule_id
        if self.owner is not None:
            found["owner"] = str(self.owner)
        return found

    def in_folder(self, name: str) -> InboxFilter:
        return replace(self, folder=name)

    def of_kind(self, name: str) -> InboxFilter:
        return replace(self, kind=name)

    def of_schedule(self, schedule_id: ScheduleId | None) -> InboxFilter:
        return replace(self, schedule_id=schedule_id)


def parse_filter(query: Mapping[str, str]) -> InboxFilter:
    """Parses the URL. Unknown folders become the inbox; an invalid owner raises InvalidInput."""
    folder, owner, kind = query.get("show", ""), query.get("owner", ""), query.get("of", "")
    return InboxFilter(
        kind=kind if any(each.name == kind for each in KINDS) else "",
        folder=folder if any(each.name == folder for each in FOLDERS) else "inbox",
        schedule_id=ScheduleId(query["schedule"]) if query.get("schedule") else None,
        owner=_owner(owner) if owner else None,
    )


def _owner(text: str) -> Owner:
    kind, _colon, name = text.partition(":")
    if not name or kind not in tuple(OwnerType):
        raise InvalidInput(_("expected an owner such as user:anna"), field="owner", source="query")
    return Owner(type=OwnerType(kind), id=name)


def may_mark(actor: Actor, owner: Owner) -> bool:
    """Whether the actor may change messages, as in `NotificationService`: operators may not."""
    return actor.may_operate(owner) and (owner == actor.owner or actor.role is Role.ADMIN)


def other_deliveries(deliveries: Iterable[Delivery]) -> tuple[Delivery, ...]:
    """Returns deliveries for the same run through other channels."""
    return tuple(each for each in deliveries if each.recipient.channel is not Channel.INBOX)


def telegram_states(deliveries: Iterable[Delivery]) -> dict[RunId, DeliveryState]:
    """Returns the state of the Telegram delivery by run; the best of several chats."""
    found: dict[RunId, DeliveryState] = {}
    for each in deliveries:
        if each.run_id is not None and each.recipient.channel is Channel.TELEGRAM:
            before = found.get(each.run_id, each.state)
            found[each.run_id] = min(before, each.state, key=_BEST_FIRST.index)
    return found


_BEST_FIRST = (
    DeliveryState.DELIVERED,
    DeliveryState.PENDING,
    DeliveryState.SUPPRESSED,
    DeliveryState.DEAD,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ButtonPress:
    """A button pressed below the message in Telegram."""

    what: Message
    at: datetime
    by: str


def button_presses(entries: Iterable[AuditEntry]) -> tuple[ButtonPress, ...]:
    """Returns the button presses among audit entries of the run and its schedule, newest first."""
    return tuple(
        ButtonPress(what=_BUTTON_LABELS[each.verb], at=each.at, by=each.actor)
        for each in entries
        if each.verb in _BUTTON_LABELS and each.allowed
    )


_BUTTON_LABELS = {
    "run": _("Run again"),
    "retry": _("Run again"),
    "pause": _("Pause"),
    "done": _("Done"),
}


# --- snooze -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class SnoozeChoice:
    name: str
    title: Message
    until: datetime


def snooze_choices(display: DisplayPreferences, now: datetime) -> tuple[SnoozeChoice, ...]:
    """Returns the choices for a snooze in the viewer's zone."""
    local = now.astimezone(times.zone_info(display.zone))
    morning = local.replace(hour=_MORNING, minute=0, second=0, microsecond=0)
    monday = morning + timedelta(days=7 - morning.weekday())
    return (
        SnoozeChoice(name="hour", title=_("In an hour"), until=now + timedelta(hours=1)),
        SnoozeChoice(
            name="tomorrow",
            title=_("Tomorrow at 08:00"),
            until=(morning + timedelta(days=1)).astimezone(now.tzinfo),
        ),
        SnoozeChoice(
            name="monday",
            title=_("Next Monday at 08:00"),
            until=monday.astimezone(now.tzinfo),
        ),
    )
