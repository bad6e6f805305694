"""Telegram: text in parts, then up to three files, with buttons under the last part of the text.

Plain text without any parse mode: whatever an output holds, it is only text (S60, S74).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from json import loads

import aiohttp

from chimes.delivery.base import Letter, Refused, Result, Retry, Sent
from chimes.delivery.fetching import Fetcher, File
from chimes.delivery.message import Message, link_line
from chimes.delivery.plain_text import one_line
from chimes.delivery.splitting import split
from chimes.delivery.telegram_buttons import Action, encode
from chimes.delivery.words import say
from chimes.model.delivery import Artifact
from chimes.model.recipient import Channel

logger = logging.getLogger("chimes.delivery")

#: UTF-16 code units in a message, as the Bot API counts.
LONGEST_MESSAGE = 4096
#: Of one text; what is beyond them is in the run.
MOST_PARTS = 12
SECONDS = 30.0
FILE_SECONDS = 60.0
LONGEST_ANSWER = 256 * 1024
_UNKNOWN_CHAT = ("chat not found", "user is deactivated", "chat_id is empty", "peer_id_invalid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Of the Bot API. `status` 0: none came."""

    status: int
    receipt: str = ""
    description: str = ""
    retry_after: float | None = None
    #: The group has become another chat.
    moved_to: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200


