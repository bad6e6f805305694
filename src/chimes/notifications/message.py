"""The text of a notification about a run, the same for every channel, in one language (pure).

Markdown becomes plain text with link targets written out, so that a reader sees every address
before following it. `split` cuts a long text into parts for a channel.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache
from textwrap import indent
from typing import TYPE_CHECKING, Literal

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, LANGUAGES, Message, _, counted, in_language, translate
from chimes.model.ids import RunId, ScheduleId
from chimes.model.monitor import parse_event_reference
from chimes.model.notification import Artifact, Delivery, is_late
from chimes.model.proposal import Proposal, describe_change
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import Run, RunStatus, describe_reason
from chimes.model.target import AgentTarget
from chimes.model.wait import Approval, Decision
from chimes.triggers import format_moment, parse_zone

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode


CUT = _("… see the run for the rest")

CHANNELS: Mapping[Channel, Message] = {
    Channel.INBOX: _("inbox"),
    Channel.TELEGRAM: _("Telegram"),
    Channel.WEBHOOK: _("webhook"),
    Channel.EMAIL: _("e-mail"),
    Channel.SLACK: _("Slack"),
    Channel.APPRISE: _("Apprise"),
}
#: Artifacts sent as files; the others are links in the text.
MAX_FILES = 3
MAX_LISTED = 20
#: Characters of an output in a message; the run has all of it.
MAX_OUTPUT = 60_000
MAX_LINE = 1000
MAX_NAME = 120
#: Finish reasons of a complete answer.
_USUAL_STOPS = ("stop", "end_turn", "completed")
_LINKS = ("http://", "https://")
#: Schedules of the Softnix API and of chats report the statuses of that product.
_SOFTNIX_NAMESPACE = "softnix"
_SOFTNIX_STATUSES = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
    RunStatus.MISSED: "failed",
    RunStatus.CANCELED: "canceled",
    RunStatus.SKIPPED: "canceled",
}
Kind = Literal["run", "digest", "test", "monitor", "proposal", "approval"]
_KINDS: Mapping[NotifyOn, Kind] = {
    NotifyOn.DIGEST: "digest",
    NotifyOn.TEST: "test",
    NotifyOn.PROPOSAL: "proposal",
    NotifyOn.APPROVAL: "approval",
}
_KIND_TITLES: Mapping[Kind, Message] = {
    "digest": _("Digest"),
    "test": _("Test"),
    "proposal": _("Proposal"),
    "approval": _("Approval"),
}


def kind_of(delivery: Delivery) -> Kind:
    if parse_event_reference(delivery.run_id) is not None:
        return "monitor"
    return _KINDS.get(delivery.notify_on, "run")


def monitor_headline(name: str, notify_on: NotifyOn) -> Message:
    """One line that says what happened to a monitor."""
    match notify_on:
        case NotifyOn.RECOVERY:
            return _("{name}: recovered", name=name)
        case NotifyOn.LATE:
            return _("{name}: late", name=name)
        case _:
            return _("{name}: down", name=name)


def language_of(tag: str) -> str:
    """The supported language for a tag such as `zh-CN`."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ENGLISH


def headline(name: str, status: RunStatus | None, *, recovered: bool) -> Message:
    """One line that says how a run ended. `status` None: the run is no longer stored."""
    if recovered:
        return _("{name}: recovered", name=name)
    match status:
        case RunStatus.SUCCEEDED:
            return _("{name}: succeeded", name=name)
        case RunStatus.FAILED:
            return _("{name}: failed", name=name)
        case RunStatus.TIMEOUT:
            return _("{name}: timed out", name=name)
        case RunStatus.CANCELED:
            return _("{name}: canceled", name=name)
        case RunStatus.SKIPPED:
            return _("{name}: skipped", name=name)
        case RunStatus.MISSED:
            return _("{name}: missed", name=name)
        case RunStatus.UNKNOWN:
            return _("{name}: outcome unknown", name=name)
        case _:
            return _("{name}: ended", name=name)


