"""Text and JSON values that every store takes: no NUL, no lone surrogates."""

from __future__ import annotations


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
