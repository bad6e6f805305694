"""Finds every audit verb and object kind in the source.

These are the literals passed to a parameter of that name, by callers of `AuditEntry` and of all
functions that pass it on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import chimes

ROOT = Path(chimes.__file__).parent
#: Files in which `verb` means something else, such as a command.
OTHER_MEANINGS = (
    "cli/",
    "client/",
    "store/codec/",
    "store/redis/",
)
VERB = "verb"


@dataclass(frozen=True)
class AuditLiteral:
    word: str
    place: str


def literals_of(parameter: str) -> set[AuditLiteral]:
    """Literals passed as `parameter` (verb or kind).

    Raises AssertionError for an argument that is neither a literal, nor a choice of literals, nor
    passed on.
    """
    modules = _modules()
    takers_of = {name: _takers(nodes, parameter) for name, nodes in modules.items()}
    found: set[AuditLiteral] = set()
    for name, nodes in modules.items():
        takers: dict[str, int | None] = {"AuditEntry": None}
        for each in _imported(nodes):
            takers |= takers_of.get(each, {})
        takers |= takers_of[name]
        for call in (each for each in nodes if isinstance(each, ast.Call)):
            taker = _name(call.func)
            given = _given(call, parameter, takers[taker]) if taker in takers else None
            if given is not None:
                where = f"{name}:{call.lineno}"
                found |= {AuditLiteral(word, where) for word in _literals(given, nodes, where)}
    return found


@cache
def _modules() -> dict[str, list[ast.AST]]:
    """The nodes of the parsed modules by path."""
    return {
        str(path.relative_to(ROOT)): [*ast.walk(ast.parse(path.read_text()))]
        for path in sorted(ROOT.rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(OTHER_MEANINGS)
    }


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Modules of Chimes that a module imports."""
    for each in nodes:
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("chimes."):
            yield f"{str(each.module).removeprefix('chimes.').replace('.', '/')}.py"


def _takers(nodes: Iterable[ast.AST], parameter: str) -> dict[str, int | None]:
    """Functions and classes with a verb parameter, and the position of `parameter`."""
    takers: dict[str, int | None] = {}
    for each in nodes:
        if isinstance(each, ast.ClassDef):
            has = (field for field in each.body if isinstance(field, ast.AnnAssign))
            if any(
                ast.unparse(field.target) == VERB and _is_str(field.annotation) for field in has
            ):
                takers[each.name] = None
            continue
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [arg.arg for arg in each.args.args if arg.arg != "self"]
        annotated = [*each.args.args, *each.args.kwonlyargs]
        if any(a.arg == VERB and _is_str(a.annotation) for a in annotated):
            takers[each.name] = names.index(parameter) if parameter in names else None
    return takers


def _is_str(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "str"


def _name(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _given(call: ast.Call, parameter: str, place: int | None) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg in (parameter, f"object_{parameter}"):
            return keyword.value
    return call.args[place] if place is not None and place < len(call.args) else None


def _literals(given: ast.expr, nodes: Iterable[ast.AST], where: str) -> Iterator[str]:
    match given:
        case ast.Constant(value=str(word)):
            yield word
        case ast.IfExp(body=body, orelse=orelse):
            yield from _literals(body, nodes, where)
            yield from _literals(orelse, nodes, where)
        case ast.Name(id="verb" | "kind") | ast.Attribute(attr="verb" | "object_kind"):
            pass
        case ast.Call(func=ast.Name(id=name)):
            for each in nodes:
                if isinstance(each, ast.FunctionDef) and each.name == name:
                    for answer in (a for a in ast.walk(each) if isinstance(a, ast.Return)):
                        assert answer.value is not None
                        yield from _literals(answer.value, nodes, where)
        case _:
            raise AssertionError(f"{where}: {ast.unparse(given)} is not a literal")
