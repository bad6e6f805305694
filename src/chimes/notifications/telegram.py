"""The Telegram channel: text in parts with buttons under the last one, then up to three files.

Sent as plain text without a parse mode, so that an output cannot inject markup.
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from chimes.i18n import Message, _, in_language
from chimes.model.notification import Artifact
from chimes.model.recipient import Channel
from chimes.model.run import FAILED_STATUSES
from chimes.notifications.attachments import AttachmentFetcher, FetchBudget
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.message import CUT, NotificationMessage, link_line, one_line, split
from chimes.notifications.telegram_api import (
    SEPARATOR,
    Action,
    BotApi,
    BotApiError,
    encode,
)

logger = logging.getLogger("chimes.notifications")

#: UTF-16 code units in a message, as the Bot API counts.
MAX_MESSAGE = 4096
#: Messages for one text; the run has the rest.
MAX_PARTS = 12
SECONDS = 30.0
#: Additional time for an upload.
FILE_WAIT = timedelta(seconds=30)
#: Characters of the digest of a plan in a button.
DIGEST_LENGTH = 16
BAD_TOKEN = _("Telegram rejected the bot token: check CHIMES_TELEGRAM_TOKEN")
_UNKNOWN_CHAT = ("chat not found", "user is deactivated", "chat_id is empty", "peer_id_invalid")


#: A row of buttons.
Row = list[dict[str, str]]


class Telegram:
    channel = Channel.TELEGRAM
    capacity = 16

    def __init__(
        self, *, token: str, api_url: str, fetcher: AttachmentFetcher, seconds: float = SECONDS
    ) -> None:
        self._token = token
        self._api = BotApi(token=token, url=api_url, timeout=timedelta(seconds=seconds))
        self._fetcher = fetcher
        #: Whether the rejected token is already logged.
        self._token_refused = False

    async def open(self) -> None:
        await self._fetcher.open()

    async def close(self) -> None:
        await self._fetcher.close()
        await self._api.close()

    async def send(self, attempt: DeliveryAttempt) -> Result:
        try:
            receipt = await _Transfer(self, attempt).run()
        except BotApiError as error:
            return self._failure(error)
        self._token_refused = False
        return Sent(receipt=receipt)

    async def message(self, chat: str, text: str, buttons: list[Row]) -> str:
        """Sends a text and returns the message id. A rejected message is sent once more without
        options and buttons."""
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

    def budget(self, count: int) -> AbstractAsyncContextManager[FetchBudget]:
        return self._fetcher.budget(count)

    async def document(self, chat: str, artifact: Artifact, budget: FetchBudget) -> bool:
        """False: the file is unavailable, or Telegram rejects it."""
        file = await budget.fetch(artifact)
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

    def _failure(self, error: BotApiError) -> Retry | Refused:
        description = one_line(error.description)
        text = _("Telegram answered {status}", status=error.status)
        if description:
            text = _(
                "Telegram answered {status}: {description}",
                status=error.status,
                description=description,
            )
        match error.status:
            case 0:
                return Retry(
                    error=_("Telegram cannot be reached: {why}", why=error.unreached),
                    code="unreachable",
                )
            case 429:
                wait = error.retry_after
                return Retry(
                    error=text, code="rate_limited", after=wait, rate_limited=wait is not None
                )
            case 401 | 404:
                self._log_rejected_token()
                return Retry(error=BAD_TOKEN, code="bad_token")
            case 403:
                return Refused(error=text, code="blocked")
            case 400 if _unknown_chat(error):
                return Refused(error=text, code="chat_not_found")
            case status if status >= 500 or status < 400:
                return Retry(error=text, code=f"http_{status}")
            case status:
                return Refused(error=text, code=f"http_{status}")

    def _log_rejected_token(self) -> None:
        if not self._token_refused:
            logger.error(BAD_TOKEN)
        self._token_refused = True

    def buttons(self, message: NotificationMessage, chat: str) -> list[Row]:
        """Buttons for the run and its schedule. An id that is too long for a button gets none; a
        link needs https, because Telegram accepts no other."""
        if message.kind == "proposal":
            return self._proposal_buttons(message, chat)
        if message.kind == "approval":
            return self._approval_buttons(message, chat)
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
        actions = [self._button(each, message, chat) for each in wanted]
        links: Row = []
        if message.link.startswith("https://"):
            links.append({"text": in_language(_("Open"), message.language), "url": message.link})
        if message.run_id is not None and message.status in FAILED_STATUSES:
            known = (_("Mark as known"), Action.KNOWN, message.run_id)
            links += [button] if (button := self._button(known, message, chat)) else []
        if message.run_id is not None:
            done = self._button((_("Done"), Action.DONE, message.run_id), message, chat)
            links += [done] if done else []
        rows = [[each for each in actions if each], links]
        return [row for row in rows if row]

    def _proposal_buttons(self, message: NotificationMessage, chat: str) -> list[Row]:
        """The buttons decide about the plan of the message, not about a later one."""
        digest = str(message.facts.get("digest", ""))[:DIGEST_LENGTH]
        plan = f"{message.facts.get('id', '')}{SEPARATOR}{digest}"
        wanted = [(_("Approve"), Action.APPROVE, plan), (_("Reject"), Action.REJECT, plan)]
        return self._decision_buttons(wanted, message, chat)

    def _approval_buttons(self, message: NotificationMessage, chat: str) -> list[Row]:
        step = str(message.facts.get("id", ""))
        approve, reject = Action.APPROVE_STEP, Action.REJECT_STEP
        wanted = [(_("Approve"), approve, step), (_("Reject"), reject, step)]
        return self._decision_buttons(wanted, message, chat)

    def _decision_buttons(
        self, wanted: list[tuple[Message, Action, str]], message: NotificationMessage, chat: str
    ) -> list[Row]:
        decisions = [self._button(each, message, chat) for each in wanted]
        rows = [[each for each in decisions if each]]
        if message.link.startswith("https://"):
            rows.append([{"text": in_language(_("Open"), message.language), "url": message.link}])
        return [row for row in rows if row]

    def _button(
        self, wanted: tuple[Message, Action, str], message: NotificationMessage, chat: str
    ) -> dict[str, str]:
        """Empty: the id does not fit into a button."""
        name, action, object_id = wanted
        data = encode(action, object_id, chat=chat, token=self._token)
        return {"text": in_language(name, message.language), "callback_data": data} if data else {}


class _Transfer:
    """One attempt. Its parts are those of the text, then each file or the link instead of it."""

    def __init__(self, channel: Telegram, attempt: DeliveryAttempt) -> None:
        self._channel = channel
        self._letter = attempt
        self._chat = attempt.recipient.to
        self._receipt = ""

    async def run(self) -> str:
        """The id of the last text message. Raises BotApiError."""
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
        async with self._channel.budget(len(left)) as budget:
            for place, artifact in left:
                if not await self._channel.document(self._chat, artifact, budget):
                    await self._message(link_line(artifact)[:MAX_MESSAGE])
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
    parts = split(message.text, MAX_MESSAGE)
    if len(parts) <= MAX_PARTS:
        return parts
    return [*parts[: MAX_PARTS - 1], in_language(CUT, message.language)]


def _chat(to: str) -> int | str:
    """A numeric chat id as int; a public name as is."""
    return int(to) if to.removeprefix("-").isdecimal() else to


def _unknown_chat(error: BotApiError) -> bool:
    return any(each in error.description.lower() for each in _UNKNOWN_CHAT)


def _number(result: object) -> str:
    return str(result.get("message_id", "")) if isinstance(result, dict) else ""
