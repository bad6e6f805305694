"""Telegram: text in parts, then up to three files, with buttons under the last part of the text.

Plain text without any parse mode: whatever an output holds, it is only text (S60, S74).
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from chimes.i18n import Message, _, in_language
from chimes.model.notification import Artifact
from chimes.model.recipient import Channel
from chimes.notifications.attachments import Fetcher, Fetching
from chimes.notifications.base import Letter, Refused, Result, Retry, Sent
from chimes.notifications.message import CUT, NotificationMessage, link_line
from chimes.notifications.telegram_api import Action, BotApi, BotApiError, encode
from chimes.notifications.text import one_line, split

logger = logging.getLogger("chimes.notifications")

#: UTF-16 code units in a message, as the Bot API counts.
LONGEST_MESSAGE = 4096
#: Of one text; what is beyond them is in the run.
MOST_PARTS = 12
SECONDS = 30.0
#: How much longer a file may take.
FILE_WAIT = timedelta(seconds=30)
BAD_TOKEN = _("Telegram does not accept the bot's token: check CHIMES_TELEGRAM_TOKEN")
_UNKNOWN_CHAT = ("chat not found", "user is deactivated", "chat_id is empty", "peer_id_invalid")


#: Of buttons.
Row = list[dict[str, str]]


class Telegram:
    channel = Channel.TELEGRAM
    places = 16

    def __init__(
        self, *, token: str, api_url: str, fetcher: Fetcher, seconds: float = SECONDS
    ) -> None:
        self._token = token
        self._api = BotApi(token=token, url=api_url, timeout=timedelta(seconds=seconds))
        self._fetcher = fetcher
        #: Whether the log has said so already.
        self._token_refused = False

    async def open(self) -> None:
        await self._fetcher.open()

    async def close(self) -> None:
        await self._fetcher.close()
        await self._api.close()

    async def send(self, letter: Letter) -> Result:
        try:
            receipt = await _Sending(self, letter).run()
        except BotApiError as error:
            return self._trouble(error)
        self._token_refused = False
        return Sent(receipt=receipt)

    async def message(self, chat: str, text: str, buttons: list[Row]) -> str:
        """Its number. A message that is refused as it is goes once more as nothing but text
        (F75)."""
        plain: dict[str, object] = {"chat_id": _chat(chat), "text": text}
        whole = plain | {"link_preview_options": {"is_disabled": True}}
        if buttons:
            whole["reply_markup"] = {"inline_keyboard": buttons}
        try:
            return _number(await self._api.call("sendMessage", whole))
        except BotApiError as error:
            if error.status != 400 or error.moved_to or _unknown_chat(error):
                raise
        return _number(await self._api.call("sendMessage", plain))

    def fetching(self, count: int) -> AbstractAsyncContextManager[Fetching]:
        return self._fetcher.fetching(count)

    async def document(self, chat: str, artifact: Artifact, fetching: Fetching) -> bool:
        """False: it cannot be had, or Telegram does not take it."""
        file = await fetching.fetch(artifact)
        if file is None:
            return False
        try:
            await self._api.upload(
                "sendDocument", {"chat_id": chat}, "document", file, wait=FILE_WAIT
            )
        except BotApiError as error:
            if error.status in (400, 413):
                return False
            raise
        return True

    def _trouble(self, error: BotApiError) -> Retry | Refused:
        said = one_line(error.description)
        text = _("Telegram answered {status}", status=error.status)
        if said:
            text = _("Telegram answered {status}: {said}", status=error.status, said=said)
        match error.status:
            case 0:
                return Retry(
                    error=_("Telegram cannot be reached: {why}", why=error.unreached),
                    code="unreachable",
                )
            case 429:
                asked = error.retry_after
                return Retry(
                    error=text, code="rate_limited", after=asked, holds_back=asked is not None
                )
            case 401 | 404:
                self._say_once()
                return Retry(error=BAD_TOKEN, code="bad_token")
            case 403:
                return Refused(error=text, code="blocked")
            case 400 if _unknown_chat(error):
                return Refused(error=text, code="chat_not_found")
            case status if status >= 500 or status < 400:
                return Retry(error=text, code=f"http_{status}")
            case status:
                return Refused(error=text, code=f"http_{status}")

    def _say_once(self) -> None:
        if not self._token_refused:
            logger.error(BAD_TOKEN)
        self._token_refused = True

    def buttons(self, message: NotificationMessage, chat: str) -> list[Row]:
        """Those whose object fits into one; what is to be read in a browser only where Telegram
        takes the address (UX A.7)."""
        if message.kind != "run":
            return []
        wanted: list[tuple[Message, Action, str]] = []
        if message.schedule_id is not None:
            wanted += [
                (_("Run again"), Action.RUN, message.schedule_id),
                (_("Pause"), Action.PAUSE, message.schedule_id),
                (_("Snooze 1 h"), Action.SNOOZE, message.schedule_id),
            ]
        elif message.status and message.run_id is not None:
            wanted.append((_("Run again"), Action.RETRY, message.run_id))
        about = [self._button(each, message, chat) for each in wanted]
        with_it: Row = []
        if message.link.startswith("https://"):
            with_it.append({"text": in_language(_("Open"), message.language), "url": message.link})
        if message.run_id is not None:
            done = self._button((_("Done"), Action.DONE, message.run_id), message, chat)
            with_it += [done] if done else []
        rows = [[each for each in about if each], with_it]
        return [row for row in rows if row]

    def _button(
        self, wanted: tuple[Message, Action, str], message: NotificationMessage, chat: str
    ) -> dict[str, str]:
        """Empty: its object does not fit."""
        name, action, about = wanted
        data = encode(action, about, chat=chat, token=self._token)
        return {"text": in_language(name, message.language), "callback_data": data} if data else {}


class _Sending:
    """One attempt. Its parts are those of the text, then each file or the link in its place."""

    def __init__(self, channel: Telegram, letter: Letter) -> None:
        self._channel = channel
        self._letter = letter
        self._chat = letter.recipient.to
        self._receipt = ""

    async def run(self) -> str:
        """The number of the last message of the text. Raises BotApiError."""
        message, progress = self._letter.message, self._letter.progress
        texts = text_parts(message)
        for place, text in enumerate(texts):
            if place >= progress.parts:
                await self._message(text, with_buttons=place == len(texts) - 1)
                progress.parts = place + 1
        left = [
            (place, artifact)
            for place, artifact in enumerate(message.files, len(texts))
            if place >= progress.parts
        ]
        async with self._channel.fetching(len(left)) as fetching:
            for place, artifact in left:
                if not await self._channel.document(self._chat, artifact, fetching):
                    await self._message(link_line(artifact)[:LONGEST_MESSAGE])
                progress.parts = place + 1
        return self._receipt

    async def _message(self, text: str, *, with_buttons: bool = False) -> None:
        try:
            number = await self._sent(text, with_buttons)
        except BotApiError as error:
            if not error.moved_to or error.moved_to == self._chat:
                raise
            self._chat = error.moved_to
            number = await self._sent(text, with_buttons)
        self._receipt = number or self._receipt

    async def _sent(self, text: str, with_buttons: bool) -> str:
        buttons: list[Row] = []
        if with_buttons:
            buttons = self._channel.buttons(self._letter.message, self._chat)
        return await self._channel.message(self._chat, text, buttons)


def text_parts(message: NotificationMessage) -> list[str]:
    parts = split(message.text, LONGEST_MESSAGE)
    if len(parts) <= MOST_PARTS:
        return parts
    return [*parts[: MOST_PARTS - 1], in_language(CUT, message.language)]


def _chat(to: str) -> int | str:
    """A chat's number as a number; a public name as it is."""
    return int(to) if to.removeprefix("-").isdecimal() else to


def _unknown_chat(error: BotApiError) -> bool:
    return any(each in error.description.lower() for each in _UNKNOWN_CHAT)


def _number(result: object) -> str:
    return str(result.get("message_id", "")) if isinstance(result, dict) else ""
