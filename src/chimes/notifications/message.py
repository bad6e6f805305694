"""What is said about the end of a run (pure): the same to every channel, in one language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Literal

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, LANGUAGES, Message, _, counted, in_language, translate
from chimes.model.ids import RunId, ScheduleId
from chimes.model.notification import Artifact, Delivery, is_late
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.target import AgentTarget
from chimes.notifications.text import one_line, plain, shown
from chimes.retelling import retold
from chimes.triggers import format_moment, parse_zone

# @@ What messages say: sentences for codes, which the catalogues have in every language.

USUAL = ENGLISH
CUT = _("… the rest is with the run")

CHANNELS: Mapping[Channel, Message] = {
    Channel.INBOX: _("inbox"),
    Channel.TELEGRAM: _("Telegram"),
    Channel.WEBHOOK: _("webhook"),
    Channel.EMAIL: _("e-mail"),
}
_REASONS: Mapping[str, Message] = {
    Reason.OVERLAP: _("the run before it was still under way"),
    Reason.DEPENDENCY: _("what it depends on did not succeed in time"),
    Reason.MISFIRE: _("its time was too long ago"),
    Reason.SKIPPED_BY_HAND: _("somebody left it out"),
    Reason.PAUSED: _("it was paused"),
    Reason.CATCH_UP: _("it makes up for a time that was missed"),
    Reason.CANCELED_BY_HAND: _("somebody canceled it"),
    Reason.REPLACED: _("a newer run took its place"),
    Reason.SCHEDULE_DELETED: _("its schedule was deleted"),
    Reason.CRASH_LIMIT: _("the nodes that carried it out stopped again and again"),
    Reason.LOST_AFTER_START: _("the node that carried it out stopped"),
    Reason.UNREADABLE: _("its record in the store is damaged"),
    Reason.FLOW_ENDED: _("the flow that it is a step of has ended"),
}


def language_of(tag: str) -> str:
    """The language that is spoken here for a tag such as `zh-CN`."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else USUAL


def headline(name: str, status: RunStatus | None, *, recovered: bool) -> Message:
    """How a run of this name ended; None: nobody knows any more."""
    if recovered:
        return _("{name}: works again", name=name)
    match status:
        case RunStatus.SUCCEEDED:
            return _("{name}: succeeded", name=name)
        case RunStatus.FAILED:
            return _("{name}: failed", name=name)
        case RunStatus.TIMEOUT:
            return _("{name}: took too long", name=name)
        case RunStatus.CANCELED:
            return _("{name}: was canceled", name=name)
        case RunStatus.SKIPPED:
            return _("{name}: was skipped", name=name)
        case RunStatus.MISSED:
            return _("{name}: was missed", name=name)
        case RunStatus.UNKNOWN:
            return _("{name}: ended in a way that nobody knows", name=name)
        case _:
            return _("{name}: has ended", name=name)


def reason(code: str) -> str:
    """The words for a stable code; a code that has none is its own."""
    return _REASONS.get(code, code)


#: Sent as files; the others are links in the text (R1.11).
MOST_FILES = 3
MOST_LISTED = 20
#: Of an output, in characters; the whole of it stays with the run.
LONGEST_OUTPUT = 60_000
LONGEST_LINE = 1000
LONGEST_NAME = 120
#: Say no more than that the answer is whole.
_USUAL_STOPS = ("stop", "end_turn", "completed")
_LINKS = ("http://", "https://")
#: C10: where schedules come from Softnix' API or a chat, a run ends in the words of that product.
SEED = "softnix"
_SEED_WORDS = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
    RunStatus.MISSED: "failed",
    RunStatus.CANCELED: "canceled",
    RunStatus.SKIPPED: "canceled",
}
Kind = Literal["run", "digest", "test"]
_KINDS: Mapping[NotifyOn, Kind] = {NotifyOn.DIGEST: "digest", NotifyOn.TEST: "test"}
_OF: Mapping[Kind, Message] = {"digest": _("Digest"), "test": _("Test")}


