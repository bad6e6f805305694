"""Parser for a subset of PromQL: rejects invalid expressions and lists the series that are read."""

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
#: Functions and their number of arguments; range functions need a range vector (`x[5m]`).
_RANGE_FUNCTIONS = {
    "rate": 1,
    "increase": 1,
    "deriv": 1,
    "delta": 1,
    "irate": 1,
    "avg_over_time": 1,
}
_FUNCTIONS = {"abs": 1, "absent": 1, "histogram_quantile": 2, "clamp_min": 2, "time": 0}
_AGGREGATIONS = ("sum", "max", "min", "avg", "count")
_OPERATORS_BY_PRECEDENCE = (
    ("or",),
    ("and", "unless"),
    ("==", "!=", "<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)


class InvalidExpression(ValueError):
    pass


@dataclass(frozen=True)
class Series:
    name: str
    labels: frozenset[str]


@dataclass
class _Parser:
    tokens: list[str]
    place: int = 0
    found: list[Series] = field(default_factory=list)

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise InvalidExpression(f"expected {expected or 'more'}, not {token or 'the end'}")
        self.place += 1
        return token

    def expression(self, level: int = 0) -> bool:
        """Parses an expression; returns whether it is a range vector."""
        if level == len(_OPERATORS_BY_PRECEDENCE):
            return self.postfix()
        ranged = self.expression(level + 1)
        while self.peek() in _OPERATORS_BY_PRECEDENCE[level]:
            self.take()
            if self.expression(level + 1) or ranged:
                raise InvalidExpression("operators do not take a range vector")
        return ranged

    def postfix(self) -> bool:
        self.primary()
        if not self.peek().startswith("["):
            return False
        inside = self.take()[1:-1]
        parts = inside.split(":")
        if len(parts) > 2 or not all(_DURATION.fullmatch(part) for part in parts):
            raise InvalidExpression(f"{inside} is not a duration")
        return True

    def primary(self) -> None:
        token = self.take()
        if token == "(":
            if self.expression():
                raise InvalidExpression("a range vector in parentheses")
            self.take(")")
        elif token[0].isdigit():
            return
        elif not re.match(r"[a-zA-Z_]", token):
            raise InvalidExpression(f"unexpected token {token}")
        elif token in _AGGREGATIONS:
            if self.peek() in ("by", "without"):
                self.take()
                self.names()
            self.arguments(1, ranged=False)
        elif token in _RANGE_FUNCTIONS:
            self.arguments(_RANGE_FUNCTIONS[token], ranged=True)
        elif self.peek() == "(":
            if token not in _FUNCTIONS:
                raise InvalidExpression(f"there is no function {token}")
            self.arguments(_FUNCTIONS[token], ranged=False)
        else:
            self.found.append(Series(token, self.labels()))

    def arguments(self, count: int, *, ranged: bool) -> None:
        self.take("(")
        for place in range(count):
            if place:
                self.take(",")
            if self.expression() is not ranged:
                raise InvalidExpression("unexpected or missing range vector")
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
                raise InvalidExpression("a label matcher needs an operator and a quoted value")
            if self.peek() == ",":
                self.take()
        self.take("}")
        return frozenset(names)


def series_of(expression: str) -> list[Series]:
    """Series that an expression reads; raises InvalidExpression."""
    tokens: list[str] = []
    place = 0
    text = expression.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise InvalidExpression(f"invalid token: {text[place:][:20]!r}")
        tokens.append(found[0].strip())
        place = found.end()
    parser = _Parser(tokens)
    if parser.expression():
        raise InvalidExpression("a range vector is not a result")
    if parser.peek():
        raise InvalidExpression(f"unexpected {parser.peek()} after the expression")
    return parser.found
