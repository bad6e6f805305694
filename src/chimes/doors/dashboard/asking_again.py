"""The one field of a small form, as it was typed, where the form stands on many pages."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from chimes.doors.dashboard.refusing import Refused
from chimes.doors.dashboard.visit import Visit


def asked_again(
    visit: Visit,
    why: Refused,
    *,
    title: str,
    label: str,
    field: str,
    back: str,
    others: Sequence[tuple[str, str]] = (),
) -> Response:
    """`others`: what the form says besides. Its texts are said (`say`)."""
    return visit.page(
        "one_field.html",
        status=why.status,
        title=title,
        label=label,
        action=visit.request.url.path,
        field=field,
        typed=visit.form.raw(field),
        others=others,
        error=why,
        back=back,
    )
