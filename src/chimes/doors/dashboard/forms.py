"""What a form sends: fields by name, as text. No file is sent; what people paste is a field."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from starlette.requests import Request

from chimes.doors.refusal import Refusal
from chimes.errors import InvalidInput
from chimes.wording import say

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
            raise InvalidInput(say("a whole number"), field=name, code="not_a_number")
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
        raise Refusal(415, "unsupported_media_type", say("a form is sent as {kind}", kind=_KIND))
    try:
        text = body.decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise InvalidInput(say("the form cannot be read"), code="bad_form") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise InvalidInput(say("a field has a NUL character"), code="bad_character")
    return Form(pairs)
