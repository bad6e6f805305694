"""`--lang`: the language of the words; CHIMES_LANG or the locale unless told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from chimes.language.choosing import named, of_environment

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def _chosen(context: click.Context, option: click.Parameter, given: str | None) -> str:
    return of_environment(os.environ) if given is None else named(given)


def language_option(function: Decorated) -> Decorated:
    """The command gets `lang`, one of ours."""
    return click.option(
        "--lang",
        callback=_chosen,
        metavar="LANGUAGE",
        help="Of the words: en, th or zh; else as CHIMES_LANG or the locale says.",
    )(function)
