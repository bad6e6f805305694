"""Recipients of notifications: channel, address, events, quiet hours and digests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import ClassVar, assert_never

from msgspec import Struct, field

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.fields import About, Secrets, SecretText
from chimes.triggers import parse_zone
from chimes.triggers.zones import UTC_NAME, Zone

# --- text form for the command line: `telegram:42:on=failure+late:digest=daily@08:00`. It converts
# to and from the API form, without language, keys and zones.

_CLOCK = r"[0-9]{1,2}:[0-9]{2}"
_WORDS = r"[a-z]+(?:[+,][a-z]+)*"
_OPTION = (
    rf"on={_WORDS}|late=[0-9a-zA-Z.]+|after=[0-9a-zA-Z.]+|quiet={_CLOCK}-{_CLOCK}|urgent={_WORDS}"
    rf"|digest=[a-z]+(?:@[a-z]+)?(?:@{_CLOCK})?"
)
_OPTIONS = re.compile(rf"(?::(?:{_OPTION}))+$")
_EACH = re.compile(rf":({_OPTION})(?=:(?:{_OPTION})|$)")

_SERVICE_URL = re.compile(r"[a-z][a-z0-9+.-]*://")

Plain = dict[str, object]


def parse_recipient(text: str) -> Plain:
    """Parse into the API form, which is validated later. InvalidInput for repeated options."""
    found: Plain = {}
    options: dict[str, str] = {}
    if written := _OPTIONS.search(text):
        text = text[: written.start()]
        options = _options(written[0])
    if _SERVICE_URL.match(text):
        # The URL of a service, which Apprise knows: `ntfy://topic`.
        text = f"apprise:{text}"
    channel, _unused, to = text.partition(":")
    found |= {"channel": channel, "to": to}
    urgent = _split(options.get("urgent", ""))
    if "on" in options:
        found["on"] = _split(options["on"])
    if "late" in options:
        found["late_after"] = options["late"]
    if "after" in options:
        found["after"] = options["after"]
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
    if recipient.get("after"):
        parts.append(f"after={recipient['after']}")
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
    #: The schedule was paused after failures in a row; sent to every recipient; not selectable.
    PAUSED = "paused"
    #: Digest message; not selectable.
    DIGEST = "digest"
    #: Test message; not selectable.
    TEST = "test"
    #: A proposal waits for a decision; not selectable.
    PROPOSAL = "proposal"
    #: A flow waits for a decision; not selectable.
    APPROVAL = "approval"


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


_ZONE = About(at_most=64, description="Default: that of the schedule, else of the owner.")


class QuietHours(Struct, frozen=True, kw_only=True):
    """From `start` to `end` in wall time; may span midnight."""

    about: ClassVar[Mapping[str, About]] = {
        "start": About(json="from"),
        "end": About(json="to"),
        "zone": _ZONE,
        "except_for": About(
            json="except", description="Events that are sent anyway, for example failure."
        ),
    }

    start: time
    end: time
    #: Set to the owner's zone when saved.
    zone: str = ""
    #: Events that are sent anyway.
    except_for: tuple[NotifyOn, ...] = field(default=(), name="but")

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


class Digest(Struct, frozen=True, kw_only=True):
    """One message per period instead of one per run."""

    about: ClassVar[Mapping[str, About]] = {
        "at": About(description="Time of the digest; for an hourly digest only the minute counts."),
        "weekday": About(json="on", words=WEEKDAYS, description="Weekday of a weekly digest."),
        "zone": _ZONE,
        "except_for": About(
            json="except", description="Events that are sent at once, for example failure."
        ),
    }

    every: Period
    #: Wall time; an hourly digest uses only the minute.
    at: time = time(8)
    #: For a weekly digest; 0 is Monday.
    weekday: int = 0
    #: Set to the owner's zone when saved.
    zone: str = ""
    #: Events that are sent at once, not in the digest.
    except_for: tuple[NotifyOn, ...] = field(default=(), name="but")

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


CLOUDEVENTS = "cloudevents"
#: Default of `Recipient.late_after`.
DEFAULT_LATE_AFTER = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)


class Channel(StrEnum):
    #: The inbox of the owner; `web_ui` in the Softnix API.
    INBOX = "inbox"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"
    #: An incoming webhook of Slack.
    SLACK = "slack"
    #: Any service that the package Apprise knows, by its URL.
    APPRISE = "apprise"

    @property
    def capability(self) -> str:
        """The capability of a node that is configured to send through it."""
        return f"channel:{self.value}"


#: Channels that a node has only with these settings.
CHANNEL_SETTINGS: Mapping[Channel, str] = {
    Channel.TELEGRAM: "CHIMES_TELEGRAM_TOKEN",
    Channel.EMAIL: _("CHIMES_SMTP_URL and CHIMES_SMTP_FROM"),
    Channel.APPRISE: _("install chimes[apprise]"),
}


def channel_not_configured(channel: Channel) -> Message:
    return _(
        "no node has the channel {channel}: set {setting}",
        channel=channel.value,
        setting=CHANNEL_SETTINGS.get(channel, channel.value),
    )


class Recipient(Struct, frozen=True, kw_only=True):
    about: ClassVar[Mapping[str, About]] = {
        "to": About(
            description="Chat id or @name, URL or address; empty for the inbox of the owner."
        ),
        "language": About(
            texts=("", "en", "th", "zh"),
            description="Empty for the language of the owner.",
            response_description="Empty for the language of the owner.",
        ),
        "signing_secrets": About(at_most=10),
        "envelope": About(
            texts=("", CLOUDEVENTS),
            label=_("Webhook format"),
            choices={CLOUDEVENTS: "CloudEvents 1.0"},
            description="`cloudevents`: the body of a webhook is a CloudEvents 1.0 JSON event.",
            response_description="Format of the body of a webhook; empty for that of Chimes.",
        ),
        "late_after": About(
            description="A run that starts later than this after its planned time is `late`."
        ),
        "after": About(
            label=_("Escalate after"),
            hint=_("Notify of failures only, and only if they are not acknowledged by then."),
            example="15m",
            placeholder=True,
            description="Escalation: a failure is sent this long after it happened, unless it was "
            "acknowledged or the schedule succeeded meanwhile.",
        ),
    }
    #: The fields that may name secrets of the owner (`chimes.model.access`).
    takes_secrets: ClassVar[Sequence[str]] = ("to", "signing_secrets")

    channel: Channel
    #: Chat, URL or e-mail address; empty for the inbox.
    to: SecretText = ""
    on: tuple[NotifyOn, ...] = (NotifyOn.ALWAYS,)
    #: `en`, `th`, `zh`; empty: the owner's language.
    language: str = ""
    #: Standard Webhooks keys of a webhook (`whsec_...`).
    signing_secrets: Secrets = ()
    #: Format of the body of a webhook: `cloudevents`, or empty.
    envelope: str = ""
    late_after: timedelta = DEFAULT_LATE_AFTER
    #: Escalation: failures are sent this much later, if they are still open then.
    after: timedelta | None = None
    #: Messages wait for the end of these hours; not used for the inbox.
    quiet: QuietHours | None = None
    digest: Digest | None = None

    @property
    def depends_on_time(self) -> bool:
        """Whether the time of sending depends on the wall clock."""
        return self.quiet is not None or self.digest is not None or self.after is not None

    def wants(self, notify_on: NotifyOn) -> bool:
        if self.after is not None and notify_on is not NotifyOn.FAILURE:
            return False
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
        if self.digest is None or notify_on in _NEVER_IN_DIGEST:
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


#: Sent at once, also to recipients with a digest.
_NEVER_IN_DIGEST = (NotifyOn.DIGEST, NotifyOn.TEST, NotifyOn.PAUSED)


def _includes(events: tuple[NotifyOn, ...], notify_on: NotifyOn) -> bool:
    """A recovery is a success as well, and a pause after failures a failure."""
    if notify_on is NotifyOn.PAUSED and NotifyOn.FAILURE in events:
        return True
    if NotifyOn.ALWAYS in events or notify_on in events:
        return True
    return notify_on is NotifyOn.RECOVERY and NotifyOn.SUCCESS in events