@dataclass(frozen=True, kw_only=True)
class NotificationMessage:
    #: None: the message is not about one run.
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str
    #: As in the API; empty if the run is no longer stored.
    status: str
    language: str
    #: One line.
    title: str
    #: The text below the title, as Markdown.
    markdown: str
    #: The parts of `text`: lines above the output, the output, lines below it.
    head: str
    output: str
    is_markdown: bool
    tail: str
    #: Artifacts to send as files, oldest first.
    files: tuple[Artifact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    #: The run or digest as JSON, for webhooks; of a proposal its id and the digest of its plan.
    facts: Mapping[str, object] = field(default_factory=dict)
    kind: Kind = "run"
    #: The dashboard page; empty without a public URL.
    link: str = ""

    @cached_property
    def text(self) -> str:
        """The whole message without markup. Computed on first use: long texts are slow, and the
        inbox does not need it."""
        output = plain(self.output) if self.is_markdown else self.output
        return _paragraphs([self.head], [output], [self.tail])


def build_message(
    delivery: Delivery, run: Run | None, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    """`run` is None once it is no longer stored. `zone`: time zone of the recipient."""
    language = language_of(language)
    title = _title(delivery, run, language)
    about = _about(run, language, zone, delivery.recipient.late_after)
    if delivery.notify_on is NotifyOn.PAUSED:
        about = [*translate(_about_pause(run), language), *about]
    if (after := delivery.recipient.after) is not None:
        minutes = max(1, round(after / timedelta(minutes=1)))
        about.append(
            in_language(
                counted(
                    "Escalated: not acknowledged within {count} minute",
                    "Escalated: not acknowledged within {count} minutes",
                    minutes,
                ),
                language,
            )
        )
    output, is_markdown = output_of(run)
    output, cut = sanitize(output[:MAX_OUTPUT]).strip(), len(output) > MAX_OUTPUT
    rest = [in_language(CUT, language)] if cut else []
    artifacts = artifacts_of(run)
    files = artifacts[-MAX_FILES:]
    links = _links(artifacts[:-MAX_FILES], language)
    footer: list[str] = []
    link = f"{public_url}/ui/runs/{delivery.run_id}" if public_url else ""
    if public_url and delivery.notify_on is NotifyOn.PAUSED:
        # The page with the button to resume.
        link = f"{public_url}/ui/schedules/{delivery.schedule_id}"
    if link:
        footer.append(in_language(_("Open: {url}", url=link), language))
    status = run.status.value if run is not None else ""
    reported = status
    if run is not None and run.namespace == _SOFTNIX_NAMESPACE:
        reported = _SOFTNIX_STATUSES.get(run.status, status)
    first = f"Run {delivery.run_id}: {reported}".rstrip(": ")
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
        tail=_paragraphs(rest, links, footer),
        files=files,
        artifacts=artifacts,
        facts=_facts(delivery, run, output),
        link=link,
    )


def build_fallback_message(delivery: Delivery, language: str) -> NotificationMessage:
    """A message with the title only, for a run whose message cannot be built."""
    language = language_of(language)
    kind = kind_of(delivery)
    if kind == "run":
        title = _title(delivery, None, language)
    elif kind == "monitor":
        name = one_line(delivery.schedule_name)[:MAX_NAME]
        title = in_language(monitor_headline(name, delivery.notify_on), language)
    else:
        title = in_language(_KIND_TITLES[kind], language)
    run_id = None if kind == "monitor" else delivery.run_id
    return NotificationMessage(
        kind=kind,
        run_id=run_id,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status="",
        language=language,
        title=title,
        markdown="",
        head=_paragraphs([f"Run {run_id}" if run_id else "", title]),
        output="",
        is_markdown=False,
        tail="",
    )


def output_of(run: Run | None) -> tuple[str, bool]:
    """The output of a run and whether it is Markdown: an agent's answer, an HTTP response body,
    the last lines of a command or the return value of a task."""
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
    body = result.get("body", result.get("output"))
    return (body, False) if isinstance(body, str) else ("", False)


def artifacts_of(run: Run | None) -> tuple[Artifact, ...]:
    found = run.result.get("artifacts") if run is not None and run.result else None
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    every = [_artifact(each) for each in found]
    return tuple(each for each in every if each is not None)[-MAX_LISTED:]


def link_line(artifact: Artifact) -> str:
    return f"{artifact.name}: {artifact.url}" if artifact.url.startswith(_LINKS) else artifact.name


def _artifact(value: object) -> Artifact | None:
    if not isinstance(value, Mapping):
        return None
    name, url = value.get("name"), value.get("url")
    if not isinstance(url, str) or not url:
        return None
    named = one_line(name)[:MAX_NAME] if isinstance(name, str) else ""
    return Artifact(name=named or url.rpartition("/")[2][:MAX_NAME] or "file", url=url)


def _title(delivery: Delivery, run: Run | None, language: str) -> str:
    name = one_line(delivery.schedule_name)
    if not name and run is not None and isinstance(run.target, AgentTarget):
        name = one_line(run.target.prompt)
    title = headline(
        name[:MAX_NAME] or _("Run"),
        None if run is None else run.status,
        recovered=delivery.notify_on is NotifyOn.RECOVERY,
    )
    if delivery.notify_on is NotifyOn.LATE:
        title = _("{what}, late", what=title)
    elif delivery.notify_on is NotifyOn.PAUSED:
        title = _("{name}: paused after failures in a row", name=name[:MAX_NAME] or _("Run"))
    return in_language(title, language)


def _about(run: Run | None, language: str, zone: str, late_after: timedelta) -> list[str]:
    if run is None:
        return [in_language(_("The run is no longer stored."), language)]
    lines: list[str] = []
    if run.slot is not None:
        time, named = local_time(run.planned_at, zone)
        lines.append(_("Planned for {time} ({zone})", time=time, zone=named))
    if is_late(run, late_after) and run.started_at is not None:
        time, named = local_time(run.started_at, zone)
        lines.append(_("Started late: {time} ({zone})", time=time, zone=named))
    if run.status is RunStatus.MISSED and run.missed_count > 1:
        lines.append(
            counted(
                "{count} slot missed",
                "{count} slots missed",
                run.missed_count,
            )
        )
    stopped = run.result.get("finish_reason") if run.result else None
    if isinstance(stopped, str) and stopped and stopped not in _USUAL_STOPS:
        lines.append(_("Finish reason: {reason}", reason=one_line(stopped)[:MAX_LINE]))
    if run.reason:
        lines.append(_("Reason: {reason}", reason=describe_reason(run.reason)))
    if run.error:
        error = one_line(in_language(run.error, language))[:MAX_LINE]
        lines.append(_("Error: {error}", error=error))
    return translate(lines, language)


def _about_pause(run: Run | None) -> list[str]:
    limit = None if run is None else run.policy.auto_pause_after
    lines: list[str] = []
    if limit is not None:
        lines.append(counted("{count} failed run", "{count} failed runs in a row", limit))
    return [*lines, _("No further runs are planned until the schedule is resumed.")]


def local_time(moment: datetime, zone: str) -> tuple[str, str]:
    """The local time and the name of its zone; UTC if the zone is unknown."""
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


def build_test_message(
    delivery: Delivery, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    language = language_of(language)
    time, named = local_time(delivery.created_at, zone)
    name = one_line(delivery.schedule_name)
    lines = [
        _(
            "This is a test notification ({channel}), requested at {time} ({zone}).",
            channel=CHANNELS[delivery.recipient.channel],
            time=time,
            zone=named,
        )
    ]
    if name:
        lines.append(_("Notifications of {name} arrive here.", name=name))
    texts = [in_language(line, language) for line in lines]
    title = in_language(_("Test notification"), language)
    link = in_language(_("Open: {url}", url=f"{public_url}/ui/inbox"), language)
    return NotificationMessage(
        kind="test",
        run_id=None,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status="",
        language=language,
        title=title,
        markdown="\n\n".join(texts),
        head="\n".join([title, *texts]),
        output="",
        is_markdown=False,
        tail=link if public_url else "",
    )


def build_proposal_message(
    delivery: Delivery, proposal: Proposal, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    """The changes in words, the reason and who wants them. Names and the reason are text of the
    asker: they are never markup."""
    language = language_of(language)
    asker = one_line(proposal.asker.title or proposal.asker.name)
    title = in_language(_("Proposal by {asker}", asker=asker), language)
    expires, named = local_time(proposal.expires_at, zone)
    changes: list[str] = [describe_change(each) for each in proposal.plan[:MAX_LISTED]]
    if len(proposal.plan) > MAX_LISTED:
        changes.append(_("… and more"))
    changes = [one_line(each) for each in translate(changes, language)]
    reason = sanitize(proposal.reason)
    expiry = in_language(_("Decide until {time} ({zone})", time=expires, zone=named), language)
    said = in_language(_("Reason:"), language)
    link = f"{public_url}/ui/proposals/{proposal.id}"
    footer = [in_language(_("Open: {url}", url=link), language)] if public_url else []
    return NotificationMessage(
        kind="proposal",
        run_id=None,
        schedule_id=None,
        schedule_name="",
        status="",
        language=language,
        title=title,
        markdown=_paragraphs(
            [_fenced("\n".join(changes))],
            [said],
            [_fenced(reason)],
            [expiry],
            [f"[{in_language(_('Open the proposal'), language)}]({link})"],
        ),
        head=_paragraphs([title], changes, [f"{said} {reason}"], [expiry]),
        output="",
        is_markdown=False,
        tail=_paragraphs(footer),
        facts={"id": proposal.id, "digest": proposal.digest},
        link=link if public_url else "",
    )


def build_approval_message(
    delivery: Delivery, approval: Approval, *, language: str, zone: str, public_url: str = ""
) -> NotificationMessage:
    """The question, and what happens without an answer. The question can contain outputs of earlier
    steps: it is never markup."""
    language = language_of(language)
    title = in_language(
        _("{flow} waits for an approval: {step}", flow=approval.flow, step=approval.run.step),
        language,
    )
    expires, named = local_time(approval.expires_at, zone)
    expiry = _("Decide until {time} ({zone}), or it is rejected", time=expires, zone=named)
    if approval.wait.default is Decision.APPROVE:
        expiry = _("Decide until {time} ({zone}), or it is approved", time=expires, zone=named)
    until = in_language(expiry, language)
    prompt = sanitize(approval.wait.prompt)
    link = f"{public_url}/ui/approvals/{approval.id}"
    footer = [in_language(_("Open: {url}", url=link), language)] if public_url else []
    return NotificationMessage(
        kind="approval",
        run_id=None,
        schedule_id=None,
        schedule_name=approval.flow,
        status="",
        language=language,
        title=title,
        markdown=_paragraphs(
            [_fenced(prompt)] if prompt else [],
            [until],
            [f"[{in_language(_('Open the approval'), language)}]({link})"],
        ),
        head=_paragraphs([title], [prompt] if prompt else [], [until]),
        output="",
        is_markdown=False,
        tail=_paragraphs(footer),
        facts={
            "id": approval.id,
            "run_id": approval.run.parent_id,
            "step": approval.run.step,
            "prompt": prompt,
        },
        link=link if public_url else "",
    )


# --- Markdown as plain text -----------------------------------------------------------------------
MAX_NESTING = 20
#: Longer texts, and texts with more markup, are not parsed: untrusted output must not cost seconds.
MAX_PARSED = 50_000
MAX_MARKERS = 3000
_MARKS = re.compile(r"[\n\[\]!*_`~<>|&#\\]")
_LINKED = ("http://", "https://", "mailto:")
#: Control characters and bidirectional overrides, which can disguise a text.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def sanitize(text: str) -> str:
    """The text without control characters and bidirectional overrides."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    return " ".join(sanitize(text).split())


@lru_cache(maxsize=8)
def plain(markdown: str) -> str:
    """Markdown as plain text. Cached: the same text goes to several recipients and attempts."""
    text = sanitize(markdown)
    return (_parsed(text) if readable_markdown(text) else "") or text.strip()


def readable_markdown(text: str) -> bool:
    """Whether the text is small enough to be parsed."""
    return len(text) <= MAX_PARSED and len(_MARKS.findall(text)) <= MAX_MARKERS


def _parsed(text: str) -> str:
    """Empty if it is nested so deeply that the parser would drop some of it."""
    from markdown_it.tree import SyntaxTreeNode

    try:
        tokens = _parser().parse(text)
        if any(token.level >= MAX_NESTING - 1 for token in tokens):
            return ""
        return _block(SyntaxTreeNode(tokens)).strip()
    except RecursionError:
        return ""


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # HTML is not interpreted.
    options = {"html": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "root":
            return "\n\n".join(_block(each) for each in node.children)
        case "fence" | "code_block":
            return node.content.rstrip("\n")
        case "bullet_list":
            return "\n".join(_item(each, "• ") for each in node.children)
        case "ordered_list":
            first = int(node.attrs.get("start", 1))
            return "\n".join(
                _item(each, f"{first + place}. ") for place, each in enumerate(node.children)
            )
        case "blockquote":
            inside = "\n\n".join(_block(each) for each in node.children)
            return indent(inside, "> ", lambda _: True)
        case "hr":
            return "———"
        case "table":
            return "\n".join(_row(row) for part in node.children for row in part.children)
        case _:
            return "".join(_inline(each) for each in node.children)


def _item(node: SyntaxTreeNode, mark: str) -> str:
    inside = "\n".join(_block(each) for each in node.children)
    return mark + inside.replace("\n", "\n" + " " * len(mark))


def _row(node: SyntaxTreeNode) -> str:
    return " | ".join("".join(map(_inline, cell.children)) for cell in node.children)


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline":
            return node.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "image":
            return node.content
        case "link":
            return _link(node)
        case _:
            return "".join(_inline(each) for each in node.children)


def _link(node: SyntaxTreeNode) -> str:
    text = "".join(_inline(each) for each in node.children)
    url = str(node.attrs.get("href", ""))
    if not url.startswith(_LINKED) or text == url:
        return text
    return f"{text} ({url})" if text else url


# --- splitting ------------------------------------------------------------------------------------
_JOINER = "\u200d"
_AM = "\u0e33\u0eb3"  # Thai and Lao AM: one syllable with the consonant before it
_LEADING_VOWELS = "เแโใไເແໂໃໄ"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
_JAMO = range(0x1160, 0x1200)
_BREAKS = (re.compile(r"\n[ \t]*\n"), re.compile(r"\n"), re.compile(r"[ \t\u3000]"))


def utf16_length(text: str) -> int:
    """The length as the Telegram Bot API counts it."""
    return len(text) + sum(char > "\uffff" for char in text)


def split(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` UTF-16 code units: cut between paragraphs, else lines, else words,
    else characters, never inside a grapheme. Only white space around the cuts is lost; a blank
    text has no parts."""
    parts = []
    rest = text.strip()
    while rest:
        end = _fitting(rest, limit)
        cut = len(rest) if end == len(rest) else _cut(rest, end)
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return parts


def _fitting(text: str, limit: int) -> int:
    """The number of characters that fit into `limit` UTF-16 code units."""
    units = 0
    for place, char in enumerate(text):
        units += 2 if char > "\uffff" else 1
        if units > limit:
            return max(place, 1)
    return len(text)


def _cut(text: str, end: int) -> int:
    # Not before half the limit, to avoid many small parts.
    for pattern in _BREAKS:
        found = [match.start() for match in pattern.finditer(text, end // 2, end + 1)]
        if found:
            return found[-1]
    cut = end
    while cut > end // 2 and _together(text[cut - 1], text[cut]):
        cut -= 1
    return cut if cut > end // 2 else end


def _together(before: str, after: str) -> bool:
    """Whether a cut between the two characters would break a grapheme."""
    return (
        unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after in _AM
        or before in _LEADING_VOWELS
        or _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or ord(after) in _JAMO
        or (ord(before) in _FLAGS and ord(after) in _FLAGS)
    )
