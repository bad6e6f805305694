"""Updates the message catalogues: `make messages`.

Collects the messages of the source, updates `src/chimes/locale` (translations are kept, removed
messages are dropped, new ones are empty) and compiles it. The output depends on the source only, so
a second run changes nothing. `--check` changes nothing and lists what is missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import io
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from jinja2.ext import babel_extract

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "chimes"
LOCALE = SOURCE / "locale"
TEMPLATES = SOURCE / "web" / "dashboard" / "templates"
TRANSLATED = ("th", "zh")
DOMAIN = "chimes"
#: Keyword arguments of click's decorators that contain messages. Placeholders such as ZONE are not
#: translated, because the texts refer to them.
_CLICK_KEYWORDS = frozenset({"help", "short_help", "epilog", "prompt"})
_HEADER = """\
# {language} messages of Chimes.
# Updated by tools/messages.py: fill in msgstr, then run `make messages`.
#"""

#: A template, or singular and plural.
MessageId = str | tuple[str, str]


class Found(NamedTuple):
    """A message and its file, relative to `src/chimes`."""

    id: MessageId
    file: str
    line: int


class ChimesCatalog(Catalog):
    """Without the headers that change from run to run."""

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        return [
            ("Project-Id-Version", DOMAIN),
            *([("Language", str(self.locale_identifier))] if self.locale_identifier else []),
            *([("Plural-Forms", self.plural_forms)] if self.locale_identifier else []),
            ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Transfer-Encoding", "8bit"),
        ]

    @mime_headers.setter
    def mime_headers(self, headers: Iterable[tuple[str, str]]) -> None:
        """Ignores the headers of a file that is read."""


@cache
def messages() -> tuple[Found, ...]:
    """All messages, by file and line; those of click last."""
    found = [*_python(), *_templates(), *_click()]
    order = sorted(found, key=lambda each: (each.file.startswith("click/"), each.file, each.line))
    return tuple(order)


def _python() -> Iterator[Found]:
    trees = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    errors = _error_classes(trees.values())
    for file, tree in trees.items():
        for node in ast.walk(tree):
            for text in _of_node(node, errors, cli=file.startswith("cli/")):
                yield Found(text, file, getattr(node, "lineno", 0))


def _of_node(node: ast.AST, errors: frozenset[str], *, cli: bool) -> Iterator[MessageId]:
    match node:
        case ast.Call():
            yield from _marked_messages(node)
            if cli:
                yield from _click_messages(node)
        case ast.ClassDef(name=name) if name in errors:
            # The docstring of an error is its default message.
            if text := ast.get_docstring(node, clean=False):
                yield text
        case ast.FunctionDef() | ast.AsyncFunctionDef() if cli and _is_command(node):
            if text := ast.get_docstring(node):
                yield inspect.cleandoc(text).partition("\f")[0]


def _marked_messages(call: ast.Call) -> Iterator[MessageId]:
    match _name(call.func), call.args:
        case "_", [ast.Constant(value=str(template)), *_]:
            yield template
        case "counted", [ast.Constant(value=str(one)), ast.Constant(value=str(many)), *_]:
            yield one, many


def _click_messages(call: ast.Call) -> Iterator[str]:
    name = _name(call.func)
    positions = {"LazyCommand": 2, "Column": 0}
    if name in positions and len(call.args) > positions[name]:
        yield from _text(call.args[positions[name]])
    for each in call.keywords:
        if each.arg in _CLICK_KEYWORDS:
            for text in _text(each.value):
                yield inspect.cleandoc(text)


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip():
        yield node.value


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_name(each) in ("command", "group") for each in node.decorator_list)


def _error_classes(trees: Iterable[ast.AST]) -> frozenset[str]:
    bases = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"ChimesError"}
    while more := {name for name, over in bases.items() if over & found} - found:
        found |= more
    return frozenset(found)


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _name(func)
        case _:
            return ""


