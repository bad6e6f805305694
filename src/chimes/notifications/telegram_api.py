"""Client of the Telegram Bot API, and the data of its buttons.

Every URL contains the bot token, so no error message contains a URL.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import aiohttp

from chimes.i18n import _
from chimes.notifications.attachments import File

_MAX_RESPONSE = 8 * 1024 * 1024
_MAX_WAIT = 7 * 24 * 3600


class BotApiError(Exception):
    """An error answer of Telegram; `status` 0: Telegram was not reached."""

    def __init__(
        self,
        description: str,
        *,
        status: int = 0,
        retry_after: timedelta | None = None,
        moved_to: str = "",
        unreached: str = "",
    ) -> None:
        super().__init__(description)
        #: Why there was no answer.
        self.unreached = unreached
        self.status = status
        self.retry_after = retry_after
        #: The new chat id of a group that became a supergroup.
        self.moved_to = moved_to

    @property
    def description(self) -> str:
        text: str = self.args[0]
        return text


class BotApi:
    """Opens its session lazily, on the event loop of the first call."""

    def __init__(self, *, token: str, url: str, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._token = token
        self._base = f"{url.rstrip('/')}/bot{token}/"
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, params: Mapping[str, object], *, wait: timedelta = timedelta()
    ) -> object:
        """The `result` of a method. `wait`: the long-polling time of the method."""
        return await self._post(method, self._timeout + wait, json=params)

    async def upload(
        self,
        method: str,
        params: Mapping[str, str],
        field: str,
        file: File,
        *,
        wait: timedelta = timedelta(),
    ) -> object:
        """As `call`, with a file; `wait`: additional time for the upload."""
        form = aiohttp.FormData()
        for name, value in params.items():
            form.add_field(name, value)
        form.add_field(field, file.content, filename=file.name, content_type=file.content_type)
        return await self._post(method, self._timeout + wait, data=form)

    async def _post(
        self,
        method: str,
        within: timedelta,
        *,
        json: Mapping[str, object] | None = None,
        data: aiohttp.FormData | None = None,
    ) -> object:
        try:
            async with self._opened().post(
                self._base + method,
                json=json,
                data=data,
                timeout=aiohttp.ClientTimeout(total=within.total_seconds()),
                allow_redirects=False,
            ) as answer:
                return self._result(answer.status, await _body(answer))
        except TimeoutError:
            late = _("no response in time")
            raise BotApiError(late, unreached=late) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The text of the error may contain the URL.
            kind = type(error).__name__
            raise BotApiError(_("not reached: {type}", type=kind), unreached=kind) from None

    def _result(self, status: int, body: bytes) -> object:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise BotApiError(_("not a response of the Bot API"), status=status)
        if answer.get("ok") is True:
            return answer.get("result")
        parameters = answer.get("parameters")
        given = parameters if isinstance(parameters, dict) else {}
        seconds = given.get("retry_after")
        code = answer.get("error_code")
        description = str(answer.get("description", ""))[:300].replace(self._token, "***")
        raise BotApiError(
            description or _("refused"),
            status=code if isinstance(code, int) else status,
            retry_after=_wait(seconds),
            moved_to=str(given.get("migrate_to_chat_id", "")),
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # No proxy from the environment and no cookies: only the configured URL is called.
            self._session = aiohttp.ClientSession(
                trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # aiohttp closes its sockets in the next iterations of the loop.
            await asyncio.sleep(0)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """The body, cut at a size that no answer of Telegram has."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > _MAX_RESPONSE:
            break
    return bytes(body)


def _wait(seconds: object) -> timedelta | None:
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_WAIT:
        return None
    return timedelta(seconds=seconds)


# --- buttons --------------------------------------------------------------------------------------
# Telegram returns the data of a pressed button (at most 64 bytes), but a client can forge it. So it
# carries a signature for one chat, with a key derived from the bot token.

#: Limit of the Bot API for the data of a button.
MAX_BYTES = 64
_VERSION = "1"
_UUID, _TEXT, _UUID_AND_TEXT = "u", "t", "v"
_UUID_LENGTH, _PACKED_LENGTH = 36, 22
#: Between an id and what follows it.
SEPARATOR = "."
_SIGNATURE_BYTES = 12
_SIGNATURE_LENGTH = 16
_PURPOSE = b"chimes: buttons of telegram messages"


class Action(StrEnum):
    """What a button does with the schedule, run, proposal or approval of its object id."""

    #: Run the schedule now.
    RUN = "r"
    #: Retry the run, which has no schedule.
    RETRY = "a"
    #: Pause the schedule.
    PAUSE = "p"
    #: Pause the schedule for an hour.
    SNOOZE = "s"
    #: Archive the message about the run.
    DONE = "d"
    #: Decide about the proposal; the id is followed by the beginning of its plan's digest.
    APPROVE = "y"
    REJECT = "n"
    #: Decide about the approval of a flow.
    APPROVE_STEP = "Y"
    REJECT_STEP = "N"
    #: Mark the failure of the run as known.
    KNOWN = "k"


@dataclass(frozen=True, kw_only=True, slots=True)
class ButtonPress:
    action: Action
    object_id: str


def encode(action: Action, object_id: str, *, chat: str, token: str) -> str | None:
    """None: the id is too long for a button."""
    payload = _VERSION + action + _packed(object_id)
    data = payload + _signature(payload, chat, token)
    return data if len(data.encode()) <= MAX_BYTES else None


def decode(data: str, *, chat: str, token: str) -> ButtonPress | None:
    """None: the signature is not valid for this chat."""
    payload, signature = data[:-_SIGNATURE_LENGTH], data[-_SIGNATURE_LENGTH:]
    expected = _signature(payload, chat, token)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    if len(payload) < 3 or payload[0] != _VERSION or payload[1] not in set(Action):
        return None
    object_id = _unpacked(payload[2:])
    return (
        None if object_id is None else ButtonPress(action=Action(payload[1]), object_id=object_id)
    )


def _packed(object_id: str) -> str:
    """A UUID as 22 characters, also before a separator; any other id unchanged."""
    head, rest = object_id[:_UUID_LENGTH], object_id[_UUID_LENGTH:]
    try:
        found = uuid.UUID(head)
    except ValueError:
        return _TEXT + object_id
    # Only the canonical spelling can be restored from the bytes.
    if str(found) != head or (rest and not rest.startswith(SEPARATOR)):
        return _TEXT + object_id
    return (_UUID_AND_TEXT if rest else _UUID) + _base64(found.bytes) + rest


def _unpacked(text: str) -> str | None:
    kind, rest = text[0], text[1:]
    if kind == _TEXT:
        return rest
    try:
        head = str(uuid.UUID(bytes=base64.urlsafe_b64decode(rest[:_PACKED_LENGTH] + "==")))
    except (binascii.Error, ValueError):
        return None
    return head + rest[_PACKED_LENGTH:]


def _signature(payload: str, chat: str, token: str) -> str:
    key = hmac.digest(token.encode(), _PURPOSE, "sha256")
    content = f"{chat}\0{payload}".encode("utf-8", "surrogatepass")
    return _base64(hmac.digest(key, content, "sha256")[:_SIGNATURE_BYTES])


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
