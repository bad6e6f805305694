"""A test to one of the recipients that the wizard's form names, before anything is saved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from pydantic import ValidationError
from starlette.responses import Response

from chimes.doors.api.inputs_recipients import RecipientIn
from chimes.doors.api.wire_recipients import recipients_from
from chimes.doors.dashboard.routes_wizard_sheet import Edit, Sheet, checked, composed
from chimes.doors.dashboard.views_wizard_form import told_at
from chimes.doors.dashboard.views_wizard_tell import recipient_plain, rows_of
from chimes.doors.dashboard.views_wizard_when import Fields
from chimes.doors.dashboard.visit import Visit
from chimes.doors.problems import FieldError
from chimes.errors import InvalidInput, RateLimited
from chimes.model.ids import ScheduleId
from chimes.model.recipient import Recipient
from chimes.wording import in_language, say

Show = Callable[[Visit, Sheet, int], Awaitable[Response]]


async def sent_test(
    visit: Visit, fields: Fields, edit: Edit | None, choice: str, show: Show
) -> Response:
    rows = rows_of(fields)
    row = int(choice) if choice.isdecimal() and len(choice) < 3 else -1
    errors: list[FieldError] = []
    tested: tuple[int, str, str] | None = None
    if row not in rows:
        errors.append(FieldError(name="delivery", detail=say("choose a channel"), code="missing"))
    else:
        place = f"delivery.{rows.index(row)}"
        try:
            recipient = await _recipient(visit, fields, edit, row)
            outcome = await visit.door.messages.send_test(visit.actor, recipient)
            words = in_language(outcome.words, visit.look.language)
            tested = (row, words, outcome.kind)
        except ValidationError:
            plain = recipient_plain(fields, row)
            errors += [
                replace(each, name=f"{place}.{each.name}") for each in checked(RecipientIn, plain)
            ]
        except InvalidInput as error:
            errors.append(told_at(error.within(place)))
        except RateLimited as error:
            tested = (row, in_language(error.message, visit.look.language), "error")
    sheet = await composed(visit, fields, edit=edit, filled_only=not errors, errors=errors)
    return await show(visit, replace(sheet, tested=tested), 422 if errors else 200)


async def _recipient(visit: Visit, fields: Fields, edit: Edit | None, row: int) -> Recipient:
    """With the secrets that come back hidden, of a schedule that the caller could change."""
    before: tuple[Recipient, ...] = ()
    if edit is not None:
        before = edit.schedule.policy.delivery
    elif fields.get("source"):
        pattern = await visit.door.schedules.get(visit.actor, ScheduleId(fields["source"]))
        before = pattern.policy.delivery if visit.actor.may_write(pattern.owner) else ()
    given = RecipientIn.model_validate(recipient_plain(fields, row))
    try:
        return recipients_from([given], before)[0]
    except InvalidInput as error:
        error.field = (error.field or "").removeprefix("delivery[0].")
        raise
