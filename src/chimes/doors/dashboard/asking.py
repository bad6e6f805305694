"""A question before something wide or final is done (UX A.0: the count, and the first five)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chimes.doors.dashboard.forms import Form

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
