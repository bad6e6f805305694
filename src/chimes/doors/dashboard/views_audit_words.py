"""What the audit notes, in words; the word itself stays for those who search by it."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.wording import Wording, say

#: Every verb that is written, as what was done (or was tried and refused).
VERBS: Mapping[str, Wording] = {
    "auth_failed": say("came without a key that is known"),
    "backfill": say("made up for times that had passed"),
    "cancel": say("asked a run to stop"),
    "change_password": say("set another password"),
    "change_role": say("gave another role"),
    "create": say("made a schedule"),
    "create_key": say("made a key"),
    "create_user": say("made a user"),
    "delete": say("deleted a schedule"),
    "done": say("pressed Done"),
    "drain": say("asked a node to take nothing new"),
    "end_session": say("ended a sign-in"),
    "forget": say("forgot a node"),
    "load_demo": say("loaded the examples"),
    "mark_known": say("marked a failure as known"),
    "move": say("moved the next run"),
    "pause": say("paused a schedule"),
    "refused": say("tried what is not allowed"),
    "regress": say("found that the store had lost changes"),
    "reload_sources": say("read the file of sources again"),
    "remove_demo": say("removed the examples"),
    "remove_filter": say("removed a saved filter"),
    "remove_user": say("removed a user"),
    "rename_filter": say("renamed a saved filter"),
    "reschedule": say("set another next time"),
    "restore": say("brought a schedule back"),
    "resume": say("had it go on"),
    "retry": say("had it done once more"),
    "revoke_key": say("revoked a key"),
    "run": say("asked for a run"),
    "save_filter": say("saved a filter"),
    "sign_in": say("signed in"),
    "sign_out": say("signed out"),
    "skip": say("left out the next run"),
    "snooze": say("put a sign under Needs attention off"),
    "start": say("asked for a run without a schedule"),
    "telegram_code": say("asked for a code to connect Telegram"),
    "telegram_command": say("sent a command by Telegram"),
    "telegram_link": say("connected a chat"),
    "telegram_test": say("sent a test to a chat"),
    "telegram_unlink": say("disconnected a chat"),
    "test": say("sent a test message"),
    "unmark_known": say("took back that a failure is known"),
    "update": say("changed a schedule"),
    "update_preferences": say("changed preferences"),
    "wake": say("wanted to see a sign under Needs attention again"),
}
#: What it was done to.
KINDS: Mapping[str, Wording] = {
    "access": say("access"),
    "chat": say("chat"),
    "delivery": say("message"),
    "demo": say("examples"),
    "file": say("file"),
    "key": say("key"),
    "node": say("node"),
    "owner": say("owner"),
    "request": say("request"),
    "run": say("run"),
    "schedule": say("schedule"),
    "session": say("sign-in"),
    "store": say("store"),
    "user": say("user"),
}


def verb_in_words(verb: str) -> str:
    """Of a verb that an older or newer release wrote, the verb."""
    return VERBS.get(verb, verb)


def kind_in_words(kind: str) -> str:
    return KINDS.get(kind, kind)
