"""Finds user-facing strings of `src/chimes` that bypass the message catalogues.

`python -m tests.i18n_bypass src/chimes/cli` prints the findings in that folder. The rules are:

- `bare`: text of an error, hint or command output without `_` or `counted`;
- `prose`: a sentence anywhere else, except docstrings, log lines, SQL, patterns and OpenAPI
  descriptions;
- `glued`: a message inside an f-string, or combined with `+`, `%` or `.format`, which loses its
  translation;
- `template`: the argument of `_` is not a literal, so no catalogue contains it;
- `piece`: a parameter of `_` is a fragment of an English sentence.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "chimes"

#: Findings that are intended: (file, beginning of the text, reason).
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("errors.py", "type(self).__doc__", "docstrings of errors are extracted into the catalogues"),
    ("web/api/route.py", "'given up'", "a value in the store"),
    ("web/api/schemas.py", "'Default: that ", "OpenAPI"),
    ("web/health.py", "'not ready'", "a status that programs read"),
    ("web/problems.py", "'{detail}'", "pydantic's template around a message"),
    ("web/api/schemas.py", "'Morning report'", "an example in OpenAPI"),
    ("notifications/telegram.py", "'chat not found'", "an error text of Telegram"),
    ("notifications/telegram.py", "'chat_id is empty'", "an error text of Telegram"),
    ("notifications/telegram.py", "'user is deactivated'", "an error text of Telegram"),
    ("store/redis/server.py", "'unknown command'", "an error text of Redis"),
    ("engine/membership.py", "'the lease ", "for the log of the process"),
    ("engine/membership.py", "'no heartbeat ", "for the log of the process"),
    ("engine/in_flight.py", "'ownership lost'", "internal; completions have messages of their own"),
    ("engine/in_flight.py", "'shutdown grace", "internal; completions have messages of their own"),
    ("targets/action/runner.py", "'the run ", "sent to the service that executes the action"),
    ("triggers/text.py", "f'every ", "an expression to try"),
    ("cli/schedules.py", "f'action {name}'", "the name of the schedule that is made"),
    ("web/dashboard/core/times.py", "f'Unix ", "a name and a number"),
    ("web/dashboard/schedule/definition.py", "\"  -H 'Content-Type", "a command to copy"),
    ("web/dashboard/schedule/definition.py", "f'  --data-raw ", "a command to copy"),
    ("web/dashboard/schedule/definition.py", "'from chimes", "a program to copy"),
    ("web/dashboard/schedule/definition.py", "f'client = ", "a program to copy"),
    ("web/dashboard/schedules/views.py", "f'every ", "an expression as it is written"),
    ("web/dashboard/inbox/routes.py", "'noopener", "an HTML attribute"),
    ("web/dashboard/run/routes.py", "f'{format_moment", "a line of a file to keep"),
    ("web/dashboard/today/routes.py", "'from chimes", "a program to copy"),
    ("web/dashboard/run/views.py", "'Traceback", "text printed by Python"),
    ("web/dashboard/runs/views.py", "'chart against'", "classes of CSS"),
    ("services/schedules/crontab.py", "f'Basic ", "a header of HTTP"),
    ("services/schedules/imports.py", "'parallelism, ", "names of fields"),
    ("services/schedules/imports.py", "f'env {name} ", "names of fields"),
    ("services/schedules/imports.py", "f'import json", "a program to execute"),
    ("cli/imports.py", "'Chimes'", "the name of the product"),
    ("services/message_templates.py", "'Morning report'", "an example of a name"),
    ("telegram/commands.py", "f'/proposal_", "a command of the bot"),
    ("cli/mcp_server.py", "'Chimes runs jobs", "read by an assistant"),
    ("cli/mcp_server.py", "'The result is too large", "read by an assistant"),
    ("cli/mcp_server.py", "f'{value[:most]}", "read by an assistant"),
    ("cli/mcp_server.py", 'f"{', "the name of an assistant"),
    ("cli/mcp_server.py", "f'{error.message} (", "read by an assistant"),
    ("cli/operations/monitor.py", "'OK'", "the answer to a ping"),
    ("services/healthchecks.py", "f'check {place", "the place of an entry in a file"),
    ("web/dashboard/monitors/views.py", "f'", "a command to copy"),
    ("cli/operations/torture.py", "'chimes torture --self-test'", "a command to copy"),
    ("cli/operations/doctor.py", "'chimes maintenance off'", "a command to copy"),
    ("cli/completion.py", "f'Authorization: Bearer ", "a header"),
    ("cli/help.py", "f'.TH CHIMES", "the heading of a manual page"),
    ("cli/operations/doctor.py", "f' --namespace ", "a command to copy"),
    ("envelope.py", "'# ", "comments in the key file"),
    ("runtime/serve.py", "'CHIMES_SECRET_KEY is not set", "for the log of the process"),
    ("web/compat/softnix/routes.py", "'Summarise the news'", "an example in OpenAPI"),
    ("web/compat/softnix/routes.py", "'Id of the owner.'", "OpenAPI"),
    ("web/compat/softnix/routes.py", "'Maximum of runs.'", "OpenAPI"),
    ("failpoints.py", "f'sleep ", "a command of the shell, in tests of faults"),
    ("model/checkpoint.py", "'completed ", "status words of pipelines"),
    ("model/checkpoint.py", "'failed ", "status words of pipelines"),
    ("model/checkpoint.py", "'canceled ", "status words of pipelines"),
    ("engine/in_flight.py", "f'{runner.kind} worker'", "the name of a duty, in logs"),
    ("engine/spans.py", "'Duration ", "description of a metric"),
    ("engine/spans.py", "'Seconds ", "description of a metric"),
    ("runtime/serve.py", "f'node ", "shown by systemctl status"),
    ("runtime/service_manager.py", "'STATUS=", "shown by systemctl status"),
    ("services/single_sign_on.py", "'the ", "for the log of the process"),
    ("services/single_sign_on.py", "f'the ", "for the log of the process"),
    ("services/single_sign_on.py", 'f"the issuer', "for the log of the process"),
    ("services/single_sign_on.py", "f'{name} is missing", "for the log of the process"),
    ("services/single_sign_on.py", 'f"{urlsplit(url)', "for the log of the process"),
    ("services/single_sign_on.py", "f'Basic ", "a header of HTTP"),
    ("targets/http/request.py", "f'traceparent: ", "a header of HTTP"),
    ("telemetry.py", "f'OTEL_TRACES_EXPORTER", "for the log of the process"),
    ("telemetry.py", "f'{name}={protocol}", "for the log of the process"),
)
#: Files and folders below `src/chimes` that are not searched, with the reason.
EXCLUDED_FILES: tuple[tuple[str, str], ...] = (
    (
        "integrations/django/",
        "texts of Django's own command line and admin, in English",
    ),
    ("pytest_plugin.py", "for the report of pytest, which is English"),
    ("language/", "each language has its own module instead of templates"),
    ("web/dashboard/charts/", "SVG; texts are passed in"),
    ("store/sql/migrations/", "statements"),
    ("store/sql/dialects/", "statements"),
    ("store/sql/migrations/mariadb_view.py", "statements"),
    ("store/sql/insights.py", "statements"),
    ("store/sql/dialects/statistics.py", "statements"),
    ("engine/metrics.py", "Prometheus help texts"),
    ("engine/events.py", "log lines for operators"),
    ("web/openapi.py", "OpenAPI"),
    ("web/api/responses.py", "OpenAPI"),
    ("web/api/field_docs.py", "OpenAPI"),
    ("receiver.py", "for developers of other services, which do not have the catalogues"),
    ("web/compat/base.py", "OpenAPI"),
    ("web/compat/eventnative/routes.py", "OpenAPI"),
    ("web/compat/kweaver/routes.py", "OpenAPI"),
    ("torture/", "reports of violations and logs, for engineers"),
    ("services/demo.py", "names and texts of examples are data"),
    ("web/dashboard/editor/zones.py", "names of places in three languages"),
    ("testing.py", "for developers"),
)

TRANSLATING = frozenset({"_", "counted", "joined"})
#: Calls with user-facing arguments, by position or name of the argument.
MESSAGE_ARGUMENTS: Mapping[str, tuple[int | str, ...]] = {
    "RequestRejected": (2,),
    "HTTPException": (1, "detail"),
    "FieldError": ("detail", "hint"),
    "Problem": ("title", "detail"),
    "PydanticCustomError": (1,),
    "Check": (2, 3),
    "Denial": ("text",),
    "TargetError": (1,),
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
    "warning_line": (1,),
}
#: Keyword arguments that are user-facing in every call.
MESSAGE_KEYWORDS = frozenset({"message", "hint", "detail", "title", "solution"})
#: The first argument of these classes and their subclasses is the message.
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
#: Calls whose arguments are not shown to users, or are extracted into the catalogues otherwise.
NOT_SHOWN_CALLS = frozenset(
    {
        # click and `Column` translate their texts when help is shown
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
NOT_SHOWN_KEYWORDS = frozenset(
    {
        "description",
        "response_description",
        "examples",
        "help",
        "short_help",
        "epilog",
        "summary",
        "responses",
    }
)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
_WORD = re.compile(r"[A-Za-z]{2,}")
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}")
_PROSE_NEXT_TO_A_FIELD = re.compile(r"[a-z]{3,}[,;:]? \0|\0[,;:]? [a-z]{3,}")
_SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|AND|OR|SET|INTO|VALUES|PRAGMA|CREATE|ALTER|TABLE"
    r"|JOIN|ORDER BY|LIMIT|RETURNING|LOCK|BEGIN|COMMIT|ROLLBACK|DROP|WITH|NULL|ANALYZE|VACUUM)\b"
)
_MARKUP = re.compile(r"^\s*<|https?://|\\[bsdw]|\(\?|^#!")
#: Lines of network protocols.
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
    #: For functions not named here: a single word may be a code or a field.
    sentences_only: bool = False


def findings(
    paths: Sequence[Path], allowed: Sequence[tuple[str, str, str]] = ALLOWED
) -> list[Finding]:
    """Findings in the files below these paths."""
    files = sorted({each for path in paths for each in _files(path)})
    places = _places()
    return sorted(
        found
        for file in files
        if not _is_excluded(file)
        for found in _Module(file, places).findings()
        if not is_allowed(found, allowed)
    )


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _below_source(path: Path | str) -> str:
    return str(path).rpartition("src/chimes/")[2]


def _is_excluded(file: Path) -> bool:
    name = _below_source(file)
    return any(
        name == each or (each.endswith("/") and name.startswith(each)) for each, _ in EXCLUDED_FILES
    )


def is_allowed(found: Finding, allowed: Sequence[tuple[str, str, str]]) -> bool:
    return any(
        _below_source(found.path) == file and found.text.startswith(text)
        for file, text, _ in allowed
    )


@cache
def _places() -> Mapping[str, Place]:
    """MESSAGE_ARGUMENTS and every error class of Chimes."""
    places = {
        name: Place(
            tuple(each for each in given if isinstance(each, int)),
            frozenset(each for each in given if isinstance(each, str)),
        )
        for name, given in MESSAGE_ARGUMENTS.items()
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


def _error_builders(nodes: Iterable[ast.AST], places: Mapping[str, Place]) -> Mapping[str, Place]:
    """Functions of a module that build or raise an error from a message."""
    found: dict[str, Place] = {}
    for node in nodes:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
            and _names(node.returns) & (places.keys() | {"NoReturn"})
        ):
            _add_message_arguments(node, found)
    return found


def _add_message_arguments(
    node: ast.FunctionDef | ast.AsyncFunctionDef, places: dict[str, Place]
) -> None:
    arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if arguments[:1] in (["self"], ["cls"]):
        del arguments[0]
    message_names = {"message", "text", "problem", "what", "why", "hint", "detail", "reason"}
    positions = tuple(place for place, name in enumerate(arguments) if name in message_names)
    keywords = frozenset(message_names & {*arguments, *(each.arg for each in node.args.kwonlyargs)})
    if keywords:
        places[node.name] = Place(positions, keywords, sentences_only=True)


def _names(node: ast.AST) -> set[str]:
    return {_name(each) for each in ast.walk(node)} - {""}


def _name(node: ast.AST) -> str:
    """Last part of a dotted name: `Name` for `a.b.Name`."""
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
        # All nodes in the order of `ast.walk`, which is slow.
        self._nodes: list[ast.AST] = [self._tree]
        self._parents: dict[ast.AST, ast.AST] = {}
        for node in self._nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
                self._nodes.append(child)
        self._places = {**places, **_error_builders(self._nodes, places)}
        if "/cli/" in file.as_posix():
            # A method of click's formatter; elsewhere a section of a file.
            self._places["section"] = Place((0,), frozenset())

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
                yield from self._translation_calls(call, name)
                continue
            place = self._places.get(name, Place((), frozenset()))
            given = [call.args[at] for at in place.positions if at < len(call.args)]
            given += [
                each.value
                for each in call.keywords
                if each.arg in place.keywords
                or (each.arg in MESSAGE_KEYWORDS and name not in NOT_SHOWN_CALLS)
            ]
            for each in given:
                for bare in self._bare(each, call):
                    if not place.sentences_only or " " in _text(bare).strip():
                        yield "bare", bare

    def _translation_calls(self, call: ast.Call, name: str) -> Iterator[tuple[str, ast.AST]]:
        templates = 1 if name == "_" else 2
        for each in call.args[:templates]:
            if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
                yield "template", each
        for each in (*call.args[templates:], *(each.value for each in call.keywords)):
            for piece in self._literals(each, call):
                if _is_prose(_text(piece)):
                    yield "piece", piece

    def _bare(self, node: ast.AST, at: ast.AST) -> Iterator[ast.AST]:
        """Untranslated words in an expression, or in the values assigned to it if it is a name."""
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
        """Values assigned to a name in the same function, else in the module.

        Loop variables and arguments are not followed.
        """
        for scope in (self._function(at), self._tree):
            found = [
                node.value
                for node in (self._module_assignments if scope is self._tree else ast.walk(scope))
                if isinstance(node, _ASSIGNMENTS)
                and node.value is not None
                and name in {_name(each) for each in _targets(node)}
            ]
            if found:
                yield from found
                return

    @cached_property
    def _module_assignments(self) -> list[ast.AST]:
        return [
            node
            for node in self._nodes
            if isinstance(node, _ASSIGNMENTS) and self._function(node) is self._tree
        ]

    def _function(self, node: ast.AST) -> ast.AST:
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return node
        return self._tree

    def _glued(self) -> Iterator[tuple[str, ast.AST]]:
        for node in self._nodes:
            match node:
                case ast.JoinedStr(values=values):
                    inside = [each.value for each in values if isinstance(each, ast.FormattedValue)]
                    if any(_is_message(each) for each in inside) and not self._in_a_log(node):
                        yield "glued", node
                case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
                    if _is_message(left) or _is_message(right):
                        yield "glued", node
                case ast.Call(func=ast.Attribute(value=inner, attr="format")):
                    if _is_message(inner):
                        yield "glued", node

    def _prose(self) -> Iterator[tuple[str, ast.AST]]:
        for node in self._nodes:
            if not isinstance(node, ast.JoinedStr) and not (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                continue
            if isinstance(self._parents.get(node), ast.JoinedStr | ast.FormattedValue):
                continue
            if _is_prose(_text(node)) and not self._is_not_shown(node):
                yield "prose", node

    def _is_not_shown(self, node: ast.AST) -> bool:
        """Whether the text is not user-facing, or another rule checks it."""
        if node in self._docstrings or self._in_a_log(node):
            return True
        child = node
        while child in self._parents:
            parent = self._parents[child]
            match parent:
                case ast.Assert() | ast.Compare() | ast.Subscript():
                    return True
                case ast.keyword(arg=str(name)) if name in NOT_SHOWN_KEYWORDS:
                    return True
                case ast.Dict(keys=keys, values=values) if child in values:
                    key = keys[values.index(child)]
                    if isinstance(key, ast.Constant) and key.value in ("description", "examples"):
                        return True
                case ast.Call() if child is not parent.func:
                    called = _name(parent.func)
                    if called in TRANSLATING | NOT_SHOWN_CALLS | INTERNAL:
                        return True
                case ast.AnnAssign(annotation=annotation) if "Literal" in _names(annotation):
                    return True
                case ast.Assign(targets=[ast.Name(id="name")]):
                    return True  # name of a background duty, for logs and metrics
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
        for node in self._nodes:
            for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
                for each in body if isinstance(body, list) else ():
                    if isinstance(each, ast.Expr):
                        found.add(each.value)
        return found

    def _all(self, kind: type[ast.Call]) -> Iterator[ast.Call]:
        return (node for node in self._nodes if isinstance(node, kind))


def _targets(node: ast.AST) -> Sequence[ast.AST]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]


def _is_message(node: ast.AST) -> bool:
    """Whether an expression is a message: a call of `_`, or `message` of an error."""
    match node:
        case ast.Call(func=func):
            return _name(func) in TRANSLATING
        case ast.Attribute(attr="message"):
            return True
        case _:
            return False


def _is_prose(text: str) -> bool:
    if _SQL.search(text) or _MARKUP.search(text) or _WIRE.search(text):
        return False
    return bool(_PROSE.search(text) or _PROSE_NEXT_TO_A_FIELD.search(text))


def _text(node: ast.AST) -> str:
    """Text of a string or f-string, with NUL for each placeholder."""
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
