"""Strings of `src/chimes` that a person would read in English whatever their language is.

`python -m tests.i18n_bypass src/chimes/cli` prints what it finds there. A finding is

- `bare`: words where a person reads them (an error, its hint, what a command prints) without
  `_` or `counted`;
- `prose`: a sentence anywhere else that is neither a docstring, a log line, SQL, a pattern nor a
  description of the API;
- `glued`: a sentence of ours inside an f-string, or behind `+`, `%` or `.format`: its translation
  is lost;
- `template`: what `_` gets is no literal, so no catalogue can have it;
- `piece`: a value of `_` that is a piece of an English sentence.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "chimes"

#: Each with the reason why English is right there: (file, beginning of the text, why).
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("errors.py", "type(self).__doc__", "docstrings of errors are in the catalogues by themselves"),
    ("web/api/idempotency.py", "'given up'", "a mark in the store"),
    ("web/api/schemas.py", "'Default: that ", "OpenAPI"),
    ("web/health.py", "'not ready'", "a status that programs read"),
    ("web/requests.py", "'{detail}'", "pydantic's template around a sentence"),
    ("web/api/schemas.py", "'Morning report'", "an example in OpenAPI"),
    ("notifications/telegram.py", "'chat not found'", "words of Telegram"),
    ("notifications/telegram.py", "'chat_id is empty'", "words of Telegram"),
    ("notifications/telegram.py", "'user is deactivated'", "words of Telegram"),
    ("store/redis/server.py", "'unknown command'", "words of Redis"),
    ("engine/membership.py", "'the lease ", "for the log of the process"),
    ("engine/membership.py", "'no heartbeat ", "for the log of the process"),
    ("engine/in_flight.py", "'ownership lost'", "a word of the engine; completions have their own"),
    ("engine/in_flight.py", "'shutdown grace", "a word of the engine; completions have their own"),
    ("targets/action/runner.py", "'the run ", "told to the service that carries the action out"),
    ("triggers/expression.py", "f'every ", "an expression to try"),
    ("cli/schedules.py", "f'action {name}'", "the name of the schedule that is made"),
    ("web/dashboard/core/times.py", "f'Unix ", "a name and a number"),
    ("web/dashboard/schedule/definition.py", "\"  -H 'Content-Type", "a command to copy"),
    ("web/dashboard/schedule/definition.py", "f'  --data-raw ", "a command to copy"),
    ("web/dashboard/schedule/definition.py", "'from chimes", "a program to copy"),
    ("web/dashboard/schedule/definition.py", "f'client = ", "a program to copy"),
    ("web/dashboard/schedules/views.py", "f'every ", "an expression as it is written"),
    ("web/dashboard/inbox/routes.py", "'noopener", "words of HTML"),
    ("web/dashboard/run/routes.py", "f'{format_moment", "a line of a file to keep"),
    ("web/dashboard/today/routes.py", "'from chimes", "a program to copy"),
    ("web/dashboard/run/views.py", "'Traceback", "words of Python"),
    ("web/dashboard/runs/views.py", "'chart against'", "classes of CSS"),
    ("services/schedules/crontab.py", "f'Basic ", "a header of HTTP"),
    ("failpoints.py", "f'sleep ", "a command of the shell, in tests of faults"),
    ("model/checkpoint.py", "'completed ", "words of pipelines"),
    ("model/checkpoint.py", "'failed ", "words of pipelines"),
    ("model/checkpoint.py", "'canceled ", "words of pipelines"),
    ("engine/capacity.py", "f'{runner.kind} worker'", "the name of a duty, in logs"),
)
#: Whole files and folders, below `src/chimes`.
SPARED: tuple[tuple[str, str], ...] = (
    ("language/", "grammars: each language has a module of its own, not templates"),
    ("web/dashboard/charts/", "SVG; its words come from outside"),
    ("store/sql/migrations/", "statements"),
    ("store/sql/dialects/", "statements"),
    ("store/sql/migrations/mariadb_view.py", "statements"),
    ("store/sql/insights.py", "statements"),
    ("engine/metrics.py", "Prometheus help texts"),
    ("engine/events.py", "log lines of the process, for operators"),
    ("web/openapi.py", "OpenAPI"),
    ("web/openapi.py", "OpenAPI, as a page"),
    ("web/api/responses.py", "OpenAPI"),
    ("web/api/responses.py", "OpenAPI"),
    ("web/compat/kweaver/routes.py", "OpenAPI"),
    ("services/demo.py", "what an example is called and says: data, as people write it"),
    ("services/demo.py", "what an example delivers: data, as people write it"),
    ("web/dashboard/editor/zones.py", "what people call places, in three languages"),
    ("testing.py", "for those who write tests"),
)

SAYING = frozenset({"_", "counted", "joined"})
#: Called with what a person reads, by the place or name of the argument.
PLACES: Mapping[str, tuple[int | str, ...]] = {
    "Refusal": (2,),
    "HTTPException": (1, "detail"),
    "FieldError": ("detail", "hint"),
    "Problem": ("title", "detail"),
    "PydanticCustomError": (1,),
    "Check": (2, 3),
    "Denial": ("text",),
    "Trouble": (1,),
    "ClickException": (0,),
    "UsageError": (0,),
    "BadParameter": (0,),
    "Abort": (0,),
    "echo": (0,),
    "secho": (0,),
    "echo_err": (0,),
    "ask": (0,),
    "confirm": (0,),
    "prompt": (0,),
    "remark": (1,),
}
#: Keywords that people read, whoever is called with them.
READ = frozenset({"message", "hint", "detail", "title", "solution"})
#: Classes over these take their message first.
ERRORS = frozenset({"ChimesError", "CommandError", "ClickException"})
#: Errors of programmers, not of users.
INTERNAL = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "KeyError",
        "LookupError",
        "NotImplementedError",
        "RuntimeError",
        "TypeError",
        "ValueError",
    }
)
LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGERS = frozenset({"_log", "log", "logger", "logging"})
#: What these are called with is for machines, or in the catalogues by a rule of its own.
QUIET_CALLS = frozenset(
    {
        # click, whose texts are looked up where help is shown; `Column` likewise
        *("LazyCommand", "command", "group", "option", "argument", "version_option", "Column"),
        # OpenAPI
        *("FastAPI", "Field", "Query", "WithJsonSchema", "_parameter", "problem", "gives"),
        # patterns and comparisons
        *("compile", "rule", "fullmatch", "sub", "split", "removeprefix", "removesuffix"),
        *("startswith", "endswith"),
        # statements
        *("text", "exec_driver_sql", "execute", "fetch", "fetchval"),
        # names of tasks, threads and metrics
        *("create_task", "Thread", "ThreadPoolExecutor", "getLogger"),
        *("GaugeMetricFamily", "CounterMetricFamily"),
    }
)
QUIET_KEYWORDS = frozenset(
    {"description", "examples", "help", "short_help", "epilog", "summary", "responses"}
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}")
_BESIDE_A_HOLE = re.compile(r"[a-z]{3,}[,;:]? \0|\0[,;:]? [a-z]{3,}")
_SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|AND|OR|SET|INTO|VALUES|PRAGMA|CREATE|ALTER|TABLE"
    r"|JOIN|ORDER BY|LIMIT|RETURNING|LOCK|BEGIN|COMMIT|ROLLBACK|DROP|WITH|NULL|ANALYZE|VACUUM)\b"
)
_MARKUP = re.compile(r"^\s*<|https?://|\\[bsdw]|\(\?|^#!")
#: Lines of protocols.
_WIRE = re.compile(
    r"^(Host|User-Agent|Accept|Accept-Encoding|Content-(Type|Length)|X-[\w-]+|webhook-\w+"
    r"|Idempotency-Key|event): |^(Bearer|[\w=]*@every) |^[a-z]+/[a-z+.-]+[,;] |max-age="
    r"|^/[a-z]+ |^: |data: |^gzip, |^attachment; "
)


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


class Place(NamedTuple):
    positions: tuple[int, ...]
    keywords: frozenset[str]
    #: Of functions that were not named here: a single word may be a code or a field.
    sentences_only: bool = False


def findings(
    paths: Sequence[Path], allowed: Sequence[tuple[str, str, str]] = ALLOWED
) -> list[Finding]:
    """In the files below these paths."""
    files = sorted({each for path in paths for each in _files(path)})
    places = _places()
    return sorted(
        found
        for file in files
        if not _spared(file)
        for found in _Module(file, places).findings()
        if not is_allowed(found, allowed)
    )


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _below_source(path: Path | str) -> str:
    return str(path).rpartition("src/chimes/")[2]


def _spared(file: Path) -> bool:
    name = _below_source(file)
    return any(name == each or (each.endswith("/") and name.startswith(each)) for each, _ in SPARED)


def is_allowed(found: Finding, allowed: Sequence[tuple[str, str, str]]) -> bool:
    return any(
        _below_source(found.path) == file and found.text.startswith(text)
        for file, text, _ in allowed
    )


@cache
def _places() -> Mapping[str, Place]:
    """What is known by name, and every error class of Chimes."""
    places = {
        name: Place(
            tuple(each for each in given if isinstance(each, int)),
            frozenset(each for each in given if isinstance(each, str)),
        )
        for name, given in PLACES.items()
    }
    bases: dict[str, set[str]] = {}
    for file in _files(SOURCE):
        for found in re.finditer(r"^class (\w+)\(([^)]*)\)", file.read_text(), re.MULTILINE):
            bases.setdefault(found[1], set()).update(re.findall(r"\w+", found[2]))
    errors = set(ERRORS)
    while more := {name for name, over in bases.items() if over & errors} - errors:
        errors |= more
    for name in errors:
        places.setdefault(name, Place((0,), frozenset()))
    return places


def _builders(tree: ast.AST, places: Mapping[str, Place]) -> Mapping[str, Place]:
    """Functions of a module that make an error, or raise one, of a message."""
    found: dict[str, Place] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
            and _names(node.returns) & (places.keys() | {"NoReturn"})
        ):
            _learn(node, found)
    return found


def _learn(node: ast.FunctionDef | ast.AsyncFunctionDef, places: dict[str, Place]) -> None:
    arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if arguments[:1] in (["self"], ["cls"]):
        del arguments[0]
    told = {"message", "text", "problem", "what", "why", "hint", "detail", "reason"}
    positions = tuple(place for place, name in enumerate(arguments) if name in told)
    keywords = frozenset(told & {*arguments, *(each.arg for each in node.args.kwonlyargs)})
    if keywords:
        places[node.name] = Place(positions, keywords, sentences_only=True)


def _names(node: ast.AST) -> set[str]:
    return {_name(each) for each in ast.walk(node)} - {""}


def _name(node: ast.AST) -> str:
    """`a.b.Name` is known as `Name`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _name(func)
        case ast.Constant(value=str(name)):
            return name.rpartition(".")[2]
        case _:
            return ""


