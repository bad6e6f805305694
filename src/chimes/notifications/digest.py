"""The text of a digest: runs by outcome, and a list of the most important ones (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from chimes.i18n import Message, _, counted, in_language
from chimes.model.ids import RunId
from chimes.model.monitor import parse_event_reference
from chimes.model.notification import Delivery, digest_end
from chimes.model.recipient import NotifyOn
from chimes.model.run import Run
from chimes.notifications.message import (
    MAX_NAME,
    NotificationMessage,
    headline,
    language_of,
    local_time,
    monitor_headline,
    one_line,
)
from chimes.triggers import format_moment

#: Runs listed one by one; the others are only counted.
MAX_LISTED_RUNS = 50
#: Failures are listed first.
_ORDER = (NotifyOn.FAILURE, NotifyOn.LATE, NotifyOn.RECOVERY, NotifyOn.ALWAYS, NotifyOn.SUCCESS)
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&!])")


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestMembers:
    """The deliveries that a digest replaces."""

    members: tuple[Delivery, ...]
    #: Whether there are more than the digest can hold.
    more: bool = False

    @property
    def newest(self) -> Delivery:
        return max(self.members, key=lambda each: (each.created_at, each.id))

    @property
    def listed(self) -> tuple[Delivery, ...]:
        ordered = sorted(self.members, key=lambda each: (each.created_at, each.id), reverse=True)
        ordered.sort(key=lambda each: _ORDER.index(each.notify_on))
        return tuple(ordered[:MAX_LISTED_RUNS])

    @property
    def runs(self) -> set[RunId]:
        """The runs that are listed one by one."""
        ids = {each.run_id for each in self.listed if each.run_id is not None}
        return {each for each in ids if parse_event_reference(each) is None}


def build_digest_message(
    digest: Delivery,
    content: DigestMembers,
    runs: Mapping[RunId, Run],
    *,
    language: str,
    zone: str,
    public_url: str = "",
) -> NotificationMessage:
    """`zone`: time zone of the recipient."""
    language = language_of(language)
    counts = Counter(each.notify_on for each in content.members)
    listed_runs = content.listed
    entries = [_entry(each, runs, language, zone) for each in listed_runs]
    addresses = [_address(each, public_url) for each in listed_runs]
    until, zone_named = local_time(digest_end(digest), zone)
    about = [
        _("Until {time} ({zone})", time=until, zone=zone_named),
        *(_tally(notify_on, counts[notify_on]) for notify_on in _ORDER if counts[notify_on]),
    ]
    heads = [in_language(each, language) for each in about]
    rest = _rest(content, len(listed_runs), language)
    listed = [f"- {line}" for line in entries]
    if public_url:
        listed = [f"{line}\n  {url}" for line, url in zip(listed, addresses, strict=True)]
    linked = [
        f"- [{_MARKUP.sub(_escaped, line)}]({url})"
        for line, url in zip(entries, addresses, strict=True)
    ]
    title = in_language(_title(len(content.members), content.more), language)
    return NotificationMessage(
        kind="digest",
        run_id=None,
        schedule_id=None,
        schedule_name="",
        status="",
        language=language,
        title=title,
        markdown="\n\n".join(
            each
            for each in ("\n".join(f"- {head}" for head in heads), "\n".join(linked), rest)
            if each
        ),
        head="\n".join([title, *heads]),
        output="\n".join(listed),
        is_markdown=False,
        tail=rest,
        facts=_facts(digest, content, runs, counts),
    )


def _address(member: Delivery, public_url: str) -> str:
    event = parse_event_reference(member.run_id)
    if event is not None:
        return f"{public_url}/ui/monitors/{event[0]}"
    return f"{public_url}/ui/runs/{member.run_id}"


def _title(count: int, more: bool) -> Message:
    if more:
        return _("Digest: more than {count} runs", count=count)
    return counted("Digest: {count} run", "Digest: {count} runs", count)


def _tally(notify_on: NotifyOn, count: int) -> Message:
    match notify_on:
        case NotifyOn.FAILURE:
            return _("Failed: {count}", count=count)
        case NotifyOn.LATE:
            return _("Late: {count}", count=count)
        case NotifyOn.RECOVERY:
            return _("Recovered: {count}", count=count)
        case NotifyOn.SUCCESS:
            return _("Succeeded: {count}", count=count)
        case _:
            return _("Other: {count}", count=count)


def _entry(member: Delivery, runs: Mapping[RunId, Run], language: str, zone: str) -> str:
    if parse_event_reference(member.run_id) is not None:
        name = one_line(member.schedule_name)[:MAX_NAME]
        time, named = local_time(member.created_at, zone)
        what = monitor_headline(name, member.notify_on)
        line = _("{what} – {time} ({zone})", what=what, time=time, zone=named)
        return in_language(line, language)
    run = runs.get(member.run_id) if member.run_id is not None else None
    what = headline(
        one_line(member.schedule_name)[:MAX_NAME] or _("Run"),
        None if run is None else run.status,
        recovered=member.notify_on is NotifyOn.RECOVERY,
    )
    time, named = local_time(member.created_at if run is None else run.planned_at, zone)
    if member.notify_on is NotifyOn.LATE:
        line = _("{what}, late – {time} ({zone})", what=what, time=time, zone=named)
    else:
        line = _("{what} – {time} ({zone})", what=what, time=time, zone=named)
    return in_language(line, language)


def _rest(content: DigestMembers, listed: int, language: str) -> str:
    left = len(content.members) - listed
    if content.more:
        return in_language(_("Not all runs are listed here."), language)
    if not left:
        return ""
    text = counted("{count} more run is not listed.", "{count} more runs are not listed.", left)
    return in_language(text, language)


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[1]


def _facts(
    digest: Delivery,
    content: DigestMembers,
    runs: Mapping[RunId, Run],
    counts: Mapping[NotifyOn, int],
) -> dict[str, object]:
    return {
        "until": format_moment(digest_end(digest)),
        "count": len(content.members),
        "more": content.more,
        "counts": {notify_on.value: counts[notify_on] for notify_on in _ORDER if counts[notify_on]},
        "runs": [_run_facts(each, runs) for each in content.listed],
    }


def _run_facts(member: Delivery, runs: Mapping[RunId, Run]) -> dict[str, object]:
    run = runs.get(member.run_id) if member.run_id is not None else None
    return {
        "id": member.run_id,
        "schedule_id": member.schedule_id,
        "schedule_name": member.schedule_name,
        "occasion": member.notify_on.value,
        "status": None if run is None else run.status.value,
        "planned_at": None if run is None else format_moment(run.planned_at),
    }
