"""The error classes of Chimes.

    ChimesError
    ├── InvalidInput            the request is invalid and will stay invalid
    │   ├── InvalidTrigger      a time expression, zone, duration or bound is wrong
    │   ├── NeedsClarification  the text does not say when; `missing` names the gaps
    │   └── InvalidItems        items of a set are invalid; `errors` has the error of each
    ├── NotFound                no such object, or not one that the caller may see
    ├── Conflict                the object is not in the expected state
    │   ├── AlreadyExists       the id (or name) is taken
    │   ├── StaleVersion        it was changed concurrently
    │   └── QuotaExceeded       the owner's quota is used up
    ├── NotAllowed              authenticated, but without permission
    ├── NotAuthenticated        no valid credentials
    ├── RateLimited             too many requests; `retry_after` says how long to wait
    ├── ConfigError             a setting is wrong; the message names the key
    ├── Unreachable             the client gets no response, or none from Chimes
    ├── RunFailed               an awaited run ended without success
    │   ├── RunTimedOut         it exceeded the timeout of its policy
    │   ├── RunCanceled         it was canceled
    │   ├── RunNotCarriedOut    its slot was missed or skipped
    │   └── RunLost             its node died after the start (on_lost: stop)
    └── StoreError
        ├── StoreUnavailable    the store cannot be reached or written now; retry
        │   ├── StoreReadOnly   it accepts no writes (standby, maintenance)
        │   ├── StoreBusy       a lock was held by another session for too long
        │   └── StoreLost       it is empty or another store, where there was data
        ├── StoreUnsafe         its settings would lose acknowledged writes
        ├── StoreLocked         another process owns an exclusive store
        ├── StoreIncomplete     a restore of a backup is not complete
        ├── SecretUnreadable    a stored secret cannot be decrypted with the keys of this node
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
        """Text for people; interfaces translate it for the reader (`chimes.i18n`)."""
        found: str = self.args[0]
        return found


def message_of(error: BaseException) -> str:
    """The message of any exception; a `Message` stays translatable."""
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
        """Prefix the field with the name of the enclosing object."""
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
        #: What is missing, of: time, date, past, ambiguous, contradiction, residue, interval, unit.
        self.missing = missing
        #: Texts of the same language that can be parsed.
        self.examples = examples
        #: Unambiguous rewrites of the text; may be empty.
        self.answers = answers
        self.language = language


class InvalidItems(InvalidInput):
    """Items of the request are not valid"""

    def __init__(self, errors: Mapping[str, ChimesError], *, field: str) -> None:
        """`errors`: by the name of the item in the object `field` of the request."""
        name, first = next(iter(errors.items()))
        super().__init__(
            _("{name}: {problem}", name=name, problem=first.message),
            field=field,
            code=first.code if isinstance(first, InvalidInput) else "invalid",
        )
        self.errors = errors


class NotFound(ChimesError):
    """Not found"""


class Conflict(ChimesError):
    """The object is not in a state that allows this"""


class AlreadyExists(Conflict):
    """An object with this id exists already"""


class StaleVersion(Conflict):
    """The object was changed concurrently"""


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
        #: The error that the run recorded.
        self.error = error
        self.reason = reason


class RunTimedOut(RunFailed):
    """The run took too long"""


class RunCanceled(RunFailed):
    """The run was canceled"""


class RunNotCarriedOut(RunFailed):
    """The run was not executed"""


class RunLost(RunFailed):
    """The node of the run was lost after the run had started; its outcome is unknown"""


class StoreError(ChimesError):
    """The store reported an error"""


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write at the moment"""


class StoreReadOnly(StoreUnavailable):
    """The store accepts no writes at the moment"""


class StoreBusy(StoreUnavailable):
    """Another session holds a lock on this; try again"""


class StoreLost(StoreUnavailable):
    """The store lost its data"""


class StoreUnsafe(StoreError):
    """The settings of the store would lose acknowledged writes"""


class StoreLocked(StoreError):
    """Another process is using this store"""


class SecretUnreadable(StoreError):
    """A stored secret cannot be decrypted"""


class StoreIncomplete(StoreError):
    """The restore of a backup into the store is not complete"""


class SchemaMismatch(StoreError):
    """The schema of the store does not match this version of Chimes"""
