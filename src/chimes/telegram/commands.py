"""Parses commands of a chat and formats the replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal
from zoneinfo import ZoneInfo

from chimes.i18n import Message, _, from_stored, in_language, joined
from chimes.language.description import describe
from chimes.model.proposal import STATUS_NAMES, Proposal, ProposalStatus, describe_change
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.wait import Approval
from chimes.notifications.message import one_line, sanitize
from chimes.triggers import Cron, Every, Once, format_duration_go

#: Changes of a proposal in a list, and in its own message.
MAX_LISTED_CHANGES, MAX_SHOWN_CHANGES = 3, 20
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,64})(?:@([A-Za-z0-9_]+))?(?:\s+|$)(.*)", re.DOTALL)


class Verb(StrEnum):
    CREATE = "schedule"
    LIST = "schedules"
    RUNS = "schedule_runs"
    PAUSE = "schedule_pause"
    RESUME = "schedule_resume"
    RUN = "schedule_run"
    DELETE = "schedule_delete"
    SNOOZE = "schedule_snooze"
    #: By button only: retries a run without a schedule.
    RETRY = "run_again"
    #: By button only: marks a message as done.
    DONE = "done"
    PROPOSALS = "proposals"
    PROPOSAL = "proposal"
    APPROVE = "proposal_approve"
    REJECT = "proposal_reject"
    #: Steps of flows that wait for a decision.
    APPROVALS = "approvals"
    APPROVE_STEP = "approve"
    REJECT_STEP = "reject"
    #: By button only: marks the failure of a run as known.
    KNOWN = "known"
    START = "start"
    LINK = "link"
    UNLINK = "unlink"
    LANGUAGE = "language"
    TIMEZONE = "timezone"
    HELP = "help"
    #: Text without a command.
    TEXT = "words"
    UNKNOWN = "unknown"

    @property
    def changes(self) -> bool:
        """Whether the command has an effect that a user may not expect long after sending it."""
        return self not in _READING


_READING = (
    *(Verb.LIST, Verb.RUNS, Verb.PROPOSALS, Verb.PROPOSAL, Verb.APPROVALS),
    *(Verb.HELP, Verb.UNKNOWN),
)


_NOT_COMMANDS = (Verb.TEXT, Verb.UNKNOWN, Verb.DONE, Verb.KNOWN)
_NAMES = {verb.value: verb for verb in Verb if verb not in _NOT_COMMANDS} | {
    # Aliases of Softnix.
    "schedule_disable": Verb.PAUSE,
    "schedule_enable": Verb.RESUME,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    verb: Verb
    argument: str = ""
    #: As the user wrote it, for the reply.
    name: str = ""
    #: The bot in `/command@bot`, if any.
    bot: str = ""


def read_command(text: str) -> Command:
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return Command(verb=Verb.TEXT, argument=text.strip())
    name = found[1].lower()
    return Command(
        verb=_NAMES.get(name, Verb.UNKNOWN),
        argument=found[3].strip(),
        name=name,
        bot=found[2] or "",
    )


# Translations of sentences of Softnix (`Schedule created: <id>`) include the original text, because
# clients rely on it.

Language = Literal["en", "th", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "th", "zh")

#: Can be parsed in every language.
EXAMPLE = _("every weekday at 9:00 summarise the news")
FAILED = _("Internal error. Please try again.")
HELP = _(
    "Write a time and a task, for example:\n{example}\n\n"
    "/schedule <text> – create a schedule\n/schedules – list your schedules\n"
    "/schedule_runs <id> – list its runs\n/schedule_pause <id>\n/schedule_resume <id>\n"
    "/schedule_run <id> – run now\n/schedule_delete <id>\n"
    "/proposals – changes that wait for your decision\n"
    "/approvals – flows that wait for your decision\n"
    "/language en|th|zh\n/timezone Asia/Bangkok",
    example=EXAMPLE,
)


def parse_error(message: str) -> Message:
    return _("Schedule parse error: {message}", message=message)


def language_of(code: str) -> Language | None:
    """From a tag such as `th`, `zh-hans` or `en-US`."""
    found = code.partition("-")[0].partition("_")[0].lower()
    return next((each for each in LANGUAGES if each == found), None)


def language_of_text(text: str) -> Language | None:
    """The language of the script; None for Latin letters."""
    if any("\u0e00" <= char <= "\u0e7f" for char in text):
        return "th"
    return "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else None


#: Status names of Softnix.
_STATUSES = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    text: str
    chat_id: str


def created_text(schedule: Schedule, language: Language, *, zone: str) -> Message:
    """Confirms a new schedule with the parsed trigger. `zone`: of the sentence, because an interval
    has none."""
    trigger = schedule.trigger
    lines: list[str] = [
        _("Schedule created: {id}", id=schedule.id),
        describe(trigger, language),
    ]
    if isinstance(trigger, Once):
        lines += ["type=one_time", f"run_at={_iso(trigger.instant)}"]
    else:
        lines.append("type=cron")
        if isinstance(trigger, Every):
            lines.append(f"cron=@every {format_duration_go(trigger.every)}")
        elif isinstance(trigger, Cron):
            lines.append(f"cron={trigger.expression}")
    lines.append(f"timezone={zone}")
    lines.append(f"next_run_at={_iso(schedule.next_run_at)}")
    return joined("\n", lines)


def list_text(schedules: Sequence[Schedule], *, more: bool, language: Language) -> Message:
    lines: list[str] = [_("Schedules:")]
    for schedule in schedules:
        lines += [
            "",
            f"{schedule.id} · {schedule.name}",
            f"  {describe(schedule.trigger, language)}",
        ]
        lines.append(joined("  ", ("", _state_text(schedule))))
    if more:
        lines += ["", _("… and more")]
    return joined("\n", lines)


def _state_text(schedule: Schedule) -> Message:
    if schedule.next_run_at is not None and schedule.enabled:
        return _("next {at}", at=local(schedule.next_run_at, schedule.trigger.zone))
    return _("done") if schedule.enabled else _("paused")


def runs_text(schedule: Schedule, runs: Sequence[Run], language: Language) -> Message:
    if not runs:
        return _("No runs yet: {id}", id=schedule.id)
    lines: list[str] = [_("Runs of {id}:", id=schedule.id)]
    for run in runs:
        status = _STATUSES.get(run.status, run.status.value)
        at = run.started_at or run.planned_at
        lines.append(f"{status} · {local(at, schedule.trigger.zone)} · {run.id}")
        if run.error:
            lines.append(f"  {in_language(run.error, language)[:200]}")
    return joined("\n", lines)


def proposals_text(proposals: Sequence[Proposal], zone: str) -> Message:
    if not proposals:
        return _("No open proposals.")
    lines: list[str] = [_("Open proposals:")]
    for each in proposals:
        asker = one_line(each.asker.title or each.asker.name)
        lines += ["", f"{each.id} · {asker}", *_changes(each, MAX_LISTED_CHANGES)]
        lines.append(_("Decide until {time}", time=local(each.expires_at, zone)))
    lines += ["", _("/proposal <id> shows a proposal.")]
    return joined("\n", lines)


def proposal_text(proposal: Proposal, zone: str) -> Message:
    asker = one_line(proposal.asker.title or proposal.asker.name)
    lines: list[str] = [
        _("Proposal by {asker}", asker=asker),
        *_changes(proposal, MAX_SHOWN_CHANGES),
        _("Reason: {reason}", reason=sanitize(proposal.reason)),
    ]
    if proposal.status is not ProposalStatus.OPEN:
        lines.append(_("Status: {status}", status=STATUS_NAMES[proposal.status]))
        return joined("\n", lines)
    lines += [
        _("Decide until {time}", time=local(proposal.expires_at, zone)),
        f"/proposal_approve {proposal.id}",
        f"/proposal_reject {proposal.id}",
    ]
    return joined("\n", lines)


def decided_text(proposal: Proposal) -> Message:
    if proposal.status is ProposalStatus.FAILED:
        return _("The changes could not be made: {error}", error=from_stored(proposal.error))
    if proposal.status is ProposalStatus.REJECTED:
        return _("Proposal rejected.")
    return joined("\n", [_("Proposal approved."), *_changes(proposal, MAX_SHOWN_CHANGES)])


def approvals_text(approvals: Sequence[Approval], zone: str) -> Message:
    if not approvals:
        return _("No open approvals.")
    lines: list[str] = [_("Open approvals:")]
    for each in approvals:
        lines += ["", f"{one_line(each.flow)} · {one_line(each.run.step)}"]
        if each.wait.prompt:
            lines.append(sanitize(each.wait.prompt))
        lines += [
            _("Decide until {time}", time=local(each.expires_at, zone)),
            f"/approve {each.id}",
            f"/reject {each.id}",
        ]
    return joined("\n", lines)


def decided_approval_text(approval: Approval) -> Message:
    flow, step = one_line(approval.flow), one_line(approval.run.step)
    if approval.decision == "approved":
        return _("Approved: {flow}, {step}", flow=flow, step=step)
    return _("Rejected: {flow}, {step}", flow=flow, step=step)


def _changes(proposal: Proposal, most: int) -> list[str]:
    lines: list[str] = [joined("", ("• ", describe_change(each))) for each in proposal.plan[:most]]
    return lines if len(proposal.plan) <= most else [*lines, _("… and more")]


def local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"


def _iso(moment: datetime | None) -> str:
    return moment.isoformat() if moment else "-"
