"""Parses updates of the Telegram Bot API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

#: The year 10000, beyond `datetime`.
_MAX_TIMESTAMP = 253_402_300_800
#: Fields of a message that its sender did not write: forwarded, via a bot, or as a chat.
_FORWARD_FIELDS = ("forward_origin", "forward_date", "forward_from", "via_bot", "sender_chat")


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A message or a button press."""

    update_id: int
    chat_id: str
    #: In a private chat text without a command is for the bot.
    private: bool
    sender_id: str
    text: str = ""
    #: Data of the pressed button; None for a message.
    button: str | None = None
    #: Id for answerCallbackQuery.
    callback_id: str = ""
    #: Language of the sender's client.
    language_code: str = ""
    sent_at: datetime | None = None
    #: Forwarded, via a bot, or as a chat.
    forwarded: bool = False


def update_id_of(update: object) -> int | None:
    found = update.get("update_id") if isinstance(update, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def read_update(update: object) -> Incoming | None:
    """None for updates that the bot ignores: edited messages, channel posts, no text."""
    update_id = update_id_of(update)
    if update_id is None or not isinstance(update, Mapping):
        return None
    pressed = _mapping(update.get("callback_query"))
    if pressed:
        message = _mapping(pressed.get("message"))
        return _incoming(
            update_id,
            message,
            sender=_mapping(pressed.get("from")),
            button=_text(pressed.get("data")),
            callback_id=_text(pressed.get("id")),
        )
    message = _mapping(update.get("message"))
    text = _text(message.get("text"))
    if not text.strip():
        return None
    return _incoming(update_id, message, sender=_mapping(message.get("from")), text=text)


def _incoming(
    update_id: int,
    message: Mapping[str, object],
    *,
    sender: Mapping[str, object],
    text: str = "",
    button: str | None = None,
    callback_id: str = "",
) -> Incoming | None:
    chat = _mapping(message.get("chat"))
    chat_id = _identity(chat.get("id"))
    if not chat_id:
        return None
    date = message.get("date")
    # The message of a button is an older one of the bot: its date says nothing about the press.
    sent = button is None and isinstance(date, int) and 0 < date < _MAX_TIMESTAMP
    return Incoming(
        update_id=update_id,
        chat_id=chat_id,
        private=chat.get("type", "private") == "private",
        sender_id=_identity(sender.get("id")),
        text=text,
        button=button,
        callback_id=callback_id,
        language_code=_text(sender.get("language_code")),
        sent_at=datetime.fromtimestamp(date, UTC) if sent and isinstance(date, int) else None,
        forwarded=button is None and any(mark in message for mark in _FORWARD_FIELDS),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    """Replaces unpaired surrogates and NUL, which stores refuse."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _identity(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
