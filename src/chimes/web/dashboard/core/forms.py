"""HTML forms: reading them, errors to show in them, pending forms and confirm dialogs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from starlette.requests import Request

from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, RateLimited
from chimes.i18n import _
from chimes.web.dashboard.core.preferences import form_token
from chimes.web.problems import Problem, problem_of
from chimes.web.requests import RequestRejected

_MEDIA_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 2000


class Form:
    """Submitted fields in their order; a name may occur several times (check boxes)."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        self._last = dict(self._pairs)

    def text(self, name: str, default: str = "") -> str:
        """Without surrounding blanks."""
        return self._last.get(name, default).strip()

    def raw(self, name: str) -> str:
        """As typed, for passwords, prompts and bodies; only line ends are normalised."""
        return self._last.get(name, "").replace("\r\n", "\n")

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self._pairs if key == name)

    def is_checked(self, name: str) -> bool:
        return name in self._last

    def number(self, name: str, default: int | None = None) -> int | None:
        """InvalidInput, naming the field, if it is not an integer."""
        text = self.text(name)
        if not text:
            return default
        if not text.lstrip("-").isdigit() or len(text) > 18:
            raise InvalidInput(_("must be a whole number"), field=name, code="not_a_number")
        return int(text)

    def __contains__(self, name: object) -> bool:
        return name in self._last

    def items(self) -> tuple[tuple[str, str], ...]:
        return self._pairs


async def read_form(http: Request) -> Form:
    media_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await http.body()
    if not body and not media_type:
        return Form()
    if media_type != _MEDIA_TYPE:
        # Other sites can make a browser send some other types without a CORS preflight.
        raise RequestRejected(
            415,
            "unsupported_media_type",
            _("a form must be sent as {media_type}", media_type=_MEDIA_TYPE),
        )
    try:
        text = body.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidInput(_("the form cannot be read"), code="bad_form") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise InvalidInput(_("a field contains a NUL character"), code="bad_character")
    return Form(pairs)


#: Errors that are shown in the form, together with the input. An unavailable store is not one of
#: them, because the form cannot be rendered without it: see `PendingForm`.
FORM_ERRORS = (InvalidInput, Conflict, NotAllowed, RateLimited)


@dataclass(frozen=True, kw_only=True, slots=True)
class FormError:
    message: str
    #: The invalid field; empty: the error is about no field.
    field: str
    status: int


def form_error_from(error: ChimesError) -> FormError:
    field = error.field if isinstance(error, InvalidInput) else None
    problem = reword_problem(problem_of(error))
    message = problem.detail if isinstance(error, NotAllowed) else error.message
    return FormError(message=message, field=field or "", status=problem.status)


def reword_problem(problem: Problem) -> Problem:
    """The API's text about a denied action speaks of the API key, which dashboard users may not
    have."""
    if problem.kind != "not_allowed":
        return problem
    title = _("You are not allowed to do that")
    has_detail = problem.detail not in (problem.title, NotAllowed().message)
    return replace(problem, title=title, detail=problem.detail if has_detail else title)


#: Code of the problem of a form with an invalid CSRF token.
FOREIGN_FORM = "foreign_form"
#: Statuses after which sending the same form again can succeed.
_TRANSIENT_STATUSES = frozenset({409, 412, 429, 500, 503})
_SECRET_FIELDS = frozenset({"csrf", "password", "key", "signing_secret"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingForm:
    """A form that was not processed because of a transient error; the error page can send it
    again."""

    action: str
    csrf: str
    fields: tuple[tuple[str, str], ...]

    @property
    def has_input(self) -> bool:
        return any(name != "back" for name, _value in self.fields)


def keep_pending_form(http: Request, form: Form, csrf_secret: str) -> None:
    """Keeps the form for an error page, without passwords and keys."""
    http.state.pending_form = PendingForm(
        action=http.url.path,
        csrf=form_token(csrf_secret),
        fields=tuple(pair for pair in form.items() if pair[0] not in _SECRET_FIELDS),
    )


def pending_form_of(http: Request) -> PendingForm | None:
    pending: PendingForm | None = getattr(http.state, "pending_form", None)
    return pending


def resendable_form(http: Request, problem: Problem) -> PendingForm | None:
    """The form that the error page of the problem offers to send again."""
    can_retry = problem.status in _TRANSIENT_STATUSES or problem.code == FOREIGN_FORM
    return pending_form_of(http) if can_retry else None


_NOT_REPEATED_FIELDS = frozenset({"csrf", "sure", "back", "reason"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfirmDialog:
    """Asks before a bulk or irreversible action; shows how many objects it affects."""

    title: str
    button: str
    text: str = ""
    #: Names of the affected objects; the first five are shown.
    names: Sequence[str] = ()
    #: Number of affected objects; 0: the number of names.
    total: int = 0
    dangerous: bool = True
    #: Whether the dialog has a field for a reason, which goes to the audit log.
    reason: bool = False
    action: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    back: str = ""
    #: The reason as typed, and why it was rejected.
    typed: str = ""
    error: str = ""

    @property
    def count(self) -> int:
        return self.total or len(self.names)

    def completed(self, action: str, form: Form, back: str) -> ConfirmDialog:
        """With the fields of the submitted form, so that the confirmation repeats them."""
        fields = tuple(pair for pair in form.items() if pair[0] not in _NOT_REPEATED_FIELDS)
        return replace(
            self,
            action=action,
            fields=(*fields, ("back", back)),
            back=back,
            typed=form.text("reason"),
        )
