"""Every error that Chimes raises on purpose.

    ChimesError
    ├── InvalidInput            the caller sent something that can never be right
    │   ├── InvalidTrigger      a time expression, zone, duration or bound is wrong
    │   └── NeedsClarification  words that leave open when; `missing` says what is asked
    ├── NotFound                no such object, or not one that the caller may see
    ├── Conflict                the object is not in the state that the caller assumed
    │   ├── AlreadyExists       the id (or name) is taken
    │   ├── StaleVersion        somebody else changed it first
    │   └── QuotaExceeded       the owner has as many as allowed
    ├── NotAllowed              the caller is known and may not do this
    ├── NotAuthenticated        the caller is not known
    ├── RateLimited             too many requests; `retry_after` says when to come back
    ├── ConfigError             a setting is wrong; the message names the key
    ├── Unreachable             a client gets no answer from the server, or none of Chimes
    ├── RunFailed               a run whose result is wanted ended without success
    │   ├── RunTimedOut         it took longer than its policy allows
    │   ├── RunCanceled         somebody stopped it
    │   ├── RunNotCarriedOut    its slot was missed or skipped: it never began
    │   └── RunLost             under on_lost stop: nobody knows how far it came
    └── StoreError
        ├── StoreUnavailable    the store cannot be reached or cannot write now; try again
        │   ├── StoreReadOnly   it answers, but takes no changes (a standby, a maintenance)
        │   ├── StoreBusy       somebody else has held what was wanted for too long
        │   └── StoreLost       it is empty, or another one, where there was data
        ├── StoreUnsafe         its settings would lose what was acknowledged
        ├── StoreLocked         another process owns an exclusive store
        └── SchemaMismatch      the stored schema is older or newer than this code

The docstring of an error class is its default message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from chimes.i18n import Message, _


class ChimesError(Exception):
    """Something went wrong in Chimes"""

    def __init__(self, message: str | None = None, **details: object) -> None:
        super().__init__(message or _(type(self).__doc__ or ""))
        self.details: Mapping[str, object] = details

    @property
    def message(self) -> str:
        """What to tell people; doors say it in the reader's language (`chimes.i18n`)."""
        found: str = self.args[0]
        return found


def message_of(error: BaseException) -> str:
    """What an error says; a sentence of ours can still be said in every language."""
    match error.args:
        case (Message() as sentence, *_):
            return sentence
        case _:
            return str(error)


class InvalidInput(ChimesError):
    """The input is not valid"""

    def __init__(
        self,
        message: str | None = None,
        *,
        field: str | None = None,
        code: str = "invalid",
        hint: str | None = None,
        **details: object,
    ) -> None:
        super().__init__(message, **details)
        self.field = field
        self.code = code
        self.hint = hint

    def within(self, prefix: str) -> InvalidInput:
        """The same error, with its field named from one level further out."""
        self.field = prefix if self.field is None else f"{prefix}.{self.field}"
        return self


class InvalidTrigger(InvalidInput):
    """The trigger is not valid"""


class NeedsClarification(InvalidInput):
    """The text does not say exactly when"""

    def __init__(
        self,
        message: str | None = None,
        *,
        missing: tuple[str, ...],
        examples: tuple[str, ...] = (),
        answers: tuple[str, ...] = (),
        language: str = "en",
    ) -> None:
        super().__init__(message, field="text", code="needs_clarification")
        #: What is asked, of: time, date, past, ambiguous, contradiction, residue, interval, unit.
        self.missing = missing
        #: Texts of the same language that can be read.
        self.examples = examples
        #: The text itself, made exact in the ways that it may be meant; may be empty.
        self.answers = answers
        self.language = language


class NotFound(ChimesError):
    """Not found"""


class Conflict(ChimesError):
    """The object is not in a state that allows this"""


class AlreadyExists(Conflict):
    """An object with this id exists already"""


class StaleVersion(Conflict):
    """The object was changed by somebody else in the meantime"""


class QuotaExceeded(Conflict):
    """The owner's quota is used up"""


class NotAllowed(ChimesError):
    """This key may not do that"""


class NotAuthenticated(ChimesError):
    """A valid key is needed"""


class RateLimited(ChimesError):
    """Too many requests"""

    def __init__(self, message: str | None = None, *, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConfigError(ChimesError):
    """The configuration is not valid"""


class Unreachable(ChimesError):
    """The server cannot be reached"""


class RunFailed(ChimesError):
    """The run failed"""

    def __init__(
        self,
        message: str | None = None,
        *,
        run_id: str = "",
        status: str = "",
        error: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message, run_id=run_id, status=status, reason=reason)
        self.run_id = run_id
        self.status = status
        #: What the run itself says about its failure.
        self.error = error
        self.reason = reason


class RunTimedOut(RunFailed):
    """The run took too long"""


class RunCanceled(RunFailed):
    """The run was canceled"""


class RunNotCarriedOut(RunFailed):
    """The run was never begun"""


class RunLost(RunFailed):
    """The node that had the run is gone, and nobody knows how far it came"""


class StoreError(ChimesError):
    """The store reported an error"""


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write at the moment"""


class StoreReadOnly(StoreUnavailable):
    """The store takes no changes at the moment"""


class StoreBusy(StoreUnavailable):
    """Somebody else is at work on this; try again"""


class StoreLost(StoreUnavailable):
    """The store no longer holds what it held"""


class StoreUnsafe(StoreError):
    """The settings of the store would lose data that was acknowledged"""


class StoreLocked(StoreError):
    """Another process is using this store"""


class SchemaMismatch(StoreError):
    """The schema of the store does not fit this version of Chimes"""
