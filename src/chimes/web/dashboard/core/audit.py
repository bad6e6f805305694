"""Audit entries in words: labels of verbs and objects, sentences, changed fields, links."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from chimes.i18n import Message, _
from chimes.model.audit import AuditEntry

#: Labels of the audit verbs, whether the action succeeded or was denied.
VERB_LABELS: Mapping[str, Message] = {
    "approve": _("approved a proposal"),
    "approve_step": _("approved a step of a flow"),
    "add_silence": _("silenced notifications"),
    "auth_failed": _("failed to authenticate"),
    "backfill": _("backfilled a schedule"),
    "begin_maintenance": _("began maintenance"),
    "cancel": _("canceled a run"),
    "change_password": _("changed a password"),
    "change_role": _("changed a role"),
    "create": _("created a schedule"),
    "create_key": _("created a key"),
    "create_feed": _("created a calendar feed"),
    "create_monitor": _("created a monitor"),
    "create_user": _("created a user"),
    "delete": _("deleted a schedule"),
    "delete_limit": _("deleted a limit"),
    "delete_monitor": _("deleted a monitor"),
    "delete_secret": _("deleted a secret"),
    "delete_silence": _("ended a silence"),
    "done": _("pressed Done"),
    "drain": _("drained a node"),
    "end_maintenance": _("ended maintenance"),
    "end_session": _("ended a session"),
    "forget": _("forgot a node"),
    "load_demo": _("loaded the demo"),
    "mark_known": _("marked a failure as known"),
    "move": _("moved the next run"),
    "pause": _("paused a schedule"),
    "pause_monitor": _("paused a monitor"),
    "propose": _("proposed changes"),
    "prune_audit": _("pruned old audit entries"),
    "refused": _("tried an action that is not allowed"),
    "regress": _("detected that the store had lost changes"),
    "reject": _("rejected a proposal"),
    "reject_step": _("rejected a step of a flow"),
    "reload_sources": _("reloaded the sources file"),
    "remove_demo": _("removed the demo"),
    "remove_filter": _("removed a saved filter"),
    "remove_user": _("removed a user"),
    "link_user": _("linked a user to an identity provider"),
    "rename_filter": _("renamed a saved filter"),
    "reschedule": _("rescheduled the next run"),
    "rotate_hook": _("changed the address of the webhook"),
    "restore": _("restored a schedule"),
    "resume": _("resumed a schedule"),
    "resume_monitor": _("resumed a monitor"),
    "retry": _("retried a run"),
    "revoke_key": _("revoked a key"),
    "revoke_feed": _("revoked a calendar feed"),
    "rotate_monitor": _("replaced the URLs of a monitor"),
    "run": _("requested a run"),
    "save_filter": _("saved a filter"),
    "set_calendar": _("set a calendar"),
    "delete_calendar": _("deleted a calendar"),
    "calendar": _("its calendar changed"),
    "set_limit": _("set a limit"),
    "set_routing": _("changed the routing rules"),
    "set_secret": _("set a secret"),
    "set_templates": _("changed message templates"),
    "sign_in": _("signed in"),
    "sign_out": _("signed out"),
    "skip": _("skipped the next run"),
    "snooze": _("snoozed a warning"),
    "start": _("requested a run without a schedule"),
    "telegram_code": _("requested a code to link Telegram"),
    "telegram_command": _("sent a command by Telegram"),
    "telegram_link": _("linked a chat"),
    "telegram_test": _("sent a test message to a chat"),
    "telegram_unlink": _("unlinked a chat"),
    "test": _("sent a test message"),
    "unmark_known": _("unmarked a known failure"),
    "update": _("changed a schedule"),
    "update_monitor": _("changed a monitor"),
    "update_preferences": _("changed preferences"),
    "wake": _("unsnoozed a warning"),
}
#: Labels of the kinds of audited objects.
KIND_LABELS: Mapping[str, Message] = {
    "access": _("access"),
    "calendar": _("calendar"),
    "chat": _("chat"),
    "delivery": _("message"),
    "demo": _("demo"),
    "approval": _("approval"),
    "file": _("file"),
    "key": _("key"),
    "limit": _("limit"),
    "maintenance": _("maintenance"),
    "feed": _("calendar feed"),
    "monitor": _("monitor"),
    "message_templates": _("message templates"),
    "node": _("node"),
    "owner": _("owner"),
    "proposal": _("proposal"),
    "request": _("request"),
    "routing": _("routing rules"),
    "run": _("run"),
    "schedule": _("schedule"),
    "secret": _("secret"),
    "session": _("session"),
    "silence": _("silence"),
    "store": _("store"),
    "user": _("user"),
}


def verb_label(verb: str) -> str:
    """The verb itself if another release wrote it and it has no label."""
    return VERB_LABELS.get(verb, verb)


def kind_label(kind: str) -> str:
    return KIND_LABELS.get(kind, kind)


#: Sentences about changes of schedules and of the demo.
_SENTENCES: Mapping[str, Callable[[str], Message]] = {
    "backfill": lambda user: _("{user} backfilled past slots.", user=user),
    "create": lambda user: _("{user} created the schedule.", user=user),
    "delete": lambda user: _("{user} deleted the schedule.", user=user),
    "load_demo": lambda user: _("{user} loaded the demo.", user=user),
    "move": lambda user: _("{user} moved the next run.", user=user),
    "pause": lambda user: _("{user} paused the schedule.", user=user),
    "remove_demo": lambda user: _("{user} removed the demo.", user=user),
    "reschedule": lambda user: _("{user} rescheduled the next run.", user=user),
    "rotate_hook": lambda user: _("{user} changed the address of the webhook.", user=user),
    "restore": lambda user: _("{user} restored the schedule.", user=user),
    "resume": lambda user: _("{user} resumed the schedule.", user=user),
    "run": lambda user: _("{user} requested a run.", user=user),
    "skip": lambda user: _("{user} skipped the next run.", user=user),
    "snooze": lambda user: _("{user} snoozed its warning for a day.", user=user),
    "update": lambda user: _("{user} changed the schedule.", user=user),
    "wake": lambda user: _("{user} unsnoozed its warning.", user=user),
}


def describe_change(entry: AuditEntry) -> Message:
    """A sentence about a change of a schedule or of the demo."""
    return _SENTENCES.get(entry.verb, _SENTENCES["update"])(entry.actor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    field: str
    before: str
    after: str


def changes_of(entry: AuditEntry) -> tuple[Change, ...]:
    """Returns the changes of an entry; a value that is not a pair is the new value."""
    found = []
    for field, value in entry.changes.items():
        pair = value if isinstance(value, list | tuple) and len(value) == 2 else ("", value)
        found.append(Change(field=field, before=_text(pair[0]), after=_text(pair[1])))
    return tuple(found)


def _text(value: object) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


#: Pages of audited objects.
_PAGES = {
    "schedule": "/ui/schedules/{id}",
    "run": "/ui/runs/{id}",
    "monitor": "/ui/monitors/{id}",
    "node": "/ui/system",
    "proposal": "/ui/proposals/{id}",
    "approval": "/ui/approvals/{id}",
}


def page_of(entry: AuditEntry) -> str:
    return _PAGES.get(entry.object_kind, "").format(id=quote(entry.object_id, safe=""))
