"""Enough of PromQL to tell whether an expression can be one, and which series it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![a-z\d])
    |(?P<name>[a-zA-Z_:][\w:]*)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<range>\[[^\]]*\])
    |(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},]))""",
    re.VERBOSE,
)
_DURATION = re.compile(r"\d+(?:ms|[smhdwy])|\$__rate_interval|\$__interval")
#: Functions, with how many arguments; those of a range want one in brackets.
_OF_RANGE = {"rate": 1, "increase": 1, "deriv": 1, "delta": 1, "irate": 1, "avg_over_time": 1}
_FUNCTIONS = {"abs": 1, "absent": 1, "histogram_quantile": 2, "clamp_min": 2, "time": 0}
_AGGREGATIONS = ("sum", "max", "min", "avg", "count")
_LEVELS = (
    ("or",),
    ("and", "unless"),
    ("==", "!=", "<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)


class NotAnExpression(ValueError):
    pass


@dataclass(frozen=True)
class Series:
    name: str
    labels: frozenset[str]


@dataclass
class _Reader:
    tokens: list[str]
    place: int = 0
    found: list[Series] = field(default_factory=list)

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise NotAnExpression(f"expected {expected or 'more'}, not {token or 'the end'}")
        self.place += 1
        return token

    def expression(self, level: int = 0) -> bool:
        """Whether it is a range."""
        if level == len(_LEVELS):
            return self.postfix()
        ranged = self.expression(level + 1)
        while self.peek() in _LEVELS[level]:
            self.take()
            if self.expression(level + 1) or ranged:
                raise NotAnExpression("a range cannot be computed with")
        return ranged

    def postfix(self) -> bool:
        self.primary()
        if not self.peek().startswith("["):
            return False
        inside = self.take()[1:-1]
        parts = inside.split(":")
        if len(parts) > 2 or not all(_DURATION.fullmatch(part) for part in parts):
            raise NotAnExpression(f"{inside} is no duration")
        return True

    def primary(self) -> None:
        token = self.take()
        if token == "(":
            if self.expression():
                raise NotAnExpression("a range in brackets")
            self.take(")")
        elif token[0].isdigit():
            return
        elif not re.match(r"[a-zA-Z_]", token):
            raise NotAnExpression(f"{token} stands in no place of its own")
        elif token in _AGGREGATIONS:
            if self.peek() in ("by", "without"):
                self.take()
                self.names()
            self.arguments(1, ranged=False)
        elif token in _OF_RANGE:
            self.arguments(_OF_RANGE[token], ranged=True)
        elif self.peek() == "(":
            if token not in _FUNCTIONS:
                raise NotAnExpression(f"there is no function {token}")
            self.arguments(_FUNCTIONS[token], ranged=False)
        else:
            self.found.append(Series(token, self.labels()))

    def arguments(self, count: int, *, ranged: bool) -> None:
        self.take("(")
        for place in range(count):
            if place:
                self.take(",")
            if self.expression() is not ranged:
                raise NotAnExpression("a range where none belongs, or none where one does")
        self.take(")")

    def names(self) -> None:
        self.take("(")
        while self.peek() != ")":
            self.take()
            if self.peek() == ",":
                self.take()
        self.take(")")

    def labels(self) -> frozenset[str]:
        names: set[str] = set()
        if self.peek() != "{":
            return frozenset()
        self.take("{")
        while self.peek() != "}":
            names.add(self.take())
            if self.take() not in ("=", "=~", "!=", "!~") or not self.take().startswith('"'):
                raise NotAnExpression("a label is compared with a text")
            if self.peek() == ",":
                self.take()
        self.take("}")
        return frozenset(names)


def series_of(expression: str) -> list[Series]:
    """Raises NotAnExpression."""
    tokens: list[str] = []
    place = 0
    text = expression.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotAnExpression(f"{text[place:][:20]!r} cannot be read")
        tokens.append(found[0].strip())
        place = found.end()
    reader = _Reader(tokens)
    if reader.expression():
        raise NotAnExpression("a range is no answer")
    if reader.peek():
        raise NotAnExpression(f"{reader.peek()} is too much")
    return reader.found
