"""Many runs at once: retried or canceled, with what became of each."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from starlette.responses import Response

from chimes.doors.api.paging import cursor_to, position_from
from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import refused_by
from chimes.doors.dashboard.routes_runs import asked_in, matching
from chimes.doors.dashboard.views_runs import ACTIVE, HERE, visible
from chimes.doors.dashboard.visit import Visit
from chimes.errors import ChimesError, InvalidInput
from chimes.model.ids import RunId
from chimes.model.listing import Position, RunQuery
from chimes.model.run import Run, RunStatus
from chimes.wording import Wording, counted, say

pages = Pages()
#: With one request.
MOST = 500
#: Pages that are looked at for them.
_MOST_LOOKS = 20
_ENDED = tuple(each for each in RunStatus if each.terminal)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one."""

    run: Run
    done: bool
    text: str
    #: The page of what came of it.
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    #: In these states there is something to do.
    states: tuple[RunStatus, ...]
    question: Callable[[int], Wording]
    button: Wording
    do: Callable[[Visit, Run], Awaitable[Outcome]]
    dangerous: bool


async def _retried(visit: Visit, run: Run) -> Outcome:
    again, created = await visit.door.runs.retry(visit.actor, run.id)
    text = say("A new run does it again.") if created else say("It is under way already.")
    return Outcome(run=run, done=True, text=text, address=f"{HERE}/{again.id}")


async def _canceled(visit: Visit, run: Run) -> Outcome:
    after = await visit.door.runs.cancel(visit.actor, run.id)
    ended = after.status.terminal
    text = say("It was canceled.") if ended else say("It was asked to stop.")
    return Outcome(run=run, done=True, text=text, address=f"{HERE}/{run.id}")


VERBS: Mapping[str, Verb] = {
    "retry": Verb(
        states=_ENDED,
        question=lambda count: counted("Retry {count} run?", "Retry {count} runs?", count),
        button=say("Retry"),
        do=_retried,
        dangerous=False,
    ),
    "cancel": Verb(
        states=ACTIVE,
        question=lambda count: counted("Cancel {count} run?", "Cancel {count} runs?", count),
        button=say("Cancel runs"),
        do=_canceled,
        dangerous=True,
    ),
}


@pages.post("/runs/bulk")
async def bulk(visit: Visit) -> Response:
    verb = VERBS.get(visit.form.text("verb"))
    if verb is None:
        raise InvalidInput(say("retry or cancel"), field="verb", code="unknown_choice")
    chosen, following = await _chosen(visit, verb)
    more = following is not None
    if not chosen and not more:
        text = say("There is nothing to do: none of these runs is in a state for it.")
        return visit.done(text, to=visit.back(HERE), kind="warning")
    if not visit.sure:
        return visit.ask(_question(verb, chosen, more=more))
    outcomes = [await _outcome(visit, verb, run) for run in chosen]
    return visit.page_or_part(
        "runs/bulk.html",
        "result",
        outcomes=outcomes,
        done=sum(each.done for each in outcomes),
        verb=visit.form.text("verb"),
        q=visit.form.text("q"),
        # They are newest first: what is made meanwhile is not among the next ones.
        cursor=cursor_to(following, _question_of(visit)) if following is not None else "",
        back=visit.back(HERE),
        visible=visible,
    )


def _question(verb: Verb, chosen: list[Run], *, more: bool) -> Question:
    return Question(
        title=verb.question(len(chosen)),
        text=say("There are more: {most} at a time.", most=MOST) if more else "",
        button=verb.button,
        names=[f"{visible(run.schedule_name or run.target.kind)} · {run.id}" for run in chosen[:5]],
        total=len(chosen),
        dangerous=verb.dangerous,
    )


def _question_of(visit: Visit) -> str:
    return json.dumps([visit.form.text("verb"), visit.form.text("q")])


async def _chosen(visit: Visit, verb: Verb) -> tuple[list[Run], Position | None]:
    """Those that were ticked, or all that match, as far as there is something to do with them;
    and where to go on if there are more than can be done at once."""
    if visit.form.ticked("everything"):
        return await _all_matching(visit, verb)
    ids = tuple(dict.fromkeys(RunId(each) for each in visit.form.all("id")))
    if len(ids) > MOST:
        raise InvalidInput(
            say("at most {most} runs at a time", most=MOST), field="id", code="too_many"
        )
    if not ids:
        return [], None
    found = await visit.door.runs.find(visit.actor, RunQuery(ids=ids, limit=MOST))
    return [run for run in found.items if run.status in verb.states], None


async def _all_matching(visit: Visit, verb: Verb) -> tuple[list[Run], Position | None]:
    asked = await asked_in(visit, visit.form.text("q"))
    if asked.filter.wrong:
        # What was not understood would make it wider than was meant.
        raise InvalidInput(asked.filter.wrong[0], field="q", code="bad_filter")
    wanted = asked.query.statuses or tuple(RunStatus)
    states = tuple(each for each in wanted if each in verb.states)
    if not states:
        return [], None
    asked = replace(asked, query=replace(asked.query, statuses=states))
    chosen: list[Run] = []
    after = position_from(visit.form.text("cursor") or None, _question_of(visit), numbers=True)
    for _ in range(_MOST_LOOKS):
        page = await matching(visit, asked, after=after, limit=min(200, MOST - len(chosen)))
        chosen.extend(page.items)
        after = page.next
        if after is None or len(chosen) >= MOST:
            break
    return chosen, after


async def _outcome(visit: Visit, verb: Verb, run: Run) -> Outcome:
    """One that cannot be does not keep the others from it."""
    try:
        return await verb.do(visit, run)
    except ChimesError as error:
        text = refused_by(error).message
        return Outcome(run=run, done=False, text=text, address=f"{HERE}/{run.id}")
