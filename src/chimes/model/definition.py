"""The parts of a schedule's definition besides its trigger.

What a run does: a target, which `chimes.targets` executes. Who is notified of its end: recipients.
How it runs: a policy for misfires, overlaps, retries and limits. A run keeps a copy of all three.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Literal, assert_never

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.change import replace
from chimes.triggers import parse_zone
from chimes.triggers.zones import UTC_NAME, Zone


# --- targets --------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class HttpTarget:
    """An HTTP callback. Placeholders in url, headers and body are filled at each attempt."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    #: Status codes that count as success; empty means any 2xx.
    expected_status: tuple[int, ...] = ()
    #: Standard Webhooks keys (`whsec_...`); two while a key is being rotated.
    signing_secrets: tuple[str, ...] = ()
    #: Only an admin may disable certificate checks; it is audited.
    verify_tls: bool = True
    kind: Literal["http"] = "http"

    @property
    def requirement(self) -> str:
        """The capability that a node must have to execute this."""
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskTarget:
    """A Python task, by its registered name. The name is never imported: only nodes that have the
    task can execute it."""

    name: str
    args: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["task"] = "task"

    @property
    def requirement(self) -> str:
        return f"task:{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTarget:
    """A flow: its steps become child runs, whose targets are tasks named `flow/step`."""

    name: str
    input: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["flow"] = "flow"

    @property
    def requirement(self) -> str:
        return f"flow:{self.name}"


_PAIR_KEY_PREFIX = "sync:"


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncTarget:
    """Synchronise one collection of a source of `chimes.yaml`. EventNative calls its runs tasks: at
    most one per pair is active, so they share one concurrency key."""

    source: str
    collection: str
    kind: Literal["sync"] = "sync"

    @property
    def requirement(self) -> str:
        return f"sync:{self.source}"

    @property
    def key(self) -> str:
        """The concurrency key of the pair and the name of its checkpoint. Ids contain no `#`."""
        return f"{_PAIR_KEY_PREFIX}{self.source}#{self.collection}"


def parse_pair_key(key: str) -> tuple[str, str]:
    """Source and collection of a key that `is_pair_key`."""
    source, _unused, collection = key.removeprefix(_PAIR_KEY_PREFIX).partition("#")
    return source, collection


