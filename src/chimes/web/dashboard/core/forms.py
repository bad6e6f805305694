"""What a form sends: fields by name, as text. No file is sent; what people paste is a field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from starlette.requests import Request

from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, RateLimited
from chimes.i18n import _
from chimes.web.dashboard.core.preferences import form_token
from chimes.web.problems import Problem, problem_of
from chimes.web.requests import Refusal

_KIND = "application/x-www-form-urlencoded"
_MOST_FIELDS = 2000


class Form:
    """Fields in the order in which they came; a name may come several times (check boxes)."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        self._last = dict(self._pairs)

    def text(self, name: str, default: str = "") -> str:
        """Without the blanks around it."""
        return self._last.get(name, default).strip()

    def raw(self, name: str) -> str:
        """As it was typed: passwords, prompts, bodies. Lines end as they do everywhere else."""
        return self._last.get(name, "").replace("\r\n", "\n")

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self._pairs if key == name)

    def ticked(self, name: str) -> bool:
        return name in self._last

    def number(self, name: str, default: int | None = None) -> int | None:
        """InvalidInput, naming the field, if it is not a whole number."""
        text = self.text(name)
        if not text:
            return default
        if not text.lstrip("-").isdigit() or len(text) > 18:
            raise InvalidInput(_("a whole number"), field=name, code="not_a_number")
        return int(text)

    def __contains__(self, name: object) -> bool:
        return name in self._last

    def items(self) -> tuple[tuple[str, str], ...]:
        return self._pairs


async def read_form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if not body and not kind:
        return Form()
    if kind != _KIND:
        # S49: a page elsewhere can make a browser send other kinds without asking.
        raise Refusal(415, "unsupported_media_type", _("a form is sent as {kind}", kind=_KIND))
    try:
        text = body.decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise InvalidInput(_("the form cannot be read"), code="bad_form") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise InvalidInput(_("a field has a NUL character"), code="bad_character")
    return Form(pairs)


# @@ A form that is refused comes again, with what was typed and with why: nobody types twice.

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
    told = _("You may not do that")
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
        return any(name != "back" for name, _unused in self.fields)


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


# @@ A question before something wide or final is done (UX A.0: the count, and the first five).

_NOT_AGAIN = frozenset({"csrf", "sure", "back", "reason"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Its texts are said (`say`, `counted`)."""

    title: str
    button: str
    text: str = ""
    #: Of what is meant: the first five are shown.
    names: Sequence[str] = ()
    #: How many there are in all; 0: as many as names.
    total: int = 0
    dangerous: bool = True
    #: Whether a reason for the audit can be given (field `reason`).
    reason: bool = False
    action: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    back: str = ""
    #: The reason as it was typed, and why it was refused.
    typed: str = ""
    error: str = ""

    @property
    def count(self) -> int:
        return self.total or len(self.names)

    def completed(self, action: str, form: Form, back: str) -> Question:
        """With the fields of the form that asked, so that the answer can carry them again."""
        fields = tuple(pair for pair in form.items() if pair[0] not in _NOT_AGAIN)
        return replace(
            self,
            action=action,
            fields=(*fields, ("back", back)),
            back=back,
            typed=form.text("reason"),
        )
