"""In which language a command speaks: `--lang`, else CHIMES_LANG, else the locale says.

Sentences are made in English (`chimes.i18n`); what prints them asks `spoken` here. Click has
sentences of its own and asks gettext, whose default domain is ours while a command runs.
"""

from __future__ import annotations

import gettext
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import cleandoc

import click

from chimes import i18n as wording
from chimes.errors import InvalidInput
from chimes.i18n import Message, in_language
from chimes.language.languages import known, named, of_environment

_DOMAIN = "chimes"
#: What gettext looks at first.
_VARIABLE = "LANGUAGE"
_spoken: ContextVar[str] = ContextVar("spoken", default=wording.ENGLISH)
_by_name: ContextVar[bool] = ContextVar("by_name", default=False)
#: What the variable was before.
_given: ContextVar[str | None] = ContextVar("given", default=None)


def spoken() -> str:
    """The language of the command that runs."""
    return _spoken.get()


def chosen_by_name() -> str | None:
    """The same where somebody asked for it; None: the locale, or nothing, decided."""
    return spoken() if _by_name.get() or os.environ.get("CHIMES_LANG", "").strip() else None


def said(text: str) -> str:
    """One of our sentences in the language of the command; what people wrote stays as it is."""
    return in_language(text, spoken())


def said_of_help(text: str) -> str:
    """The same for docstrings and `help=`, which are in the catalogues as they are written."""
    whole = text if isinstance(text, Message) else Message(cleandoc(text), {})
    return said(whole) if whole else ""


@contextmanager
def speaking(arguments: Sequence[str]) -> Iterator[None]:
    """While a command runs. Its arguments are looked through before they are read, since that may
    fail, and the failure is to be understood."""
    domain, directory = gettext.textdomain(), gettext.bindtextdomain(_DOMAIN)
    given = _given.set(os.environ.get(_VARIABLE))
    language, by_name = _spoken.set(spoken()), _by_name.set(False)
    gettext.bindtextdomain(_DOMAIN, str(wording.LOCALE))
    gettext.textdomain(_DOMAIN)
    _speak(_guessed(arguments))
    try:
        yield
    finally:
        _give_back()
        gettext.textdomain(domain)
        gettext.bindtextdomain(_DOMAIN, directory)
        _spoken.reset(language)
        _by_name.reset(by_name)
        _given.reset(given)


@contextmanager
def environment_as_given() -> Iterator[None]:
    """While the server runs: what its tasks start is not to inherit our choice."""
    _give_back()
    try:
        yield
    finally:
        _speak(spoken())


def _give_back() -> None:
    os.environ.pop(_VARIABLE, None)
    if (given := _given.get()) is not None:
        os.environ[_VARIABLE] = given


def _speak(language: str) -> None:
    _spoken.set(language)
    os.environ[_VARIABLE] = language


def _guessed(arguments: Sequence[str]) -> str:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, each in reversed(list(enumerate(arguments[:end]))):
        option, equals, value = each.partition("=")
        if option == "--lang":
            told = value if equals else "".join(arguments[place + 1 : place + 2])
            if (found := known(told)) is not None:
                return found
    try:
        return of_environment(os.environ)
    except InvalidInput:
        return wording.ENGLISH


def _chosen(context: click.Context, option: click.Parameter, given: str | None) -> None:
    if given is not None:
        _speak(named(given))
        _by_name.set(True)
    elif not _by_name.get() and not isinstance(context.command, click.Group):
        # What the environment says is refused only now: help is shown in any case, and a flag
        # behind the name of the command would have won.
        of_environment(os.environ)


def language_option() -> click.Option:
    """`--lang`, of every command and every group."""
    return click.Option(
        ["--lang"],
        callback=_chosen,
        expose_value=False,
        is_eager=True,
        # CHIMES_LANG is looked at where the locale is.
        allow_from_autoenv=False,
        metavar="LANGUAGE",
        help="Of the words: en, th or zh; else as CHIMES_LANG or the locale says.",
    )