class _Module:
    def __init__(self, file: Path, places: Mapping[str, Place]) -> None:
        self._file = file
        self._tree = ast.parse(file.read_text())
        self._places = {**places, **_builders(self._tree, places)}
        if "/cli/" in file.as_posix():
            # Of click's formatter; elsewhere a section of a file.
            self._places["section"] = Place((0,), frozenset())
        self._parents = {
            child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)
        }

    def findings(self) -> Iterator[Finding]:
        seen: set[tuple[int, int]] = set()
        for rule, node in (*self._glued(), *self._calls(), *self._prose()):
            place = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
            if place not in seen:
                seen.add(place)
                yield Finding(str(self._file), place[0], rule, _shown(node))

    def _calls(self) -> Iterator[tuple[str, ast.AST]]:
        for call in self._all(ast.Call):
            name = _name(call.func)
            if name in ("_", "counted"):
                yield from self._said(call, name)
                continue
            place = self._places.get(name, Place((), frozenset()))
            given = [call.args[at] for at in place.positions if at < len(call.args)]
            given += [
                each.value
                for each in call.keywords
                if each.arg in place.keywords or (each.arg in READ and name not in QUIET_CALLS)
            ]
            for each in given:
                for bare in self._bare(each, call):
                    if not place.sentences_only or " " in _text(bare).strip():
                        yield "bare", bare

    def _said(self, call: ast.Call, name: str) -> Iterator[tuple[str, ast.AST]]:
        templates = 1 if name == "_" else 2
        for each in call.args[:templates]:
            if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
                yield "template", each
        for each in (*call.args[templates:], *(each.value for each in call.keywords)):
            for piece in self._literals(each, call):
                if _is_prose(_text(piece)):
                    yield "piece", piece

    def _bare(self, node: ast.AST, at: ast.AST) -> Iterator[ast.AST]:
        """Bare words in an expression, or in what was assigned to the name that it is."""
        for each in self._literals(node, at):
            if _WORD.search(_text(each).replace("\0", "")):
                yield each

    def _literals(self, node: ast.AST, at: ast.AST, depth: int = 3) -> Iterator[ast.AST]:
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                yield node
            case ast.IfExp(body=one, orelse=other):
                yield from self._literals(one, at, depth)
                yield from self._literals(other, at, depth)
            case ast.BoolOp(values=values):
                for each in values:
                    yield from self._literals(each, at, depth)
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
                yield from self._literals(left, at, depth)
                yield from self._literals(right, at, depth)
            case ast.Call(func=ast.Attribute(value=inner, attr="format" | "join")):
                yield from self._literals(inner, at, depth)
            case ast.Name(id=name) if depth:
                for each in self._assigned(name, at):
                    yield from self._literals(each, each, depth - 1)

    def _assigned(self, name: str, at: ast.AST) -> Iterator[ast.AST]:
        """What the name may stand for here: assignments in the same function, else in the
        module. A loop variable or an argument stands for anything."""
        for scope in (self._function(at), self._tree):
            found = [
                node.value
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr)
                and node.value is not None
                and name in {_name(each) for each in _targets(node)}
                and (scope is not self._tree or self._function(node) is self._tree)
            ]
            if found:
                yield from found
                return

    def _function(self, node: ast.AST) -> ast.AST:
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return node
        return self._tree

    def _glued(self) -> Iterator[tuple[str, ast.AST]]:
        for node in ast.walk(self._tree):
            match node:
                case ast.JoinedStr(values=values):
                    inside = [each.value for each in values if isinstance(each, ast.FormattedValue)]
                    if any(_is_sentence(each) for each in inside) and not self._in_a_log(node):
                        yield "glued", node
                case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
                    if _is_sentence(left) or _is_sentence(right):
                        yield "glued", node
                case ast.Call(func=ast.Attribute(value=inner, attr="format")):
                    if _is_sentence(inner):
                        yield "glued", node

    def _prose(self) -> Iterator[tuple[str, ast.AST]]:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.JoinedStr) and not (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                continue
            if isinstance(self._parents.get(node), ast.JoinedStr | ast.FormattedValue):
                continue
            if _is_prose(_text(node)) and not self._is_quiet(node):
                yield "prose", node

    def _is_quiet(self, node: ast.AST) -> bool:
        """Whether nobody reads it, or a rule of its own is about it."""
        if node in self._docstrings or self._in_a_log(node):
            return True
        child = node
        while child in self._parents:
            parent = self._parents[child]
            match parent:
                case ast.Assert() | ast.Compare() | ast.Subscript():
                    return True
                case ast.keyword(arg=str(name)) if name in QUIET_KEYWORDS:
                    return True
                case ast.Dict(keys=keys, values=values) if child in values:
                    key = keys[values.index(child)]
                    if isinstance(key, ast.Constant) and key.value in ("description", "examples"):
                        return True
                case ast.Call() if child is not parent.func:
                    called = _name(parent.func)
                    if called in SAYING | QUIET_CALLS | INTERNAL:
                        return True
                case ast.AnnAssign(annotation=annotation) if "Literal" in _names(annotation):
                    return True
                case ast.Assign(targets=[ast.Name(id="name")]):
                    return True  # of a duty: for logs and metrics
                case ast.stmt():
                    return False
            child = parent
        return False

    def _in_a_log(self, node: ast.AST) -> bool:
        while node in self._parents and not isinstance(node, ast.stmt):
            node = self._parents[node]
            match node:
                case ast.Call(func=ast.Attribute(value=receiver, attr=verb)) if verb in LOGGING:
                    if _name(receiver) in LOGGERS:
                        return True
        return False

    @cached_property
    def _docstrings(self) -> set[ast.AST]:
        found: set[ast.AST] = set()
        for node in ast.walk(self._tree):
            for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
                for each in body if isinstance(body, list) else ():
                    if isinstance(each, ast.Expr):
                        found.add(each.value)
        return found

    def _all(self, kind: type[ast.Call]) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self._tree) if isinstance(node, kind))


def _targets(node: ast.AST) -> Sequence[ast.AST]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]


def _is_sentence(node: ast.AST) -> bool:
    """A sentence of ours: what `_` made, or the message of an error."""
    match node:
        case ast.Call(func=func):
            return _name(func) in SAYING
        case ast.Attribute(attr="message"):
            return True
        case _:
            return False


def _is_prose(text: str) -> bool:
    if _SQL.search(text) or _MARKUP.search(text) or _WIRE.search(text):
        return False
    return bool(_PROSE.search(text) or _BESIDE_A_HOLE.search(text))


def _text(node: ast.AST) -> str:
    """With a NUL for each hole."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                _text(each) if isinstance(each, ast.Constant) else "\0" for each in values
            )
        case _:
            return ""


def _shown(node: ast.AST) -> str:
    return ast.unparse(node)[:100]


def main() -> int:
    paths = [Path(each) for each in sys.argv[1:]] or [SOURCE]
    found = findings(paths)
    for each in found:
        print(each)
    print(f"{len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