def _templates() -> Iterator[Found]:
    for path in sorted(TEMPLATES.rglob("*.*")) if TEMPLATES.exists() else ():
        if path.suffix not in (".html", ".txt", ".jinja", ".j2", ".xml"):
            continue
        options = {"newstyle_gettext": "true", "trimmed": "true", "silent": "false"}
        with path.open("rb") as file:
            for line, _, texts, _ in babel_extract(file, ("_", "gettext", "ngettext"), (), options):
                if found := _message_id(texts):
                    yield Found(found, path.relative_to(SOURCE).as_posix(), line)


def _click() -> Iterator[Found]:
    """Messages of click itself, which it looks up in the same catalogues."""
    spec = importlib.util.find_spec("click")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    keywords = {"_": None, "gettext": None, "ngettext": (1, 2)}
    for path in sorted(folder.rglob("*.py")):
        with path.open("rb") as file:
            for line, texts, _, _ in extract("python", file, keywords=keywords):
                if found := _message_id(texts):
                    yield Found(found, f"click/{path.relative_to(folder).as_posix()}", line)


def _message_id(texts: object) -> MessageId | None:
    match texts:
        case str() as text if text:
            return text
        case [str() as one, str() as many, *_]:
            return one, many
        case (str() as text, *_):
            return text
        case _:
            return None


def new_catalogue(language: str | None, found: Iterable[Found], old: Catalog) -> Catalog:
    """A catalogue of these messages with the translations of `old`."""
    header = _HEADER.format(language={None: "The", "th": "Thai", "zh": "Chinese"}[language])
    new = ChimesCatalog(locale=language, domain=DOMAIN, header_comment=header, fuzzy=False)
    # Plurals first, so that an equal singular becomes the same message.
    for each in sorted(found, key=lambda each: isinstance(each.id, str)):
        before = old.get(each.id if isinstance(each.id, str) else each.id[0])
        string = before.string if before is not None else ""
        if isinstance(each.id, tuple):
            forms = string if isinstance(string, tuple | list) else (string,)
            string = tuple(forms[:1]) if language else ("", "")
        elif isinstance(string, tuple | list):
            string = string[0]
        new.add(each.id, string, locations=[(each.file, each.line)])
    return new


def po_file(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read(language: str) -> Catalog:
    path = po_file(language)
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as file:
        return read_po(file, locale=language, domain=DOMAIN, abort_invalid=True)


def as_po(catalogue: Catalog) -> bytes:
    written = io.BytesIO()
    write_po(
        written, catalogue, width=100, sort_by_file=True, include_lineno=False, ignore_obsolete=True
    )
    return written.getvalue()


def as_mo(catalogue: Catalog) -> bytes:
    written = io.BytesIO()
    write_mo(written, catalogue)
    return written.getvalue()


def up_to_date() -> dict[Path, bytes]:
    """The expected content of each catalogue file."""
    found = messages()
    files = {LOCALE / f"{DOMAIN}.pot": as_po(new_catalogue(None, found, Catalog()))}
    for language in TRANSLATED:
        catalogue = new_catalogue(language, found, read(language))
        files[po_file(language)] = as_po(catalogue)
        files[po_file(language).with_suffix(".mo")] = as_mo(catalogue)
    return files


def untranslated(language: str) -> list[str]:
    """Messages of the source without a translation in this language."""
    catalogue = new_catalogue(language, messages(), read(language))
    return [
        each.id if isinstance(each.id, str) else each.id[0]
        for each in catalogue
        if each.id and not all(each.string if isinstance(each.id, tuple) else (each.string,))
    ]


def stale() -> list[Path]:
    return [
        path
        for path, content in up_to_date().items()
        if not path.exists() or path.read_bytes() != content
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; list what is missing")
    if parser.parse_args().check:
        return _check()
    for path, content in up_to_date().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for language in TRANSLATED:
        print(
            f"{language}: {len(untranslated(language))} of {len(read(language))} are untranslated"
        )
    return 0


def _check() -> int:
    wrong = 0
    for path in stale():
        wrong += 1
        print(f"{path.relative_to(ROOT)}: not up to date; run `make messages`")
    for language in TRANSLATED:
        for text in untranslated(language):
            wrong += 1
            print(f"{language}: not translated: {text!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
