"""Routes that look ahead and save nothing: plans of changes, the load per minute, quieter times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.language import describe
from chimes.model.access import Actor
from chimes.model.forecast import MAX_DAYS, Collision, PlanEffects, PlannedFire, PlanPair
from chimes.model.ids import ScheduleId
from chimes.model.proposal import MAX_CHANGES
from chimes.model.validation import ID_LIMIT
from chimes.services.schedules.changeset import RequestedChange
from chimes.web.api.paging import Query
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Moment,
    Out,
    TriggerOut,
    returns,
)
from chimes.web.api.route import Caller, Context, PureRoute, PureSetRoute
from chimes.web.api.schemas import OMITTED, Body, ScheduleIn, SchedulePatch, TriggerField
from chimes.web.api.translate import Json, draft_from, explicit_fields, patch_from, time_out
from chimes.web.requests import NegotiatedLanguage, WebContext, set_language

router = APIRouter(prefix="/api/v1", tags=["time"], route_class=PureRoute, responses=COMMON_ERRORS)
set_router = APIRouter(
    prefix="/api/v1", tags=["time"], route_class=PureSetRoute, responses=COMMON_ERRORS
)
DaysField = Annotated[int, Field(ge=1, le=MAX_DAYS)]
IdField = Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


# --- plans ----------------------------------------------------------------------------------------
class PlanChangeIn(Body):
    """One change: `schedule` with `patch`, `create`, or `delete`."""

    schedule: IdField | None = Field(default=None, description="Id of the schedule to change.")
    patch: SchedulePatch | None = Field(
        default=None, description="As the body of `PATCH /api/v1/schedules/{id}`."
    )
    create: ScheduleIn | None = Field(
        default=None, description="As the body of `POST /api/v1/schedules`."
    )
    delete: IdField | None = Field(default=None, description="Id of the schedule to delete.")


class PlanIn(Body):
    """Changes that are made together."""

    changes: Annotated[list[PlanChangeIn], Field(min_length=1, max_length=MAX_CHANGES)]
    days: DaysField = Field(default=7, description="Compare the fires of so many days from now.")


class PlanRowOut(Out):
    schedule: str | None = Field(description="Id; null for a schedule that the plan creates.")
    name: str
    at: Moment


class MovedRowOut(Out):
    schedule: str | None
    name: str
    from_: Moment = Field(alias="from")
    to: Moment


class PlanScheduleOut(Out):
    schedule: str | None
    name: str


class CollisionOut(Out):
    schedule: str | None
    name: str
    at: Moment
    others: int = Field(description="How many other schedules fire in the same minute.")
    with_: list[PlanScheduleOut] = Field(alias="with", description="The first of them.")


class DayLoadOut(Out):
    day: str
    before: int
    after: int


class PlanOut(Out):
    added: list[PlanRowOut]
    dropped: list[PlanRowOut]
    moved: list[MovedRowOut]
    collisions: list[CollisionOut]
    load: list[DayLoadOut]
    until: Moment


@set_router.post("/plan", responses=returns(PlanOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def plan_changes(body: PlanIn, context: Context, actor: Caller) -> Response:
    """Show which fires changes of schedules would add, drop and move. Saves nothing. Any key may
    plan, also one that may only read."""
    now = await context.store.now()
    requested = []
    for number, each in enumerate(body.changes):
        path = f"changes[{number}]"
        try:
            requested.append(_requested(each, path, context, actor, now))
        except InvalidInput as error:
            raise error.within(path) from None
    effects = await context.changesets.plan_fires(actor, requested, timedelta(days=body.days))
    return JSONResponse(plan_out(effects))


def _requested(
    given: PlanChangeIn, path: str, context: WebContext, actor: Actor, now: datetime
) -> RequestedChange:
    kinds = [name for name in ("patch", "create", "delete") if getattr(given, name) is not None]
    if len(kinds) != 1 or (given.schedule is not None) != (kinds == ["patch"]):
        raise InvalidInput(
            _("a change has schedule and patch, or create, or delete"), code="invalid_change"
        )
    if given.patch is not None:
        assert given.schedule is not None
        return RequestedChange(
            id=ScheduleId(given.schedule),
            edit=patch_from(given.patch, context.settings),
            explicit_fields=explicit_fields(given.patch),
            path=f"{path}.patch",
        )
    if given.create is not None:
        return RequestedChange(
            draft=draft_from(given.create, actor, context.settings, now),
            explicit_fields=explicit_fields(given.create),
            path=f"{path}.create",
        )
    return RequestedChange(id=ScheduleId(given.delete or ""), delete=True, path=f"{path}.delete")


def plan_out(effects: PlanEffects) -> Json:
    return {
        "added": [_fire_row(each) for each in effects.added],
        "dropped": [_fire_row(each) for each in effects.dropped],
        "moved": [
            {**_named(each.pair), "from": time_out(each.at), "to": time_out(each.to)}
            for each in effects.moved
        ],
        "collisions": [_collision_out(each) for each in effects.collisions],
        "load": [
            {"day": each.day.isoformat(), "before": each.before, "after": each.after}
            for each in effects.load
        ],
        "until": time_out(effects.until),
    }


def _named(pair: PlanPair) -> Json:
    return {"schedule": None if pair.created else pair.shown.id, "name": pair.shown.name}


def _fire_row(fire: PlannedFire) -> Json:
    return {**_named(fire.pair), "at": time_out(fire.at)}


def _collision_out(collision: Collision) -> Json:
    return {
        **_named(collision.pair),
        "at": time_out(collision.at),
        "others": collision.others,
        "with": [_named(each) for each in collision.named],
    }


# --- load -----------------------------------------------------------------------------------------
class ForecastQuery(Query):
    days: DaysField = Field(default=7, description="So many days from now.")


class MinuteLoadOut(Out):
    at: Moment
    runs: int = Field(description="Runs that start in this minute.")
    busy_seconds: float = Field(
        description="Expected time of these runs together, from the median of earlier ones."
    )
    hot: bool = Field(description="Whether far more runs start than in other minutes.")


class ScheduleLoadOut(Out):
    schedule: str
    name: str
    runs: int
    seconds: float | None = Field(description="Median duration of its runs; null: unknown.")


class ForecastOut(Out):
    minutes: list[MinuteLoadOut] = Field(description="The minutes with runs, the first one first.")
    schedules: list[ScheduleLoadOut]
    until: Moment


@router.get("/forecast", responses=returns(ForecastOut))
async def get_forecast(
    query: Annotated[ForecastQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Get the runs and their expected time per minute of the coming days."""
    found = await context.forecasts.get(actor, timedelta(days=query.days))
    return JSONResponse(
        {
            "minutes": [
                {
                    "at": time_out(each.at),
                    "runs": each.runs,
                    "busy_seconds": each.busy.total_seconds(),
                    "hot": each.hot,
                }
                for each in found.minutes
            ],
            "schedules": [
                {
                    "schedule": each.schedule.id,
                    "name": each.schedule.name,
                    "runs": each.runs,
                    "seconds": each.duration.total_seconds() if each.duration else None,
                }
                for each in found.schedules
            ],
            "until": time_out(found.until),
        }
    )


