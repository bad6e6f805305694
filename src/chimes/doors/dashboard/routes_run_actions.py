"""What can be done with one run: once more, with changes, or stop it."""

from __future__ import annotations

import json

from pydantic import ValidationError
from starlette.responses import Response

from chimes.doors.api.inputs import TargetPatch
from chimes.doors.api.wire_targets import patched_target, target_out
from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS
from chimes.doors.dashboard.visit import Visit
from chimes.doors.validation import sentence
from chimes.errors import InvalidInput, NotAllowed
from chimes.model.ids import DeliveryId, RunId
from chimes.model.run import Run
from chimes.service.known_failures import KnownFailures
from chimes.service.orders import Order
from chimes.wording import say

pages = Pages()
#: Characters of a target that somebody types.
_LONGEST = 500_000


def page_of(run_id: str) -> str:
    return f"/ui/runs/{run_id}"


async def _found(visit: Visit) -> Run:
    return await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))


@pages.post("/runs/{id}/cancel")
async def cancel(visit: Visit) -> Response:
    run = await _found(visit)
    if not visit.sure:
        question = Question(
            title=say("Cancel this run?"),
            text=say("What it has done so far stays done."),
            button=say("Cancel the run"),
            names=[run.schedule_name or run.id],
        )
        return visit.ask(question)
    after = await visit.door.runs.cancel(visit.actor, run.id)
    ended = after.status.terminal
    text = say("The run was canceled.") if ended else say("The run was asked to stop.")
    return visit.done(text, to=visit.back(page_of(run.id)))


@pages.post("/runs/{id}/retry")
async def retry(visit: Visit) -> Response:
    run = await _found(visit)
    again, created = await visit.door.runs.retry(visit.actor, run.id)
    return _on_to(visit, again, created=created)


@pages.get("/runs/{id}/again")
async def again_form(visit: Visit) -> Response:
    """The same with changes: a form with what it was."""
    run = await _found(visit)
    target = json.dumps(target_out(run.target), ensure_ascii=False, indent=2)
    return visit.page("run/again.html", run=run, name=run.schedule_name, target=target, error=None)


@pages.post("/runs/{id}/again")
async def again(visit: Visit) -> Response:
    """An order like any other, only that hidden secrets are those of the run."""
    run = await _found(visit)
    if not visit.actor.may_create(run.owner):
        # Before secrets of the run go into anything.
        raise NotAllowed()
    name, text = visit.form.text("name"), visit.form.raw("target")
    try:
        order = Order(
            target=patched_target(_target_in(text), run.target),
            policy=run.policy,
            name=name,
            namespace=run.namespace,
            priority=run.priority,
            owner=run.owner,
        )
        new, created = await visit.door.schedules.asked_for(visit.actor, order)
    except REFUSALS as error:
        why = await visit.refused(error)
        return visit.page(
            "run/again.html", status=why.status, run=run, name=name, target=text, error=why
        )
    return _on_to(visit, new, created=created)


@pages.post("/runs/{id}/known")
async def mark_known(visit: Visit) -> Response:
    """Somebody has looked at it: it needs no attention again for the same error."""
    run = await _found(visit)
    question = Question(
        title=say("Mark this failure as known?"),
        text=say(
            "Its schedule no longer needs attention for this error, "
            "until it fails in another way or works again. The reason stands beside it."
        ),
        button=say("Mark as known"),
        names=[run.schedule_name],
        dangerous=False,
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await KnownFailures(visit.door.store).mark(visit.actor, run, visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    return visit.done(
        say("The failure is known."),
        to=visit.back(page_of(run.id)),
        undo=Undo(action=f"{page_of(run.id)}/unknown"),
    )


@pages.post("/runs/{id}/unknown")
async def forget_known(visit: Visit) -> Response:
    run = await _found(visit)
    await KnownFailures(visit.door.store).forget(visit.actor, run)
    return visit.done(say("The failure counts again."), to=visit.back(page_of(run.id)))


@pages.post("/runs/{id}/deliveries/{delivery}/retry")
async def tell_again(visit: Visit) -> Response:
    run = await _found(visit)
    await visit.door.messages.retry(visit.actor, DeliveryId(visit.path["delivery"]))
    return visit.done(say("The message is sent again."), to=f"{page_of(run.id)}?tab=deliveries")


def _on_to(visit: Visit, run: Run, *, created: bool) -> Response:
    if created:
        return visit.done(say("Its run was asked for."), to=page_of(run.id))
    text = say("It is under way already: this is that run.")
    return visit.done(text, to=page_of(run.id), kind="warning")


def _target_in(text: str) -> TargetPatch:
    if len(text) > _LONGEST:
        raise InvalidInput(
            say("at most {most} characters", most=_LONGEST), field="target", code="too_long"
        )
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(say("This is not JSON"), field="target", code="bad_json") from None
    try:
        return TargetPatch.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(["target", *(str(each) for each in first["loc"])])
        message = sentence(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field=place, code="bad_target") from None
