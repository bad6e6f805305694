"""Strict checks of JSON values: the wrong type raises InvalidTrigger, never TypeError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chimes.errors import InvalidTrigger
from chimes.i18n import Message, _
from chimes.triggers.duration import quote_text


def suggest_name(name: str, known: Iterable[str]) -> Message | None:
    """A hint with the most similar known name."""
    from difflib import get_close_matches

    folded = {word.casefold(): word for word in sorted(known)}
    found = get_close_matches(name[:64].casefold(), folded, n=1, cutoff=0.5)
    return _("did you mean {name}?", name=folded[found[0]]) if found else None


def check_keys(value: object, known: tuple[str, ...], field: str | None) -> Mapping[str, object]:
    """The value, if it is a mapping without unknown keys."""
    label = field or "trigger"
    if not isinstance(value, Mapping):
        raise InvalidTrigger(
            _("{field} must be an object, not {type}", field=label, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    for key in value:
        if key not in known:
            raise InvalidTrigger(
                _(
                    "{field} has an unknown key {key}; it may have {known}",
                    field=label,
                    key=quote_text(key),
                    known=", ".join(known),
                ),
                field=str(key)[:64] if field is None else f"{field}.{str(key)[:64]}",
                code="unknown_key",
                hint=suggest_name(str(key), known),
            )
    return value


def check_text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidTrigger(
            _("{field} must be text, not {type}", field=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    return value
