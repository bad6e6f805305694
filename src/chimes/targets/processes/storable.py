"""Text and JSON values that every store takes: no NUL, no lone surrogates, no secrets."""

from __future__ import annotations

from chimes.redaction import Redactor

_REDACTOR = Redactor()


def cleaned(text: str) -> str:
    if not text.isascii():
        text = text.encode(errors="surrogatepass").decode(errors="replace")
    return text.replace("\x00", "\ufffd")


def storable(value: object) -> object:
    """The same JSON value with clean texts."""
    match value:
        case str():
            return cleaned(value)
        case list():
            return [storable(each) for each in value]
        case dict():
            return {cleaned(name): storable(each) for name, each in value.items()}
        case _:
            return value


def shown(text: str, limit: int, *, redactor: Redactor = _REDACTOR, keep_end: bool = False) -> str:
    """Without secrets, not longer than `limit`, and such that every store takes it."""
    # Cut before and after: patterns need not see megabytes, and hiding may lengthen.
    text = text[-limit:] if keep_end else text[:limit]
    text = cleaned(redactor.text(text))
    return text[-limit:] if keep_end else text[:limit]
