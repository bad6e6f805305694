"""How somebody likes lists: as what, and without which columns. In a cookie of this browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from chimes.doors.dashboard.cookies import cookie, set_cookie
from chimes.errors import InvalidInput
from chimes.service.saved_filters import ListName
from chimes.wording import Wording, say

_COOKIE = "lists"
_A_YEAR = timedelta(days=365)
VIEWS = ("table", "cards", "month")
#: What can be left out of a row, in the order of the page; the rest is what makes it a row.
COLUMNS: Mapping[ListName, Mapping[str, Wording]] = {
    ListName.SCHEDULES: {
        "status": say("Status"),
        "labels": say("Labels"),
        "owner": say("Owner"),
        "kind": say("Kind"),
        "when": say("When"),
        "zone": say("Time zone"),
        "results": say("Results"),
        "duration": say("Duration"),
        "next": say("Next"),
    },
    ListName.RUNS: {
        "origin": say("Origin"),
        "planned": say("Planned for"),
        "lag": say("Lag"),
        "started": say("Started"),
        "duration": say("Duration"),
        "attempt": say("Attempt"),
        "node": say("Node"),
        "error": say("Error"),
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ListChoices:
    view: str = VIEWS[0]
    hidden: Mapping[ListName, frozenset[str]] = field(default_factory=dict)

    def shows(self, list_: ListName) -> tuple[str, ...]:
        """Those that are not hidden: a column that a newer version brings is seen."""
        hidden = self.hidden.get(list_, frozenset())
        return tuple(name for name in COLUMNS[list_] if name not in hidden)

    @property
    def text(self) -> str:
        found = {"view": self.view}
        found |= {list_.value: ".".join(sorted(names)) for list_, names in self.hidden.items()}
        return urlencode({name: value for name, value in found.items() if value})


def choices_from(text: str) -> ListChoices:
    """What a cookie says that we can use; the rest of it is left out."""
    try:
        given = dict(parse_qsl(text, max_num_fields=10)) if len(text) < 1000 else {}
    except ValueError:
        given = {}
    view = given.get("view", "")
    hidden = {
        list_: frozenset(given.get(list_.value, "").split(".")) & COLUMNS[list_].keys()
        for list_ in ListName
    }
    return ListChoices(
        view=view if view in VIEWS else VIEWS[0],
        hidden={list_: names for list_, names in hidden.items() if names},
    )


def with_view(before: ListChoices, view: str) -> ListChoices:
    """As the address says, if it says something that there is."""
    return ListChoices(view=view, hidden=before.hidden) if view in VIEWS else before


def with_columns(before: ListChoices, list_: ListName, shown: Iterable[str]) -> ListChoices:
    """InvalidInput for a column that there is not."""
    wanted = frozenset(shown)
    if unknown := wanted - COLUMNS[list_].keys():
        raise InvalidInput(
            say("there is no column {name!r}", name=min(unknown)), field="column", code="unknown"
        )
    hidden = frozenset(COLUMNS[list_]) - wanted
    return ListChoices(view=before.view, hidden={**before.hidden, list_: hidden})


def list_named(text: str) -> ListName:
    if text not in set(ListName):
        raise InvalidInput(say("one of {known}", known=", ".join(ListName)), field="list")
    return ListName(text)


def chosen_in(request: Request) -> ListChoices:
    return choices_from(cookie(request, _COOKIE))


def remembered(request: Request, response: Response, choices: ListChoices) -> Response:
    """Only where it is new: most answers set no cookie."""
    if choices != chosen_in(request):
        set_cookie(request, response, _COOKIE, choices.text, lasts=_A_YEAR)
    return response
