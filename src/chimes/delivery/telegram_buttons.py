"""The data of the buttons under a message: what to do with which object, and a signature (pure).

Telegram hands the data back as it was sent, at most 64 bytes of it; whoever presses could send
anything. The signature is made with a key from the bot's token and holds for one chat only.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import uuid
from dataclasses import dataclass
from enum import StrEnum

#: Of the Bot API, in bytes.
MOST_BYTES = 64
_VERSION = "1"
_UUID, _TEXT = "u", "t"
_SIGNATURE_BYTES = 12
_SIGNATURE_LENGTH = 16
_PURPOSE = b"chimes: buttons of telegram messages"


class Action(StrEnum):
    """What a button does, and to what."""

    #: The schedule of that id, once, now.
    RUN = "r"
    #: The run of that id, which has no schedule, once more.
    RETRY = "a"
    #: The schedule of that id, until it is resumed.
    PAUSE = "p"
    #: The schedule of that id, for an hour.
    SNOOZE = "s"
    #: Nothing but that the message about the run of that id is dealt with.
    DONE = "d"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressed:
    action: Action
    object_id: str


def encode(action: Action, object_id: str, *, chat: str, token: str) -> str | None:
    """None: the id is too long for a button."""
    payload = _VERSION + action + _packed(object_id)
    data = payload + _signature(payload, chat, token)
    return data if len(data.encode()) <= MOST_BYTES else None


def decode(data: str, *, chat: str, token: str) -> Pressed | None:
    """None: not one of our buttons, or not for this chat."""
    payload, signature = data[:-_SIGNATURE_LENGTH], data[-_SIGNATURE_LENGTH:]
    expected = _signature(payload, chat, token)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    if len(payload) < 3 or payload[0] != _VERSION or payload[1] not in set(Action):
        return None
    object_id = _unpacked(payload[2:])
    return None if object_id is None else Pressed(action=Action(payload[1]), object_id=object_id)


def _packed(object_id: str) -> str:
    """A UUID in 22 characters; whatever else a client chose as it is."""
    try:
        found = uuid.UUID(object_id)
    except ValueError:
        return _TEXT + object_id
    # Only the usual spelling can be made again from the number.
    return _UUID + _base64(found.bytes) if str(found) == object_id else _TEXT + object_id


def _unpacked(text: str) -> str | None:
    kind, rest = text[0], text[1:]
    if kind == _TEXT:
        return rest
    try:
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(rest + "==")))
    except (binascii.Error, ValueError):
        return None


def _signature(payload: str, chat: str, token: str) -> str:
    key = hmac.digest(token.encode(), _PURPOSE, "sha256")
    content = f"{chat}\0{payload}".encode("utf-8", "surrogatepass")
    return _base64(hmac.digest(key, content, "sha256")[:_SIGNATURE_BYTES])


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
