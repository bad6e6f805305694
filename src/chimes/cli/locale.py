"""Output language of a command: `--lang`, then CHIMES_LANG, then the locale.

Messages are built in English (`chimes.i18n`) and translated when they are printed. Click translates
its own messages with gettext, whose default domain is ours while a command runs.
"""

from __future__ import annotations

import gettext
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import cleandoc

import click

from chimes import i18n
from chimes.errors import InvalidInput
from chimes.i18n import Message, in_language
from chimes.language.languages import known, named, of_environment

_DOMAIN = "chimes"
#: The variable that gettext reads first.
_VARIABLE = "LANGUAGE"
_language: ContextVar[str] = ContextVar("language", default=i18n.ENGLISH)
_explicit: ContextVar[bool] = ContextVar("explicit", default=False)
#: Value of the variable before the command.
_original: ContextVar[str | None] = ContextVar("original", default=None)


def current_language() -> str:
    """The output language of the running command."""
    return _language.get()


def explicit_language() -> str | None:
    """The output language if --lang or CHIMES_LANG set it, else None."""
    return (
        current_language() if _explicit.get() or os.environ.get("CHIMES_LANG", "").strip() else None
    )


def localize(text: str) -> str:
    """A message in the output language; other text unchanged."""
    return in_language(text, current_language())


def localize_help(text: str) -> str:
    """Help text in the output language; the catalogues hold it as it is written."""
    whole = text if isinstance(text, Message) else Message(cleandoc(text), {})
    return localize(whole) if whole else ""


@contextmanager
def use_language(arguments: Sequence[str]) -> Iterator[None]:
    """Sets the output language while a command runs. Looks for --lang before the arguments are
    parsed, so that parse errors are translated too."""
    domain, directory = gettext.textdomain(), gettext.bindtextdomain(_DOMAIN)
    original = _original.set(os.environ.get(_VARIABLE))
    language, explicit = _language.set(current_language()), _explicit.set(False)
    gettext.bindtextdomain(_DOMAIN, str(i18n.LOCALE))
    gettext.textdomain(_DOMAIN)
    _set_language(_detect_language(arguments))
    try:
        yield
    finally:
        _restore_environment()
        gettext.textdomain(domain)
        gettext.bindtextdomain(_DOMAIN, directory)
        _language.reset(language)
        _explicit.reset(explicit)
        _original.reset(original)


@contextmanager
def original_environment() -> Iterator[None]:
    """Restores the environment while the server runs, so that its child processes inherit it."""
    _restore_environment()
    try:
        yield
    finally:
        _set_language(current_language())


def _restore_environment() -> None:
    os.environ.pop(_VARIABLE, None)
    if (original := _original.get()) is not None:
        os.environ[_VARIABLE] = original


def _set_language(language: str) -> None:
    _language.set(language)
    os.environ[_VARIABLE] = language


def _detect_language(arguments: Sequence[str]) -> str:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, each in reversed(list(enumerate(arguments[:end]))):
        option, equals, value = each.partition("=")
        if option == "--lang":
            given = value if equals else "".join(arguments[place + 1 : place + 2])
            if (language := known(given)) is not None:
                return language
    try:
        return of_environment(os.environ)
    except InvalidInput:
        return i18n.ENGLISH


def _apply_option(context: click.Context, option: click.Parameter, given: str | None) -> None:
    if given is not None:
        _set_language(named(given))
        _explicit.set(True)
    elif not _explicit.get() and not isinstance(context.command, click.Group):
        # An invalid CHIMES_LANG is rejected only here: help works in any case, and --lang after
        # the name of the command takes precedence.
        of_environment(os.environ)


def language_option() -> click.Option:
    """`--lang`, an option of every command and group."""
    return click.Option(
        ["--lang"],
        callback=_apply_option,
        expose_value=False,
        is_eager=True,
        # `of_environment` reads CHIMES_LANG together with the locale.
        allow_from_autoenv=False,
        metavar="LANGUAGE",
        help="Output language: en, th or zh. Default: CHIMES_LANG, then your locale.",
    )