def is_pair_key(key: str) -> bool:
    """Whether a concurrency key belongs to a pair. No other schedule may use one: its runs would
    count as runs of the pair."""
    return key.startswith(_PAIR_KEY_PREFIX) and "#" in key


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTarget:
    """A prompt for the configured run pipeline. Its output is only data."""

    prompt: str
    #: `openai` or `runs`; empty: the configured one.
    pipeline: str = ""
    #: Empty: the configured one.
    model: str = ""
    #: Of the response; None: the configured limit.
    max_tokens: int | None = None
    kind: Literal["agent"] = "agent"

    @property
    def requirement(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionTarget:
    """An action type of a knowledge network, executed by the configured action service."""

    action_type_id: str
    kn_id: str
    branch: str = "main"
    #: The objects of the action, each a JSON object.
    identities: tuple[Mapping[str, object], ...] = ()
    params: Mapping[str, object] = field(default_factory=dict)
    #: The account that created the schedule; the action runs on its behalf.
    account_id: str = ""
    account_type: str = ""
    kind: Literal["action"] = "action"

    @property
    def requirement(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageTarget:
    """A reminder: the text is the result of the run and goes to the recipients of the schedule."""

    #: Markdown.
    text: str
    kind: Literal["message"] = "message"

    @property
    def requirement(self) -> str:
        return self.kind


Target = (
    HttpTarget | TaskTarget | FlowTarget | SyncTarget | AgentTarget | ActionTarget | MessageTarget
)


# --- payload: the part of a target that a single run may override


def payload_of(target: Target) -> str | Mapping[str, object] | None:
    """Body, prompt, text or parameters, depending on the target; None for a sync."""
    match target:
        case HttpTarget():
            return target.body
        case AgentTarget():
            return target.prompt
        case TaskTarget():
            return target.args
        case FlowTarget():
            return target.input
        case ActionTarget():
            return target.params
        case MessageTarget():
            return target.text
        case SyncTarget():
            return None


def payload_name(target: Target) -> str:
    """The field of the payload; empty for a sync."""
    match target:
        case HttpTarget():
            return "body"
        case AgentTarget():
            return "prompt"
        case TaskTarget():
            return "args"
        case FlowTarget():
            return "input"
        case ActionTarget():
            return "params"
        case MessageTarget():
            return "text"
        case SyncTarget():
            return ""


def same_but_payload(target: Target, other: Target) -> bool:
    """Whether the targets differ only in their payload."""
    match target, other:
        case HttpTarget(), HttpTarget():
            return replace(other, body=target.body) == target
        case AgentTarget(), AgentTarget():
            return replace(other, prompt=target.prompt) == target
        case TaskTarget(), TaskTarget():
            return replace(other, args=target.args) == target
        case FlowTarget(), FlowTarget():
            return replace(other, input=target.input) == target
        case ActionTarget(), ActionTarget():
            return replace(other, params=target.params) == target
        case MessageTarget(), MessageTarget():
            return True
        case _:
            return target == other


# --- recipients -----------------------------------------------------------------------------------
# Text form for the command line: `telegram:42:on=failure+late:digest=daily@08:00`. It converts
# to and from the API form, without language, keys and zones.

_CLOCK = r"[0-9]{1,2}:[0-9]{2}"
_WORDS = r"[a-z]+(?:[+,][a-z]+)*"
_OPTION = (
    rf"on={_WORDS}|late=[0-9a-zA-Z.]+|quiet={_CLOCK}-{_CLOCK}|urgent={_WORDS}"
    rf"|digest=[a-z]+(?:@[a-z]+)?(?:@{_CLOCK})?"
)
_OPTIONS = re.compile(rf"(?::(?:{_OPTION}))+$")
_EACH = re.compile(rf":({_OPTION})(?=:(?:{_OPTION})|$)")

Plain = dict[str, object]


def parse_recipient(text: str) -> Plain:
    """Parse into the API form, which is validated later. InvalidInput for repeated options."""
    found: Plain = {}
    options: dict[str, str] = {}
    if written := _OPTIONS.search(text):
        text = text[: written.start()]
        options = _options(written[0])
    channel, _unused, to = text.partition(":")
    found |= {"channel": channel, "to": to}
    urgent = _split(options.get("urgent", ""))
    if "on" in options:
        found["on"] = _split(options["on"])
    if "late" in options:
        found["late_after"] = options["late"]
    if "quiet" in options:
        start, _unused, end = options["quiet"].partition("-")
        found["quiet"] = _urgent({"from": start, "to": end}, urgent)
    if "digest" in options:
        every, *rest = options["digest"].split("@")
        digest: Plain = {"every": every}
        for each in rest:
            digest["at" if ":" in each else "on"] = each
        found["digest"] = _urgent(digest, urgent)
    return found


def format_recipient(recipient: Mapping[str, object]) -> str:
    parts = [str(recipient.get("channel", ""))]
    if recipient.get("to"):
        parts.append(str(recipient["to"]))
    on = _listed(recipient.get("on"))
    if on and on != ["always"]:
        parts.append(f"on={'+'.join(on)}")
    late = recipient.get("late_after")
    if late and late != "PT1M":
        parts.append(f"late={late}")
    quiet, digest = recipient.get("quiet"), recipient.get("digest")
    urgent: list[str] = []
    if isinstance(quiet, Mapping):
        parts.append(f"quiet={quiet['from']}-{quiet['to']}")
        urgent += _listed(quiet.get("except"))
    if isinstance(digest, str):
        parts.append(f"digest={digest}")
    elif isinstance(digest, Mapping):
        day = f"@{digest['on']}" if digest["every"] == "weekly" and digest.get("on") else ""
        at = f"@{digest['at']}" if digest.get("at") else ""
        parts.append(f"digest={digest['every']}{day}{at}")
        urgent += _listed(digest.get("except"))
    if urgent:
        parts.append(f"urgent={'+'.join(dict.fromkeys(urgent))}")
    return ":".join(parts)


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in _EACH.finditer(text):
        name, _unused, value = each[1].partition("=")
        if name in found:
            raise InvalidInput(_("`{name}=` is given twice", name=name), field=name, code="twice")
        found[name] = value
    if "urgent" in found and not found.keys() & {"quiet", "digest"}:
        raise InvalidInput(
            _("`urgent=` needs `quiet=` or `digest=`; without them every message is sent at once"),
            field="urgent",
            code="not_empty",
        )
    return found


def _urgent(times: Plain, urgent: list[str]) -> Plain:
    return times | {"except": urgent} if urgent else times


def _split(text: str) -> list[str]:
    return [each for each in re.split(r"[+,]", text) if each]


def _listed(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


class NotifyOn(StrEnum):
    """The event that causes a notification."""

    SUCCESS = "success"
    #: Also missed slots and runs with an unknown end.
    FAILURE = "failure"
    #: The first success after a failure.
    RECOVERY = "recovery"
    #: Started later than `late_after`, or missed; sent when the run ends.
    LATE = "late"
    #: Every end except skipped slots.
    ALWAYS = "always"
    #: Digest message; not selectable.
    DIGEST = "digest"
    #: Test message; not selectable.
    TEST = "test"


#: Events that a recipient can select.
SELECTABLE_EVENTS = (
    NotifyOn.SUCCESS,
    NotifyOn.FAILURE,
    NotifyOn.RECOVERY,
    NotifyOn.LATE,
    NotifyOn.ALWAYS,
)


# --- quiet hours and digests, in wall time of a zone

#: Index 0 is Monday.
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EPOCH = date(1970, 1, 1)
_DAY = timedelta(days=1)


class Period(StrEnum):
    HOUR = "hourly"
    DAY = "daily"
    WEEK = "weekly"


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietHours:
    """From `start` to `end` in wall time; may span midnight."""

    start: time
    end: time
    #: Set to the owner's zone when saved.
    zone: str = ""
    #: Events that are sent anyway.
    except_for: tuple[NotifyOn, ...] = ()

    def until(self, moment: datetime) -> datetime | None:
        """The end of the quiet hours that contain the moment, or None."""
        found = self.interval_at(moment)
        return None if found is None else found[1]

    def interval_at(self, moment: datetime) -> tuple[datetime, datetime] | None:
        """The interval of quiet hours that contains the moment, or None."""
        zone = _zone(self.zone)
        today = _local_day(zone, moment)
        over_midnight = _DAY if self.end <= self.start else timedelta()
        for day in (today - _DAY, today):
            start = _instant(zone, day, self.start)
            end = _instant(zone, day + over_midnight, self.end)
            if start <= moment < end:
                return start, end
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """One message per period instead of one per run."""

    every: Period
    #: Wall time; an hourly digest uses only the minute.
    at: time = time(8)
    #: For a weekly digest; 0 is Monday.
    weekday: int = 0
    #: Set to the owner's zone when saved.
    zone: str = ""
    #: Events that are sent at once, not in the digest.
    except_for: tuple[NotifyOn, ...] = ()

    def end_after(self, moment: datetime) -> datetime:
        """The end of the period that contains the moment."""
        zone = _zone(self.zone)
        match self.every:
            case Period.HOUR:
                return _hour_after(zone, moment, self.at.minute)
            case Period.DAY | Period.WEEK:
                ends = (_instant(zone, day, self.at) for day in self._days(zone, moment))
                return next(end for end in ends if end > moment)
            case _:
                assert_never(self.every)

    @property
    def length(self) -> timedelta:
        """Nominal length of the period."""
        match self.every:
            case Period.HOUR:
                return timedelta(hours=1)
            case Period.DAY:
                return _DAY
            case Period.WEEK:
                return 7 * _DAY
            case _:
                assert_never(self.every)

    def _days(self, zone: Zone, moment: datetime) -> Iterator[date]:
        day = _local_day(zone, moment) - _DAY
        while True:
            if self.every is Period.DAY or day.weekday() == self.weekday:
                yield day
            day += _DAY


def _zone(name: str) -> Zone:
    """Falls back to UTC for an unknown zone: a completion must not fail for it."""
    try:
        return parse_zone(name or UTC_NAME)
    except InvalidInput:
        return parse_zone(UTC_NAME)


def _local_day(zone: Zone, moment: datetime) -> date:
    second = int(moment.timestamp())
    return _EPOCH + timedelta(days=(second + zone.offset_at(second)) // 86400)


def _instant(zone: Zone, day: date, at: time) -> datetime:
    """The first of two in a fold; the end of a gap."""
    wall = (day - _EPOCH).days * 86400 + at.hour * 3600 + at.minute * 60
    second, _unused = zone.from_local(wall)
    return datetime.fromtimestamp(second, UTC)


def _hour_after(zone: Zone, moment: datetime, minute: int) -> datetime:
    second = int(moment.timestamp())
    shift = zone.offset_at(second) - minute * 60
    return datetime.fromtimestamp(((second + shift) // 3600 + 1) * 3600 - shift, UTC)


#: Default of `Recipient.late_after`.
DEFAULT_LATE_AFTER = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)


class Channel(StrEnum):
    #: The inbox of the owner; `web_ui` in the Softnix API.
    INBOX = "inbox"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipient:
    channel: Channel
    #: Chat, URL or e-mail address; empty for the inbox.
    to: str = ""
    on: tuple[NotifyOn, ...] = (NotifyOn.ALWAYS,)
    #: `en`, `th`, `zh`; empty: the owner's language.
    language: str = ""
    #: Standard Webhooks keys of a webhook (`whsec_...`).
    signing_secrets: tuple[str, ...] = ()
    late_after: timedelta = DEFAULT_LATE_AFTER
    #: Messages wait for the end of these hours; not used for the inbox.
    quiet: QuietHours | None = None
    digest: Digest | None = None

    @property
    def depends_on_time(self) -> bool:
        """Whether the time of sending depends on the wall clock."""
        return self.quiet is not None or self.digest is not None

    def wants(self, notify_on: NotifyOn) -> bool:
        return _includes(self.on, notify_on)

    def quiet_until(self, moment: datetime, notify_on: NotifyOn) -> datetime | None:
        """When a message held back by quiet hours may be sent; None: now."""
        quiet = self.quiet_for(notify_on)
        return None if quiet is None else quiet.until(moment)

    def quiet_for(self, notify_on: NotifyOn) -> QuietHours | None:
        """The quiet hours that apply to this event."""
        if self.quiet is None or self.channel is Channel.INBOX:
            return None
        if notify_on is NotifyOn.TEST or _includes(self.quiet.except_for, notify_on):
            return None
        return self.quiet

    def goes_into_digest(self, notify_on: NotifyOn) -> bool:
        """Whether this event is collected in a digest."""
        if self.digest is None or notify_on in (NotifyOn.DIGEST, NotifyOn.TEST):
            return False
        return not _includes(self.digest.except_for, notify_on)

    def digest_after(self, moment: datetime) -> datetime:
        """The end of the digest period that contains the moment. Periods that end in quiet
        hours end with them, as one digest."""
        assert self.digest is not None
        quiet = self.quiet_for(NotifyOn.DIGEST)
        end = self.digest.end_after(moment)
        if quiet is None:
            return end
        hours = quiet.interval_at(moment)
        if hours is not None and self.digest.end_after(hours[0] - _MICROSECOND) <= moment:
            # The period has already ended within these quiet hours.
            return hours[1]
        return quiet.until(end) or end

    def with_default_zone(self, zone: str) -> Recipient:
        """Fill in missing zones."""
        quiet, digest = self.quiet, self.digest
        if quiet is not None and not quiet.zone:
            quiet = replace(quiet, zone=zone)
        if digest is not None and not digest.zone:
            digest = replace(digest, zone=zone)
        return replace(self, quiet=quiet, digest=digest)


def _includes(events: tuple[NotifyOn, ...], notify_on: NotifyOn) -> bool:
    """A recovery is a success as well."""
    if NotifyOn.ALWAYS in events or notify_on in events:
        return True
    return notify_on is NotifyOn.RECOVERY and NotifyOn.SUCCESS in events


# --- policies -------------------------------------------------------------------------------------
class Misfire(StrEnum):
    """What to do with slots later than the grace."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """What to do with a slot that is due while the concurrency limit is reached."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OLD = "cancel_old"
    ALLOW = "allow"


class Backoff(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class OnLost(StrEnum):
    """What to do with a run whose node died after the run had started."""

    RETRY = "retry"
    STOP = "stop"


UNLIMITED = 1_000_000_000
RETRY_AFTER_CAP = timedelta(hours=1)
MAX_RETRY_DELAY = timedelta(days=365)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    misfire: Misfire = Misfire.ONE
    misfire_grace: timedelta = timedelta(seconds=60)
    catch_up_limit: int = 1000
    overlap: Overlap = Overlap.SKIP
    #: None: one at a time, or without limit under `overlap: allow`.
    max_concurrent_runs: int | None = None
    burst_allowed: bool = False
    #: Runs of all schedules with this key share the limit; None: the schedule's own runs do.
    concurrency_key: str | None = None
    #: Extra attempts after the first.
    max_retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=5)
    backoff: Backoff = Backoff.FIXED
    backoff_cap: timedelta = timedelta(hours=1)
    timeout: timedelta = timedelta(seconds=10)
    on_lost: OnLost = OnLost.RETRY
    #: Pause the schedule when the receiver answers 410 Gone.
    pause_on_gone: bool = True
    #: Recipients of notifications. Part of the policy, so that a run keeps its snapshot (ADR 24).
    delivery: tuple[Recipient, ...] = ()

    @property
    def concurrency_limit(self) -> int:
        if self.max_concurrent_runs is not None:
            return self.max_concurrent_runs
        return UNLIMITED if self.overlap is Overlap.ALLOW or self.burst_allowed else 1

    def retry_delay(self, attempt: int, *, run_id: str, retry_after: timedelta | None) -> timedelta:
        """The delay after failed attempt number `attempt` (1 = the first).

        The receiver's Retry-After may lengthen it, up to an hour. The jitter of exponential
        back-off is a hash, so that a replay waits as long as the original did.
        """
        if self.backoff is Backoff.FIXED:
            delay = self.retry_backoff
        else:
            # Compared by division: the product could overflow timedelta.
            factor = 2 ** min(attempt - 1, 40)
            capped = self.retry_backoff >= self.backoff_cap / factor
            delay = self.backoff_cap if capped else self.retry_backoff * factor
            share = hashlib.blake2b(f"{run_id}:{attempt}".encode(), digest_size=2).digest()
            delay *= 1 + int.from_bytes(share) / 65536 * 0.1
        return max(delay, min(retry_after, RETRY_AFTER_CAP)) if retry_after is not None else delay


# --- defaults that a task or flow declares for its own runs; a schedule or request overrides them

PRIORITY = "priority"
#: Policy fields that a task can declare; the others are about timing.
TASK_POLICY_FIELDS = frozenset(
    {
        "overlap",
        "max_concurrent_runs",
        "concurrency_key",
        "max_retries",
        "retry_backoff",
        "backoff",
        "timeout",
        "on_lost",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDefaults:
    #: Only TASK_POLICY_FIELDS are used.
    policy: Policy
    priority: int = 0
    #: JSON Schema of the arguments, for forms; empty: unknown.
    arguments: Mapping[str, object] = field(default_factory=dict)


def apply_task_defaults(policy: Policy, own: Policy, explicit: Collection[str]) -> Policy:
    """`policy`, with the target's own values for fields that are not in `explicit`."""
    return replace(
        policy, **{name: getattr(own, name) for name in TASK_POLICY_FIELDS.difference(explicit)}
    )


def unchanged_fields(policy: Policy, own: Policy) -> frozenset[str]:
    """The fields that have the target's own values."""
    return frozenset(
        name for name in TASK_POLICY_FIELDS if getattr(policy, name) == getattr(own, name)
    )
