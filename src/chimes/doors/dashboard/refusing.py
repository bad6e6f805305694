"""A form that is refused comes again, with what was typed and with why: nobody types twice."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.requests import Request

from chimes.doors.dashboard.cookies import form_token
from chimes.doors.dashboard.forms import Form
from chimes.doors.problems import Problem, problem_of
from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, RateLimited
from chimes.wording import say

#: What is said at the form. A store that is away cannot show the form either (`Unsent`).
REFUSALS = (InvalidInput, Conflict, NotAllowed, RateLimited)
#: Of these another try may do.
_PASSING = frozenset({409, 412, 429, 500, 503})
#: A form whose token is not the reader's; kept only if it is from a page of theirs all the same.
FOREIGN = "foreign_form"
_SECRET = frozenset({"csrf", "password", "key", "signing_secret"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """Why, for the page with the form."""

    message: str
    #: What is wrong; empty: nothing that was typed.
    field: str
    status: int


def refused_by(error: ChimesError) -> Refused:
    field = error.field if isinstance(error, InvalidInput) else None
    problem = in_our_words(problem_of(error))
    message = problem.detail if isinstance(error, NotAllowed) else error.message
    return Refused(message=message, field=field or "", status=problem.status)


def in_our_words(problem: Problem) -> Problem:
    """Whoever reads a page may have signed in without any key."""
    if problem.kind != "not_allowed":
        return problem
    told = say("You may not do that")
    unsaid = problem.detail == problem.title
    return replace(problem, title=told, detail=told if unsaid else problem.detail)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsent:
    """A form that met something that passes: the page that says so can send it again."""

    action: str
    csrf: str
    fields: tuple[tuple[str, str], ...]

    @property
    def typed(self) -> bool:
        """Whether it says more than where it was."""
        return any(name != "back" for name, _ in self.fields)


def keep_for_another_try(request: Request, form: Form, guard: str) -> None:
    """Of a form from a page of ours. Passwords and keys are not written into a page."""
    request.state.unsent = Unsent(
        action=request.url.path,
        csrf=form_token(guard),
        fields=tuple(pair for pair in form.items() if pair[0] not in _SECRET),
    )


def kept_in(request: Request) -> Unsent | None:
    found: Unsent | None = getattr(request.state, "unsent", None)
    return found


def unsent_in(request: Request, problem: Problem) -> Unsent | None:
    """What can be sent again from the page that tells the problem."""
    passes = problem.status in _PASSING or problem.code == FOREIGN
    return kept_in(request) if passes else None