@dataclass(frozen=True, kw_only=True)
class NotificationMessage:
    #: None: it is of no single run.
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str
    #: As in the API; empty if the run is no longer on record.
    status: str
    language: str
    #: One line.
    title: str
    #: What there is below the title, as Markdown.
    markdown: str
    #: What its text is made of: the lines above the output, the output, those below it.
    head: str
    output: str
    is_markdown: bool
    tail: str
    #: Those that are to be sent as files, oldest first.
    files: tuple[Artifact, ...] = ()
    #: All of them.
    artifacts: tuple[Artifact, ...] = ()
    #: The run (or what else it is about) for programs, as JSON.
    facts: Mapping[str, object] = field(default_factory=dict)
    #: What it is about.
    kind: Kind = "run"
    #: Where it can be read in a browser; empty where nobody knows the way.
    link: str = ""

    @cached_property
    def text(self) -> str:
        """All of it, without markup. Made when it is first asked for: long ones take their time,
        and an inbox needs none."""
        output = plain(self.output) if self.is_markdown else self.output
        return _paragraphs([self.head], [output], [self.tail])


def message_of(
    delivery: Delivery, run: Run | None, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    """`run` is None once it is no longer on record. `zone`: that of its reader."""
    language = language_of(language)
    title = _title(delivery, run, language)
    about = _about(run, language, zone, delivery.recipient.late_after)
    output, is_markdown = output_of(run)
    output, cut = shown(output[:LONGEST_OUTPUT]).strip(), len(output) > LONGEST_OUTPUT
    rest = [in_language(CUT, language)] if cut else []
    artifacts = artifacts_of(run)
    files = artifacts[-MOST_FILES:]
    links = _links(artifacts[:-MOST_FILES], language)
    way: list[str] = []
    link = f"{public_url}/ui/runs/{delivery.run_id}" if public_url else ""
    if link:
        open_there = _("Open: {url}", url=link)
        way.append(in_language(open_there, language))
    status = run.status.value if run is not None else ""
    said = _SEED_WORDS.get(run.status, status) if run and run.namespace == SEED else status
    first = f"Run {delivery.run_id}: {said}".rstrip(": ")
    fenced = output if is_markdown or not output else _fenced(output)
    return NotificationMessage(
        run_id=delivery.run_id,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status=status,
        language=language,
        title=title,
        markdown=_paragraphs(about, [fenced], rest),
        head=_paragraphs([first, title, *about]),
        output=output,
        is_markdown=is_markdown,
        tail=_paragraphs(rest, links, way),
        files=files,
        artifacts=artifacts,
        facts=_facts(delivery, run, output),
        link=link,
    )


def bare_message(delivery: Delivery, language: str) -> NotificationMessage:
    """All that can be said if there is something about it that cannot be told."""
    language = language_of(language)
    kind = _KINDS.get(delivery.occasion, "run")
    title = _title(delivery, None, language) if kind == "run" else in_language(_OF[kind], language)
    return NotificationMessage(
        kind=kind,
        run_id=delivery.run_id,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status="",
        language=language,
        title=title,
        markdown="",
        head=_paragraphs([f"Run {delivery.run_id}" if delivery.run_id else "", title]),
        output="",
        is_markdown=False,
        tail="",
    )


def output_of(run: Run | None) -> tuple[str, bool]:
    """What the run has to say, and whether that is Markdown: an agent's answer, the body of an
    answer, what a task returned."""
    result = run.result if run is not None else None
    if run is None or not result:
        return "", False
    for key in ("text", "value"):
        if key in result:
            value = result[key]
            if isinstance(value, str):
                return value, True
            text = "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)
            return text, False
    body = result.get("body")
    return (body, False) if isinstance(body, str) else ("", False)


def artifacts_of(run: Run | None) -> tuple[Artifact, ...]:
    found = run.result.get("artifacts") if run is not None and run.result else None
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    every = [_artifact(each) for each in found]
    return tuple(each for each in every if each is not None)[-MOST_LISTED:]


def link_line(artifact: Artifact) -> str:
    return f"{artifact.name}: {artifact.url}" if artifact.url.startswith(_LINKS) else artifact.name


def _artifact(value: object) -> Artifact | None:
    if not isinstance(value, Mapping):
        return None
    name, url = value.get("name"), value.get("url")
    if not isinstance(url, str) or not url:
        return None
    named = one_line(name)[:LONGEST_NAME] if isinstance(name, str) else ""
    return Artifact(name=named or url.rpartition("/")[2][:LONGEST_NAME] or "file", url=url)


def _title(delivery: Delivery, run: Run | None, language: str) -> str:
    name = one_line(delivery.schedule_name)
    if not name and run is not None and isinstance(run.target, AgentTarget):
        name = one_line(run.target.prompt)
    told = headline(
        name[:LONGEST_NAME] or _("Run"),
        None if run is None else run.status,
        recovered=delivery.occasion is NotifyOn.RECOVERY,
    )
    if delivery.occasion is NotifyOn.LATE:
        told = _("{what}, late", what=told)
    return in_language(told, language)


def _about(run: Run | None, language: str, zone: str, late_after: timedelta) -> list[str]:
    if run is None:
        return [in_language(_("The run is no longer on record."), language)]
    lines: list[str] = []
    if run.slot is not None:
        time, named = local_time(run.planned_at, zone)
        lines.append(_("Planned for {time} ({zone})", time=time, zone=named))
    if is_late(run, late_after) and run.started_at is not None:
        time, named = local_time(run.started_at, zone)
        lines.append(_("Began late: at {time} ({zone})", time=time, zone=named))
    if run.status is RunStatus.MISSED and run.missed_count > 1:
        lines.append(
            counted(
                "{count} planned time was missed",
                "{count} planned times were missed",
                run.missed_count,
            )
        )
    stopped = run.result.get("finish_reason") if run.result else None
    if isinstance(stopped, str) and stopped and stopped not in _USUAL_STOPS:
        lines.append(_("Stopped because: {reason}", reason=one_line(stopped)[:LONGEST_LINE]))
    if run.reason:
        lines.append(_("Reason: {reason}", reason=reason(run.reason)))
    if run.error:
        error = one_line(retold(run.error, language))[:LONGEST_LINE]
        lines.append(_("Error: {error}", error=error))
    return translate(lines, language)


def local_time(moment: datetime, zone: str) -> tuple[str, str]:
    """By the wall clock of the zone, and its name; by that of UTC if there is no such zone."""
    try:
        offset = parse_zone(zone).offset_at(int(moment.timestamp()))
    except InvalidInput:
        offset, zone = 0, "UTC"
    local = moment.astimezone(timezone(timedelta(seconds=offset)))
    return local.strftime("%Y-%m-%d %H:%M"), zone


def _links(artifacts: Sequence[Artifact], language: str) -> list[str]:
    lines = [link_line(each) for each in artifacts]
    return [in_language(_("Files:"), language), *lines] if lines else []


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _paragraphs(*groups: Sequence[str]) -> str:
    joined = ("\n".join(line for line in group if line) for group in groups)
    return "\n\n".join(each for each in joined if each)


def _facts(delivery: Delivery, run: Run | None, output: str) -> dict[str, object]:
    facts: dict[str, object] = {"id": delivery.run_id, "status": None}
    if run is None:
        return facts
    return facts | {
        "status": run.status.value,
        "origin": run.origin.value,
        "attempt": run.attempt,
        "slot": _moment(run.slot),
        "planned_at": _moment(run.planned_at),
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
        "error": run.error,
        "reason": run.reason,
        "missed_count": run.missed_count,
        "output": output,
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else format_moment(at)


# @@ What a test says: that it is one, and that messages arrive here (pure).


def trial_message(
    delivery: Delivery, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    language = language_of(language)
    time, named = local_time(delivery.created_at, zone)
    name = one_line(delivery.schedule_name)
    lines = [
        _(
            "This is a test by {channel}, asked for at {time} ({zone}). No run has ended.",
            channel=CHANNELS[delivery.recipient.channel],
            time=time,
            zone=named,
        )
    ]
    if name:
        lines.append(_("What {name} has to tell comes here.", name=name))
    told = [in_language(line, language) for line in lines]
    title = in_language(_("Test: messages arrive here"), language)
    way = in_language(_("Open: {url}", url=f"{public_url}/ui/inbox"), language)
    return NotificationMessage(
        kind="test",
        run_id=None,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status="",
        language=language,
        title=title,
        markdown="\n\n".join(told),
        head="\n".join([title, *told]),
        output="",
        is_markdown=False,
        tail=way if public_url else "",
    )
