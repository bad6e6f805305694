"""Handles an update of a chat: access, command, reply.

All commands use the services, so that access rules, quotas and audit are those of the API.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.errors import (
    AlreadyExists,
    ChimesError,
    Conflict,
    InvalidInput,
    InvalidTrigger,
    NeedsClarification,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    StoreError,
)
from chimes.i18n import Message, _, in_language, joined
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.policy import Policy
from chimes.model.proposal import Proposal, ProposalStatus
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import Schedule
from chimes.model.wait import Approval, ApprovalStatus, Decision
from chimes.notifications.telegram_api import SEPARATOR
from chimes.services.attention import KnownFailures
from chimes.services.manual_runs import ManualRuns
from chimes.services.notifications import NotificationService
from chimes.services.preferences import PreferenceService
from chimes.services.proposals import ProposalService
from chimes.services.runs import RunService
from chimes.services.schedules.prompts import prompt_draft, run_id_for, short_id_for
from chimes.services.schedules.rules import parse_sentence
from chimes.services.schedules.service import ScheduleService
from chimes.services.users import UserService
from chimes.services.waits import ApprovalService
from chimes.store.port import Store
from chimes.telegram.commands import (
    EXAMPLE,
    FAILED,
    HELP,
    Command,
    Language,
    Reply,
    Verb,
    approvals_text,
    created_text,
    decided_approval_text,
    decided_text,
    language_of,
    language_of_text,
    list_text,
    local,
    parse_error,
    proposal_text,
    proposals_text,
    read_command,
    runs_text,
)
from chimes.telegram.links import Chat, Links
from chimes.telegram.updates import Incoming
from chimes.triggers.zones import parse_zone

MINUTE = timedelta(minutes=1)
_MAX_CHATS = 10_000


class MinuteWindow:
    """An exact limit per chat and minute in this process; the token bucket that nodes share allows
    a burst plus the refill."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._seen: OrderedDict[str, deque[datetime]] = OrderedDict()

    def wait(self, chat_id: str, now: datetime) -> timedelta | None:
        """Counts a message. Returns None if it is allowed, else the time to wait."""
        seen = self._seen.setdefault(chat_id, deque())
        self._seen.move_to_end(chat_id)
        while seen and now - seen[0] >= MINUTE:
            seen.popleft()
        if len(seen) >= self._per_minute:
            return seen[0] + MINUTE - now
        seen.append(now)
        while len(self._seen) > _MAX_CHATS:
            self._seen.popitem(last=False)
        return None


INTERFACE = "telegram"
#: Older messages are not executed.
MAX_AGE = timedelta(minutes=10)
#: Replies per second to a chat that is not allowed: one per hour.
_REFUSAL_RATE = 1 / 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """The result of an update: replies, and what is counted and audited."""

    replies: tuple[Reply, ...] = ()
    event: str = "ignored"
    command: str = ""
    ok: bool = True
    #: Notification for a button press.
    notice: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speaker:
    """The actor, language and zone of an update."""

    chat: Chat
    actor: Actor
    language: Language
    zone: str
    update_id: int
    sender_id: str
    now: datetime

    @property
    def actors(self) -> tuple[Actor, ...]:
        """A linked chat also has access to what it created before it was linked."""
        own = Owner(type=OwnerType.CHAT, id=self.chat.id)
        if self.actor.owner == own:
            return (self.actor,)
        return (self.actor, replace(self.actor, owner=own))


