"""What a schedule is: its definition, where it was declared, its versions, copies for elsewhere."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_schedule import show
from chimes.doors.dashboard.routes_schedule_actions import page_of, schedule_in
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
from chimes.doors.dashboard.views_highlight import pieces_of
from chimes.doors.dashboard.visit import Visit
from chimes.errors import NotFound
from chimes.model.code_mark import attached, code_mark, is_detached
from chimes.model.schedule import Schedule
from chimes.service.versions import as_it_was, history_of, versions_of
from chimes.wording import say

pages = Pages()


def _tab_of(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/definition"


@pages.get("/schedules/{id}/definition")
async def definition(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    form = "json" if visit.query.get("format") == "json" else "yaml"
    shown = definition_of(schedule)
    versions = versions_of(await history_of(visit.door.store, visit.actor, schedule))
    return show(
        visit,
        schedule,
        "definition",
        form=form,
        pieces=pieces_of(as_json(shown) if form == "json" else as_yaml(shown)),
        versions=[(each, differences(each.changes)) for each in versions],
        code=code_mark(schedule),
        detached=is_detached(schedule),
    )


@pages.post("/schedules/{id}/attach")
async def attach(visit: Visit) -> Response:
    """The code that declares it may write it again (ADR 33)."""
    schedule = await schedule_in(visit)
    if not visit.sure:
        question = Question(
            title=say("Follow the code again?"),
            text=say(
                "When the application starts the next time, what its code says "
                "takes the place of what was edited here."
            ),
            button=say("Follow the code"),
            names=[schedule.name],
            dangerous=False,
        )
        return visit.ask(question)
    await visit.door.schedules.change(visit.actor, schedule.id, attached)
    text = say("{name} follows its code from the next start on.", name=schedule.name)
    return visit.done(text, to=_tab_of(schedule))


@pages.post("/schedules/{id}/versions/{number}/restore")
async def restore_version(visit: Visit) -> Response:
    """The definition as it was after that change; whether it is paused stays as it is."""
    schedule = await schedule_in(visit)
    number = visit.path["number"]
    if not number.isdigit() or len(number) > 15:
        raise NotFound(say("version {number} not found", number=number))
    versions = versions_of(await history_of(visit.door.store, visit.actor, schedule))
    wanted = as_it_was(schedule, versions, int(number))
    if not visit.sure:
        question = Question(
            title=say("Take up this version again?"),
            text=say("It becomes the newest version; nothing of what was between is lost."),
            button=say("Restore"),
            names=_differing(schedule, wanted),
            dangerous=False,
        )
        return visit.ask(question)
    after = await visit.door.schedules.change(
        visit.actor, schedule.id, lambda before: wanted, expected_version=schedule.version
    )
    if after == schedule:
        return visit.done(say("It is like that already."), to=_tab_of(schedule))
    current = versions[0].number
    return visit.done(
        say("{name} is as it was then.", name=after.name),
        to=_tab_of(schedule),
        undo=Undo(
            action=f"{page_of(schedule.id)}/versions/{current}/restore", fields={"sure": "yes"}
        ),
    )


def _differing(schedule: Schedule, wanted: Schedule) -> list[str]:
    then = definition_of(wanted)
    changed = {
        name: (before, then.get(name))
        for name, before in definition_of(schedule).items()
        if then.get(name) != before
    }
    return [
        f"{each.place}: {each.before or '–'} → {each.after or '–'}" for each in differences(changed)
    ]


@pages.get("/schedules/{id}/copy")
async def copy_as(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
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
