"""What a schedule is: its definition, its versions, copies for elsewhere, and past times made up
for."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_schedule import show
from chimes.doors.dashboard.routes_schedule_actions import id_in, needed_moment, page_of
from chimes.doors.dashboard.views_definition import (
    as_command,
    as_curl,
    as_json,
    as_python,
    as_yaml,
    definition_of,
    differences,
    said_in_full,
)
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.model.schedule import Schedule
from chimes.service.slots import Backfill
from chimes.service.versions import as_it_was, history_of, versions_of
from chimes.wording import counted, say

pages = Pages()


@pages.get("/schedules/{id}/definition")
async def definition(visit: Visit) -> Response:
    schedule = await visit.door.schedules.get(visit.actor, id_in(visit))
    form = "json" if visit.query.get("format") == "json" else "yaml"
    shown = definition_of(schedule)
    versions = versions_of(await history_of(visit.door.store, visit.actor, schedule))
    return show(
        visit,
        schedule,
        "definition",
        form=form,
        text=as_json(shown) if form == "json" else as_yaml(shown),
        versions=[(each, differences(each.changes)) for each in versions],
    )


@pages.post("/schedules/{id}/versions/{number}/restore")
async def restore_version(visit: Visit) -> Response:
    """The definition as it was after that change; whether it is paused stays as it is."""
    schedule = await visit.door.schedules.get(visit.actor, id_in(visit))
    number = visit.path["number"]
    if not number.isdigit() or len(number) > 15:
        raise NotFound(say("version {number} not found", number=number))
    versions = versions_of(await history_of(visit.door.store, visit.actor, schedule))
    wanted = as_it_was(schedule, versions, int(number))
    if not visit.sure:
        changed = {
            name: (before, after)
            for name, before in definition_of(schedule).items()
            if (after := definition_of(wanted).get(name)) != before
        }
        question = Question(
            title=say("Take up this version again?"),
            text=say("It becomes the newest version; nothing of what was between is lost."),
            button=say("Restore"),
            names=[
                f"{each.place}: {each.before or '–'} → {each.after or '–'}"
                for each in differences(changed)
            ],
            dangerous=False,
        )
        return visit.ask(question)
    after = await visit.door.schedules.change(
        visit.actor, schedule.id, lambda before: wanted, expected_version=schedule.version
    )
    if after == schedule:
        text = say("It is like that already.")
        return visit.done(text, to=f"{page_of(schedule.id)}/definition")
    current = versions[0].number
    return visit.done(
        say("{name} is as it was then.", name=after.name),
        to=f"{page_of(schedule.id)}/definition",
        undo=Undo(
            action=f"{page_of(schedule.id)}/versions/{current}/restore", fields={"sure": "yes"}
        ),
    )


@pages.get("/schedules/{id}/copy")
async def copy_as(visit: Visit) -> Response:
    schedule = await visit.door.schedules.get(visit.actor, id_in(visit))
    server = str(visit.request.base_url).rstrip("/")
    return visit.page_or_part(
        "schedules/copy.html",
        "part",
        schedule=schedule,
        in_full=said_in_full(schedule),
        command=as_command(schedule),
        curl=as_curl(schedule, server),
        python=as_python(schedule, server),
        yaml=as_yaml([definition_of(schedule, copy=True)]),
    )


@pages.get("/schedules/{id}/backfill")
async def ask_backfill(visit: Visit) -> Response:
    schedule = await visit.door.schedules.get(visit.actor, id_in(visit))
    if not visit.actor.may_write(schedule.owner):
        raise NotAllowed()
    return _backfill_page(visit, schedule)


@pages.post("/schedules/{id}/backfill")
async def backfill(visit: Visit) -> Response:
    """First what would be run, then, if somebody is sure, the runs."""
    schedule = await visit.door.schedules.get(visit.actor, id_in(visit))
    try:
        start, end = needed_moment(visit, "from"), needed_moment(visit, "to")
        if end < start:
            raise InvalidInput(say("`to` is earlier than `from`"), field="to")
        found = await visit.door.schedules.backfill(
            visit.actor, schedule.id, start, end, dry_run=not visit.sure
        )
    except InvalidInput as error:
        return _backfill_page(visit, schedule, error=error)
    if not visit.sure:
        return _backfill_page(visit, schedule, found=found)
    count = len(found.runs)
    text = counted("{count} run was asked for.", "{count} runs were asked for.", count)
    return visit.done(text, to=f"{page_of(schedule.id)}/runs")


def _backfill_page(
    visit: Visit,
    schedule: Schedule,
    *,
    found: Backfill | None = None,
    error: InvalidInput | None = None,
) -> Response:
    return visit.page(
        "schedule/backfill.html",
        status=200 if error is None else 422,
        schedule=schedule,
        found=found,
        error=error,
        given=visit.form,
    )