class SuggestIn(Body):
    """Either a trigger or the id of a schedule."""

    trigger: TriggerField = OMITTED
    schedule: IdField | None = Field(default=None, description="Id of a schedule.")


class QuieterOut(Out):
    trigger: TriggerOut
    words: str = Field(description="The trigger in words.")
    runs: int = Field(description="Runs of other schedules in its busiest minute.")


class SuggestOut(Out):
    trigger: TriggerOut
    words: str = Field(description="The trigger in words.")
    at: Moment | None = Field(description="The busiest minute in which it fires.")
    runs: int = Field(description="Runs of other schedules in its busiest minute.")
    suggestions: list[QuieterOut] = Field(
        description="The same rule at quieter minutes, the quietest first; empty: there is none."
    )


@router.post("/suggest", responses=returns(SuggestOut) | NOT_FOUND | BODY_ERRORS)
async def suggest_times(
    body: SuggestIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Suggest minutes of the hour at which fewer other schedules fire. Saves nothing."""
    if ("trigger" in body.model_fields_set) == (body.schedule is not None):
        raise InvalidInput(_("send either trigger or schedule"), field="trigger", code="missing")
    if body.schedule is not None:
        found = await context.forecasts.suggest_for(actor, ScheduleId(body.schedule))
    else:
        found = await context.forecasts.suggest(actor, body.trigger)
    content = {
        "trigger": found.trigger.shown(),
        "words": describe(found.trigger, lang),
        "at": time_out(found.at),
        "runs": found.runs,
        "suggestions": [
            {
                "trigger": each.trigger.shown(),
                "words": describe(each.trigger, lang),
                "runs": each.runs,
            }
            for each in found.quieter
        ],
    }
    return set_language(JSONResponse(content), lang)


# --- time data ------------------------------------------------------------------------------------
class DataVersionOut(Out):
    tzdata: str
    holidays: str
    since: Moment = Field(description="Cursors that were computed since then come from it.")


class FireMoveOut(Out):
    schedule: str
    name: str
    old: Moment | None = Field(description="When it was planned; null: it is added.")
    new: Moment | None = Field(description="When it takes place; null: it is dropped.")


class TimeDataOut(Out):
    versions: list[DataVersionOut] = Field(description="The newest last.")
    moves: list[FireMoveOut] = Field(
        description="Coming fires that an update of the data moves, the first one first."
    )


@router.get("/time-data", responses=returns(TimeDataOut))
async def get_time_data(context: Context, actor: Caller) -> Response:
    """Get the versions of time-zone and holiday data that computed the cursors, and the coming
    fires that an update of them moves."""
    data = await context.time_data.read()
    moves = await context.time_data.list_moves(actor, await context.now())
    return JSONResponse(
        {
            "versions": [
                {"tzdata": each.tzdata, "holidays": each.holidays, "since": time_out(each.since)}
                for each in data.versions
            ],
            "moves": [
                {
                    "schedule": each.schedule_id,
                    "name": each.name,
                    "old": time_out(each.old),
                    "new": time_out(each.new),
                }
                for each in moves
            ],
        }
    )
