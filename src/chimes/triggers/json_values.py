"""Reading JSON values strictly: the wrong shape is an InvalidTrigger, never a TypeError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chimes.errors import InvalidTrigger
from chimes.i18n import Message, _
from chimes.triggers.duration import shown


def nearest(name: str, known: Iterable[str]) -> Message | None:
    """A hint that names the most similar known word."""
    from difflib import get_close_matches

    folded = {word.casefold(): word for word in sorted(known)}
    found = get_close_matches(name[:64].casefold(), folded, n=1, cutoff=0.5)
    return _("did you mean {name}?", name=folded[found[0]]) if found else None


def only_keys(value: object, known: tuple[str, ...], field: str | None) -> Mapping[str, object]:
    """The mapping, if it is one and has no other keys."""
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
                    key=shown(key),
                    known=", ".join(known),
                ),
                field=str(key)[:64] if field is None else f"{field}.{str(key)[:64]}",
                code="unknown_key",
                hint=nearest(str(key), known),
            )
    return value


def text_of(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidTrigger(
            _("{field} must be text, not {type}", field=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    return value
