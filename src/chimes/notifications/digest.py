"""What a digest says: how many runs ended how, and the first of them (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from chimes.i18n import Message, _, counted, in_language
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, digest_end
from chimes.model.recipient import NotifyOn
from chimes.model.run import Run
from chimes.notifications.message import (
    LONGEST_NAME,
    NotificationMessage,
    headline,
    language_of,
    local_time,
)
from chimes.notifications.text import one_line
from chimes.triggers import format_moment

#: Named one by one; of the others there is the number.
MOST_NAMED = 50
#: What went wrong is read first.
_FIRST = (NotifyOn.FAILURE, NotifyOn.LATE, NotifyOn.RECOVERY, NotifyOn.ALWAYS, NotifyOn.SUCCESS)
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&!])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """What a digest takes along."""

    members: tuple[Delivery, ...]
    #: Whether there are others that this one has no room for.
    more: bool = False

    @property
    def newest(self) -> Delivery:
        return max(self.members, key=lambda each: (each.created_at, each.id))

    @property
    def named(self) -> tuple[Delivery, ...]:
        ordered = sorted(self.members, key=lambda each: (each.created_at, each.id), reverse=True)
        ordered.sort(key=lambda each: _FIRST.index(each.occasion))
        return tuple(ordered[:MOST_NAMED])

    @property
    def runs(self) -> set[RunId]:
        """Of which more is said than that there are so many."""
        return {each.run_id for each in self.named if each.run_id is not None}


def digest_message(
    digest: Delivery,
    gathered: Gathered,
    runs: Mapping[RunId, Run],
    *,
    language: str,
    zone: str,
    public_url: str = "",
) -> NotificationMessage:
    """`zone`: that of its reader."""
    language = language_of(language)
    counts = Counter(each.occasion for each in gathered.members)
    named = gathered.named
    entries = [_entry(each, runs, language, zone) for each in named]
    addresses = [f"{public_url}/ui/runs/{each.run_id}" for each in named]
    until, zone_named = local_time(digest_end(digest), zone)
    about = [
        _("Until {time} ({zone})", time=until, zone=zone_named),
        *(_tally(occasion, counts[occasion]) for occasion in _FIRST if counts[occasion]),
    ]
    heads = [in_language(each, language) for each in about]
    rest = _rest(gathered, len(named), language)
    listed = [f"- {line}" for line in entries]
    if public_url:
        listed = [f"{line}\n  {url}" for line, url in zip(listed, addresses, strict=True)]
    linked = [
        f"- [{_MARKUP.sub(_escaped, line)}]({url})"
        for line, url in zip(entries, addresses, strict=True)
    ]
    title = in_language(_title(len(gathered.members), gathered.more), language)
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
        facts=_facts(digest, gathered, runs, counts),
    )


def _title(count: int, more: bool) -> Message:
    if more:
        return _("Digest: more than {count} runs", count=count)
    return counted("Digest: {count} run", "Digest: {count} runs", count)


def _tally(occasion: NotifyOn, count: int) -> Message:
    match occasion:
        case NotifyOn.FAILURE:
            return _("Failed: {count}", count=count)
        case NotifyOn.LATE:
            return _("Late: {count}", count=count)
        case NotifyOn.RECOVERY:
            return _("Works again: {count}", count=count)
        case NotifyOn.SUCCESS:
            return _("Succeeded: {count}", count=count)
        case _:
            return _("Ended otherwise: {count}", count=count)


def _entry(member: Delivery, runs: Mapping[RunId, Run], language: str, zone: str) -> str:
    run = runs.get(member.run_id) if member.run_id is not None else None
    what = headline(
        one_line(member.schedule_name)[:LONGEST_NAME] or _("Run"),
        None if run is None else run.status,
        recovered=member.occasion is NotifyOn.RECOVERY,
    )
    time, named = local_time(member.created_at if run is None else run.planned_at, zone)
    if member.occasion is NotifyOn.LATE:
        told = _("{what}, late – {time} ({zone})", what=what, time=time, zone=named)
    else:
        told = _("{what} – {time} ({zone})", what=what, time=time, zone=named)
    return in_language(told, language)


def _rest(gathered: Gathered, named: int, language: str) -> str:
    left = len(gathered.members) - named
    if gathered.more:
        return in_language(_("Not all of them are named here."), language)
    if not left:
        return ""
    told = counted("{count} more is not named here.", "{count} more are not named here.", left)
    return in_language(told, language)


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[1]


def _facts(
    digest: Delivery,
    gathered: Gathered,
    runs: Mapping[RunId, Run],
    counts: Mapping[NotifyOn, int],
) -> dict[str, object]:
    return {
        "until": format_moment(digest_end(digest)),
        "count": len(gathered.members),
        "more": gathered.more,
        "counts": {occasion.value: counts[occasion] for occasion in _FIRST if counts[occasion]},
        "runs": [_run_facts(each, runs) for each in gathered.named],
    }


def _run_facts(member: Delivery, runs: Mapping[RunId, Run]) -> dict[str, object]:
    run = runs.get(member.run_id) if member.run_id is not None else None
    return {
        "id": member.run_id,
        "schedule_id": member.schedule_id,
        "schedule_name": member.schedule_name,
        "occasion": member.occasion.value,
        "status": None if run is None else run.status.value,
        "planned_at": None if run is None else format_moment(run.planned_at),
    }
