"""What chats asked for, and what they were refused, in the audit (R1.36)."""

from __future__ import annotations

from datetime import datetime

from chimes.doors.telegram.commands import Command, Verb
from chimes.doors.telegram.speaking import DOOR, Settled, Speaker
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.service.audit import entry
from chimes.store.port import Store

PREVIEW = 60


async def note_command(store: Store, speaker: Speaker, command: Command, settled: Settled) -> None:
    """Beside what the services write about what was done."""
    # A code that links the chat is a secret.
    secret = command.verb in (Verb.LINK, Verb.START)
    note = entry(
        speaker.actor,
        "telegram_command",
        "chat",
        speaker.chat.id,
        at=speaker.now,
        owner=speaker.actor.owner,
        changes={
            "update_id": speaker.update_id,
            "command": settled.command,
            "arg_preview": "" if secret else command.argument[:PREVIEW],
            "ok": settled.ok,
        },
        allowed=settled.ok,
    )
    await store.append_audit(note)


async def note_refusal(
    store: Store, chat_id: str, update_id: int, event: str, now: datetime
) -> None:
    """Of a stranger, or of one who asks too much: as often as they are told so."""
    chat = Owner(type=OwnerType.CHAT, id=chat_id)
    actor = Actor(owner=chat, role=Role.VIEWER, door=DOOR, address=f"chat:{chat_id}")
    changes = {"update_id": update_id, "command": event, "arg_preview": "", "ok": False}
    note = entry(
        actor, "refused", "chat", chat_id, at=now, owner=chat, changes=changes, allowed=False
    )
    await store.append_audit(note)