class Telegram:
    channel = Channel.TELEGRAM
    places = 16

    def __init__(
        self, *, token: str, api_url: str, fetcher: Fetcher, seconds: float = SECONDS
    ) -> None:
        self._token = token
        self._base = f"{api_url.rstrip('/')}/bot{token}"
        self._fetcher = fetcher
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None
        #: Whether the log has said so already.
        self._token_refused = False

    async def open(self) -> None:
        await self._fetcher.open()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.places),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._fetcher.close()
        if self._session is not None:
            await self._session.close()

    async def send(self, letter: Letter) -> Result:
        return await _Sending(self, letter).run()

    # --- the Bot API --------------------------------------------------------------------------
    async def message(self, chat: str, text: str, buttons: list[dict[str, str]]) -> Answer:
        """A message that is refused as it is goes once more as nothing but text (F75)."""
        plain: dict[str, object] = {"chat_id": _chat(chat), "text": text}
        whole = plain | {"link_preview_options": {"is_disabled": True}}
        if buttons:
            whole["reply_markup"] = {"inline_keyboard": [buttons]}
        answer = await self._call("sendMessage", self._seconds, json=whole)
        if answer.status != 400 or answer.moved_to or _unknown_chat(answer):
            return answer
        return await self._call("sendMessage", self._seconds, json=plain)

    async def document(self, chat: str, file: File) -> Answer:
        form = aiohttp.FormData()
        form.add_field("chat_id", chat)
        form.add_field("document", file.content, filename=file.name, content_type=file.content_type)
        return await self._call("sendDocument", FILE_SECONDS, data=form)

    async def _call(
        self,
        method: str,
        seconds: float,
        *,
        json: Mapping[str, object] | None = None,
        data: aiohttp.FormData | None = None,
    ) -> Answer:
        assert self._session is not None, "open() comes first"
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.post(
                    f"{self._base}/{method}", json=json, data=data, allow_redirects=False
                ) as answer,
            ):
                body = await answer.content.read(LONGEST_ANSWER)
                return _read(answer.status, body)
        except TimeoutError:
            return Answer(status=0, description="no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its text may hold the URL, and with it the token.
            return Answer(status=0, description=type(error).__name__)

    # --- what an answer means -----------------------------------------------------------------
    def trouble(self, answer: Answer) -> Retry | Refused:
        said = one_line(answer.description).replace(self._token, "***")[:300]
        text = f"Telegram answered {answer.status}: {said}".rstrip(": ")
        match answer.status:
            case 0:
                return Retry(error=f"Telegram cannot be reached: {said}", code="unreachable")
            case 429:
                wait = timedelta(seconds=answer.retry_after or 0)
                return Retry(error=text, code="rate_limited", after=wait)
            case 401 | 404:
                self._say_once()
                error = "Telegram does not accept the bot's token: check CHIMES_TELEGRAM_TOKEN"
                return Retry(error=error, code="bad_token")
            case 403:
                return Refused(error=text, code="blocked")
            case 400 if _unknown_chat(answer):
                return Refused(error=text, code="chat_not_found")
            case status if status >= 500 or 200 <= status < 400:
                return Retry(error=text, code=f"http_{status}")
            case _:
                return Refused(error=text, code=f"http_{answer.status}")

    def _say_once(self) -> None:
        if not self._token_refused:
            logger.error("Telegram does not accept the bot's token: check CHIMES_TELEGRAM_TOKEN")
        self._token_refused = True

    def works(self) -> None:
        self._token_refused = False

    def buttons(self, message: Message, chat: str) -> list[dict[str, str]]:
        """Those whose object fits into one."""
        wanted: list[tuple[str, Action, str]] = []
        if message.schedule_id is not None:
            wanted += [
                ("button_run", Action.RUN, message.schedule_id),
                ("button_pause", Action.PAUSE, message.schedule_id),
                ("button_snooze", Action.SNOOZE, message.schedule_id),
            ]
        elif message.status:
            wanted.append(("button_run", Action.RETRY, message.run_id))
        made = [
            (say(message.language, key), encode(action, about, chat=chat, token=self._token))
            for key, action, about in wanted
        ]
        return [{"text": text, "callback_data": data} for text, data in made if data is not None]

    async def fetched(self, artifact: Artifact) -> File | None:
        return await self._fetcher.fetch(artifact)


class _Sending:
    """One attempt. Its parts are those of the text, then each file or the link in its place."""

    def __init__(self, channel: Telegram, letter: Letter) -> None:
        self._channel = channel
        self._letter = letter
        self._chat = letter.recipient.to
        self._receipt = ""

    async def run(self) -> Result:
        message, progress = self._letter.message, self._letter.progress
        texts = text_parts(message)
        for place, text in enumerate(texts):
            if place < progress.parts:
                continue
            last = place == len(texts) - 1
            answer = await self._message(text, with_buttons=last)
            if not answer.ok:
                return self._channel.trouble(answer)
            progress.parts = place + 1
        for place, artifact in enumerate(message.files, len(texts)):
            if place < progress.parts:
                continue
            answer = await self._file(artifact)
            if not answer.ok:
                return self._channel.trouble(answer)
            progress.parts = place + 1
        self._channel.works()
        return Sent(receipt=self._receipt)

    async def _message(self, text: str, *, with_buttons: bool) -> Answer:
        def buttons() -> list[dict[str, str]]:
            if not with_buttons:
                return []
            return self._channel.buttons(self._letter.message, self._chat)

        answer = await self._channel.message(self._chat, text, buttons())
        if answer.moved_to and answer.moved_to != self._chat:
            self._chat = answer.moved_to
            answer = await self._channel.message(self._chat, text, buttons())
        if answer.ok and answer.receipt:
            self._receipt = answer.receipt
        return answer

    async def _file(self, artifact: Artifact) -> Answer:
        file = await self._channel.fetched(artifact)
        if file is not None:
            answer = await self._channel.document(self._chat, file)
            if answer.status not in (400, 413):
                return answer
        return await self._message(link_line(artifact)[:LONGEST_MESSAGE], with_buttons=False)


def text_parts(message: Message) -> list[str]:
    parts = split(message.text, LONGEST_MESSAGE)
    if len(parts) <= MOST_PARTS:
        return parts
    return [*parts[: MOST_PARTS - 1], say(message.language, "cut")]


def _chat(to: str) -> int | str:
    """A chat's number as a number; a public name as it is."""
    return int(to) if to.removeprefix("-").isdecimal() else to


def _unknown_chat(answer: Answer) -> bool:
    return any(each in answer.description.lower() for each in _UNKNOWN_CHAT)


def _read(status: int, body: bytes) -> Answer:
    try:
        found = loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return Answer(status=502 if status == 200 else status, description="not an answer in JSON")
    parameters = found.get("parameters")
    asked = parameters if isinstance(parameters, dict) else {}
    result = found.get("result")
    receipt = result.get("message_id", "") if isinstance(result, dict) else ""
    if status == 200 and found.get("ok") is not True:
        code = found.get("error_code")
        status = code if isinstance(code, int) and code != 200 else 502
    wait = asked.get("retry_after")
    return Answer(
        status=status,
        receipt=str(receipt),
        description=str(found.get("description", "")),
        retry_after=wait if isinstance(wait, int | float) and wait >= 0 else None,
        moved_to=str(asked.get("migrate_to_chat_id", "")),
    )