class ChatAccess:
    """Decides whether a chat may use the bot, and as which actor."""

    def __init__(
        self,
        store: Store,
        links: Links,
        preferences: PreferenceService,
        *,
        allowed: Collection[str],
        per_minute: int,
        default_zone: str,
    ) -> None:
        self._store = store
        self._links = links
        self._preferences = preferences
        self._allowed = frozenset(allowed)
        self._per_minute = per_minute
        self._window = MinuteWindow(per_minute)
        self._default_zone = default_zone

    def is_allowed(self, chat_id: str) -> bool:
        return chat_id in self._allowed

    async def refuse(self, incoming: Incoming) -> UpdateResult:
        """Refuses a chat that is not allowed; replies once per hour."""
        bucket = f"telegram:stranger:{incoming.chat_id}"
        taken = await self._store.take_tokens(bucket, rate=_REFUSAL_RATE, burst=1)
        replies: tuple[Reply, ...] = ()
        if taken.granted and not incoming.forwarded:
            replies = (Reply(chat_id=incoming.chat_id, text=str(_("Unauthorized chat"))),)
        return UpdateResult(replies=replies, event="unauthorized", ok=False)

    async def identify(self, incoming: Incoming) -> Speaker | UpdateResult:
        """The speaker, or the result if the message is ignored or rate limited."""
        chat = await self._links.chat(incoming.chat_id)
        if incoming.forwarded or (chat.user_id and incoming.sender_id != chat.user_id):
            return UpdateResult(event="not_listened_to", ok=False)
        speaker = await self._speaker(incoming, chat)
        return await self._check_rate(speaker) or speaker

    async def _speaker(self, incoming: Incoming, chat: Chat) -> Speaker:
        owner = chat.acts_for
        own = await self._preferences.get(owner)
        language = (
            language_of(chat.language)
            or language_of(own.language or "")
            or language_of(incoming.language_code)
            or language_of_text(incoming.text)
            or "en"
        )
        return Speaker(
            chat=chat,
            actor=Actor(
                owner=owner, role=Role.MEMBER, interface=INTERFACE, address=f"chat:{chat.id}"
            ),
            language=language,
            zone=chat.timezone or own.timezone or self._default_zone,
            update_id=incoming.update_id,
            sender_id=incoming.sender_id,
            now=await self._store.now(),
        )

    async def _check_rate(self, speaker: Speaker) -> UpdateResult | None:
        """The rate limit across all nodes. Only the first refusal gets a reply."""
        name, rate = f"telegram:chat:{speaker.chat.id}", self._per_minute / 60
        wait = self._window.wait(speaker.chat.id, speaker.now)
        if wait is None:
            taken = await self._store.take_tokens(name, rate=rate, burst=self._per_minute)
            if taken.granted:
                return None
            wait = taken.wait
        notice = await self._store.take_tokens(f"{name}:told", rate=1 / 60, burst=1)
        replies: tuple[Reply, ...] = ()
        if notice.granted:
            busy = _(
                "Too many messages; try again in {seconds} s.",
                seconds=max(1, round(wait.total_seconds())),
            )
            text = in_language(busy, speaker.language)
            replies = (Reply(chat_id=speaker.chat.id, text=text),)
        return UpdateResult(replies=replies, event="rate_limited", ok=False)


def is_too_old(incoming: Incoming, now: datetime) -> bool:
    return incoming.sent_at is not None and now - incoming.sent_at > MAX_AGE


PREVIEW_LENGTH = 60


async def audit_command(
    store: Store, speaker: Speaker, command: Command, result: UpdateResult
) -> None:
    """Audits a command, in addition to the entries of the services."""
    # A link code is a secret.
    secret = command.verb in (Verb.LINK, Verb.START)
    audit_entry = entry(
        speaker.actor,
        "telegram_command",
        "chat",
        speaker.chat.id,
        at=speaker.now,
        owner=speaker.actor.owner,
        changes={
            "update_id": speaker.update_id,
            "command": result.command,
            "arg_preview": "" if secret else command.argument[:PREVIEW_LENGTH],
            "ok": result.ok,
        },
        allowed=result.ok,
    )
    await store.append_audit(audit_entry)


async def audit_refusal(
    store: Store, chat_id: str, update_id: int, event: str, now: datetime
) -> None:
    """Audits a refusal, as often as the chat gets a reply about it."""
    chat = Owner(type=OwnerType.CHAT, id=chat_id)
    actor = Actor(owner=chat, role=Role.VIEWER, interface=INTERFACE, address=f"chat:{chat_id}")
    changes = {"update_id": update_id, "command": event, "arg_preview": "", "ok": False}
    audit_entry = entry(
        actor, "refused", "chat", chat_id, at=now, owner=chat, changes=changes, allowed=False
    )
    await store.append_audit(audit_entry)


_log = logging.getLogger("chimes.telegram")
SNOOZE = timedelta(hours=1)
MAX_LISTED = 20
MAX_RUNS = 5
MAX_PROPOSALS = 5
_DECISION_VERBS = (
    *(Verb.PROPOSALS, Verb.PROPOSAL, Verb.APPROVE, Verb.REJECT),
    *(Verb.APPROVALS, Verb.APPROVE_STEP, Verb.REJECT_STEP),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    store: Store
    schedules: ScheduleService
    runs: RunService
    preferences: PreferenceService
    #: Made on first use: it needs the schemas of the API.
    proposals: Callable[[], ProposalService]


#: Decodes the data of a button in a chat to verb and object id; None if it is not valid.
ReadButton = Callable[[str, str], tuple[Verb, str] | None]


class Conversation:
    def __init__(
        self,
        services: Services,
        *,
        allowed: Collection[str],
        per_minute: int,
        policy: Policy,
        default_zone: str,
        read_button: ReadButton,
        username: Callable[[], Awaitable[str]],
        bot_id: str = "",
    ) -> None:
        """`policy`: of prompts; `username`: of the bot, empty if unknown."""
        self._services = services
        self._store = services.store
        self._schedules = services.schedules
        self._manual_runs = ManualRuns(services.store, services.schedules.rules)
        self._runs = services.runs
        self._messages = NotificationService(services.store)
        self._proposals = services.proposals
        self._approvals = ApprovalService(services.store)
        self.links = Links(services.store)
        self._access = ChatAccess(
            services.store,
            self.links,
            services.preferences,
            allowed=allowed,
            per_minute=per_minute,
            default_zone=default_zone,
        )
        self._policy = policy
        self._read_button = read_button
        self.username = username
        self._bot_id = bot_id
        self._verbs: Mapping[Verb, Callable[[Speaker, str], Awaitable[str]]] = {
            Verb.CREATE: self._create,
            Verb.LIST: self._list,
            Verb.RUNS: self._list_runs,
            Verb.PAUSE: self._pause,
            Verb.RESUME: self._resume,
            Verb.RUN: self._run,
            Verb.DELETE: self._delete,
            Verb.SNOOZE: self._snooze,
            Verb.RETRY: self._retry,
            Verb.DONE: self._done,
            Verb.PROPOSALS: self._list_proposals,
            Verb.PROPOSAL: self._show_proposal,
            Verb.APPROVE: self._approve,
            Verb.REJECT: self._reject,
            Verb.APPROVALS: self._list_approvals,
            Verb.APPROVE_STEP: self._approve_step,
            Verb.REJECT_STEP: self._reject_step,
            Verb.KNOWN: self._known,
            Verb.START: self._start,
            Verb.LINK: self._link,
            Verb.UNLINK: self._unlink,
            Verb.LANGUAGE: self._set_language,
            Verb.TIMEZONE: self._set_zone,
            Verb.HELP: self._help,
        }

    async def handle(self, incoming: Incoming) -> UpdateResult:
        """Handles an update. Raises StoreError only, so that the update is sent again."""
        if not self._access.is_allowed(incoming.chat_id):
            return await self._refused(incoming, await self._access.refuse(incoming))
        speaker = await self._access.identify(incoming)
        if isinstance(speaker, UpdateResult):
            return await self._refused(incoming, speaker)
        command = self._command(incoming)
        if command is None or not await self._is_for_this_bot(command):
            return UpdateResult(
                event="ignored", notice=in_language(_("Not found"), speaker.language)
            )
        if command.verb.changes and is_too_old(incoming, speaker.now):
            late = _(
                "This message arrived too late to be executed. Send it again if you still want it."
            )
            return self._result(speaker, command, late, ok=False)
        return await self._execute(speaker, command)

    def is_allowed(self, chat_id: str) -> bool:
        """Whether the chat is allowed to use the bot."""
        return self._access.is_allowed(chat_id)

    async def _refused(self, incoming: Incoming, result: UpdateResult) -> UpdateResult:
        if result.replies:
            now = await self._store.now()
            chat_id, update_id = incoming.chat_id, incoming.update_id
            await audit_refusal(self._store, chat_id, update_id, result.event, now)
        return result

    async def _is_for_this_bot(self, command: Command) -> bool:
        """In a group with several bots a command names its bot."""
        if not command.bot:
            return True
        own = await self.username()
        return not own or command.bot.lower() == own.lower()

    def _command(self, incoming: Incoming) -> Command | None:
        if incoming.button is not None:
            found = self._read_button(incoming.button, incoming.chat_id)
            if found is None:
                return None
            return Command(verb=found[0], argument=found[1], name=found[0].value)
        command = read_command(incoming.text)
        if command.verb is Verb.TEXT and not incoming.private:
            # In a group, text without a command is not for the bot.
            return None
        return command

    async def _execute(self, speaker: Speaker, command: Command) -> UpdateResult:
        ok = True
        text: str
        try:
            if command.verb is Verb.UNKNOWN:
                text = _("Unknown command /{name}. /help lists the commands.", name=command.name)
                ok = False
            elif command.verb is Verb.TEXT:
                text = await self._create(speaker, command.argument)
            else:
                text = await self._verbs[command.verb](speaker, command.argument)
        except StoreError:
            raise
        except ChimesError as error:
            text, ok = self._error_text(error, command), False
        except Exception:
            _log.exception("update failed")
            text, ok = FAILED, False
        result = self._result(speaker, command, text, ok=ok)
        await audit_command(self._store, speaker, command, result)
        return result

    def _result(self, speaker: Speaker, command: Command, text: str, *, ok: bool) -> UpdateResult:
        """Translates `text` into the language of the chat."""
        reply = in_language(text, speaker.language)
        return UpdateResult(
            replies=(Reply(chat_id=speaker.chat.id, text=reply),),
            event="command",
            command=command.name or command.verb.value,
            ok=ok,
        )

    def _error_text(self, error: ChimesError, command: Command) -> Message:
        argument = command.argument.split(maxsplit=1)[0] if command.argument else ""
        match error:
            case NeedsClarification():
                problem = parse_error(error.message)
                if not error.examples:
                    return problem
                return joined("\n", (problem, _("For example:"), *error.examples))
            case NotFound() | NotAllowed() if command.verb in _DECISION_VERBS:
                return _("Not possible: {message}", message=error.message)
            case NotFound() | NotAllowed():
                return _("Schedule not found: {id}", id=argument[:PREVIEW_LENGTH])
            case QuotaExceeded():
                return _(
                    "You already have {limit} active schedules. Pause or delete one first.",
                    limit=error.details.get("limit", ""),
                )
            case InvalidTrigger() if command.verb in (Verb.CREATE, Verb.TEXT):
                return parse_error(error.message)
            case InvalidInput() | Conflict():
                return _("Not possible: {message}", message=error.message)
        return FAILED

    async def _create(self, speaker: Speaker, text: str) -> str:
        if not text:
            return HELP
        parsed = await parse_sentence(
            text, now=speaker.now, timezone=speaker.zone, lang=speaker.language
        )
        if not parsed.task:
            return _("Write the task after the time.")
        recipient = Recipient(
            channel=Channel.TELEGRAM, to=speaker.chat.id, language=speaker.language
        )
        draft = prompt_draft(
            # Derived from the update, so that handling it again creates no second schedule.
            schedule_id=short_id_for(self._request(speaker)),
            prompt=parsed.task,
            trigger=parsed.trigger,
            owner=speaker.actor.owner,
            policy=replace(self._policy, delivery=(recipient,)),
            enabled=True,
            now=speaker.now,
        )
        try:
            schedule = await self._schedules.create(speaker.actor, draft)
        except AlreadyExists:
            schedule = await self._schedules.get(speaker.actor, draft.id)
        return created_text(schedule, speaker.language, zone=parsed.timezone)

    async def _list(self, speaker: Speaker, argument: str) -> str:
        found: list[Schedule] = []
        more = False
        for actor in speaker.actors:
            query = ScheduleQuery(
                owner=actor.owner, sort=ScheduleSort.CREATED_AT, descending=True, limit=MAX_LISTED
            )
            page = await self._schedules.find(actor, query)
            found += page.items
            more |= page.next is not None
        if not found:
            return _("No schedules yet. Try: /schedule {example}", example=EXAMPLE)
        schedules = found[:MAX_LISTED]
        return list_text(schedules, more=more or len(found) > MAX_LISTED, language=speaker.language)

    async def _list_runs(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.RUNS)
        query = RunQuery(schedule_id=schedule.id, limit=MAX_RUNS)
        page = await self._runs.find(actor, query)
        return runs_text(schedule, page.items, speaker.language)

    async def _pause(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.PAUSE)
        await self._schedules.pause(actor, schedule.id)
        return _("Schedule paused: {id}", id=schedule.id)

    async def _resume(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.RESUME)
        after = await self._schedules.resume(actor, schedule.id)
        at = local(after.next_run_at, after.trigger.zone) if after.next_run_at else "-"
        return _("Schedule resumed: {id}\nNext: {next}", id=schedule.id, next=at)

    async def _run(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.RUN)
        run = await self._manual_runs.run_now(
            actor, schedule.id, run_id=run_id_for(self._request(speaker))
        )
        return _("Run started: {run}\nSchedule: {id}", id=schedule.id, run=run.id)

    async def _retry(self, speaker: Speaker, argument: str) -> str:
        run = None
        for actor in speaker.actors:
            with contextlib.suppress(NotFound):
                run, _unused = await self._runs.retry(
                    actor, RunId(argument), new_id=run_id_for(self._request(speaker))
                )
        if run is None:
            raise NotFound()
        return _("Run started: {run}", run=run.id)

    async def _done(self, speaker: Speaker, argument: str) -> str:
        await self._messages.mark_done(speaker.actors, RunId(argument))
        return _("Done: archived.")

    async def _known(self, speaker: Speaker, argument: str) -> str:
        for actor in speaker.actors:
            with contextlib.suppress(NotFound):
                run = await self._runs.get(actor, RunId(argument))
                await KnownFailures(self._store).mark(actor, run, "")
                return _("Failure marked as known; it is not escalated.")
        raise NotFound()

    async def _delete(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.DELETE)
        await self._schedules.delete(actor, schedule.id)
        return _("Schedule deleted: {id}", id=schedule.id)

    async def _snooze(self, speaker: Speaker, argument: str) -> str:
        actor, schedule = await self._find_schedule(speaker, argument, Verb.SNOOZE)
        until = speaker.now + SNOOZE
        await self._schedules.pause(actor, schedule.id, until=until)
        at = local(until, schedule.trigger.zone)
        return _("Schedule snoozed until {until}: {id}", id=schedule.id, until=at)

    async def _list_proposals(self, speaker: Speaker, argument: str) -> str:
        found: dict[str, Proposal] = {}
        for actor in await self._deciders(speaker):
            listed = await self._proposals().find(actor, ProposalStatus.OPEN, limit=MAX_PROPOSALS)
            found |= {each.id: each for each in listed}
        return proposals_text(list(found.values())[:MAX_PROPOSALS], speaker.zone)

    async def _show_proposal(self, speaker: Speaker, argument: str) -> str:
        _actor, proposal, _rest = await self._find_proposal(speaker, argument, Verb.PROPOSAL)
        return proposal_text(proposal, speaker.zone)

    async def _approve(self, speaker: Speaker, argument: str) -> str:
        actor, proposal, rest = await self._find_proposal(speaker, argument, Verb.APPROVE)
        try:
            decided = await self._proposals().approve(
                actor, proposal.id, digest=proposal.digest, reason=rest
            )
        except Conflict as error:
            if error.details.get("code") != "plan_changed":
                raise
            proposal = await self._proposals().get(actor, proposal.id)
            return joined("\n\n", (error.message, proposal_text(proposal, speaker.zone)))
        return decided_text(decided)

    async def _reject(self, speaker: Speaker, argument: str) -> str:
        actor, proposal, rest = await self._find_proposal(speaker, argument, Verb.REJECT)
        return decided_text(await self._proposals().reject(actor, proposal.id, reason=rest))

    async def _find_proposal(
        self, speaker: Speaker, argument: str, verb: Verb
    ) -> tuple[Actor, Proposal, str]:
        """The proposal, the actor who may see it, and the text after its id. A button names the
        plan that its message shows; for another plan the proposal is refused."""
        if not argument:
            raise InvalidInput(
                _(
                    "Write {command} and the id of a proposal; /proposals lists them.",
                    command=f"/{verb.value}",
                )
            )
        first, _unused, rest = argument.partition(" ")
        proposal_id, _unused, digest = first.partition(SEPARATOR)
        for actor in await self._deciders(speaker):
            with contextlib.suppress(NotFound):
                found = await self._proposals().get(actor, proposal_id)
                if verb is Verb.APPROVE and not found.digest.startswith(digest):
                    # Not the plan of the message: the approval is refused, with the new plan.
                    found = replace(found, digest=digest)
                return actor, found, rest.strip()
        raise NotFound(_("proposal {id} not found", id=proposal_id[:PREVIEW_LENGTH]))

    async def _list_approvals(self, speaker: Speaker, argument: str) -> str:
        found: dict[str, Approval] = {}
        for actor in await self._deciders(speaker):
            listed = await self._approvals.find(actor, ApprovalStatus.OPEN, limit=MAX_PROPOSALS)
            found |= {each.id: each for each in listed}
        return approvals_text(list(found.values())[:MAX_PROPOSALS], speaker.zone)

    async def _approve_step(self, speaker: Speaker, argument: str) -> str:
        return await self._decide_step(speaker, argument, Decision.APPROVE)

    async def _reject_step(self, speaker: Speaker, argument: str) -> str:
        return await self._decide_step(speaker, argument, Decision.REJECT)

    async def _decide_step(self, speaker: Speaker, argument: str, decision: Decision) -> str:
        approval_id, _unused, reason = argument.partition(" ")
        if not approval_id:
            raise InvalidInput(
                _(
                    "Write {command} and the id of an approval; /approvals lists them.",
                    command=f"/{decision.value}",
                )
            )
        refusal: ChimesError = NotFound(
            _("approval {id} not found", id=approval_id[:PREVIEW_LENGTH])
        )
        for actor in await self._deciders(speaker):
            try:
                decided = await self._approvals.decide(
                    actor, approval_id, decision, reason=reason.strip()
                )
            except NotFound:
                continue
            except NotAllowed as error:
                refusal = error
                continue
            return decided_approval_text(decided)
        raise refusal

    async def _deciders(self, speaker: Speaker) -> list[Actor]:
        """The actors with the role of the linked user: who may approve on the page may do so
        here."""
        found: list[Actor] = []
        for actor in speaker.actors:
            owner = actor.owner
            if owner.type is OwnerType.USER:
                user = await UserService(self._store).get(owner.id)
                actor = actor if user is None else replace(actor, role=user.role)
            found.append(actor)
        return found

    async def _find_schedule(
        self, speaker: Speaker, argument: str, verb: Verb
    ) -> tuple[Actor, Schedule]:
        """The schedule with the id in the argument, and the actor who may access it."""
        if not argument:
            raise InvalidInput(
                _(
                    "Write {command} and the id of a schedule; /schedules lists them.",
                    command=f"/{verb.value}",
                )
            )
        wanted = ScheduleId(argument.split(maxsplit=1)[0])
        for actor in speaker.actors:
            with contextlib.suppress(NotFound):
                return actor, await self._schedules.get(actor, wanted)
        raise NotFound()

    def _request(self, speaker: Speaker) -> str:
        return f"telegram:{self._bot_id}:{speaker.chat.id}:{speaker.update_id}"

    async def _help(self, speaker: Speaker, argument: str) -> str:
        return HELP

    async def _start(self, speaker: Speaker, argument: str) -> str:
        return await (self._link if argument else self._help)(speaker, argument)

    async def _link(self, speaker: Speaker, argument: str) -> str:
        code = argument.split(maxsplit=1)[0] if argument else ""
        owner = None
        if code:
            owner = await self.links.use_code(code, speaker.chat.id, speaker.sender_id)
        if owner is None:
            return _("This code is not valid. Request a new one.")
        return _(
            "Almost done: confirm this chat in your account (chat {id}).",
            id=speaker.chat.id,
        )

    async def _unlink(self, speaker: Speaker, argument: str) -> str:
        await self.links.unlink(speaker.actor, speaker.chat)
        return _("This chat is no longer linked.")

    async def _set_language(self, speaker: Speaker, argument: str) -> str:
        language = language_of(argument)
        if language is None:
            return _("Write /language en, /language th or /language zh.")
        await self.links.change_chat(speaker.chat.id, lambda chat: replace(chat, language=language))
        return in_language(_("Language: English"), language)

    async def _set_zone(self, speaker: Speaker, argument: str) -> str:
        if not argument:
            return _(
                "Write a time zone, for example /timezone Asia/Bangkok. Currently: {zone}.",
                zone=speaker.zone,
            )
        try:
            zone = parse_zone(argument).name
        except InvalidTrigger:
            raise InvalidInput(
                _(
                    "Unknown time zone {zone}. Write one such as Asia/Bangkok.",
                    zone=argument[:60],
                )
            ) from None
        await self.links.change_chat(speaker.chat.id, lambda chat: replace(chat, timezone=zone))
        return _("Time zone: {zone}", zone=zone)
