"""Loads the application that `module:name` refers to."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from chimes.errors import ConfigError
from chimes.i18n import Message, _
from chimes.triggers.values import suggest_name

if TYPE_CHECKING:
    from chimes.sdk.app import Chimes


FORM = _("module:name, such as shop.tasks:app")


def load_app(path: str, *, setting: str = "app") -> Chimes:
    """Imports the module, with the working directory first on the path, as `python -m` does.
    ConfigError says which part of the path is wrong, after the name of the setting that has it;
    errors of the module itself are raised."""
    from chimes.sdk.app import Chimes

    module_name, separator, attribute = path.partition(":")
    if not separator or not module_name or not attribute or module_name.startswith("."):
        raise ConfigError(
            _("{setting}: expected {form}, got {path!r}", setting=setting, form=FORM, path=path),
            key="app",
        )
    found: object = _import(module_name, path, setting)
    module = found
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_attribute(module, attribute, part, found, setting)
        found = getattr(found, part)
    if not isinstance(found, Chimes):
        raise ConfigError(
            _with_apps(
                _(
                    "{setting}: {path} is {type}, not a Chimes application",
                    setting=setting,
                    path=path,
                    type=_article(type(found).__name__),
                ),
                module,
            ),
            key="app",
        )
    return found


def _import(name: str, path: str, setting: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing module that the application imports is an error of the application.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                _(
                    "{setting}: {name} cannot be imported: {error}",
                    setting=setting,
                    name=name,
                    error=str(error),
                ),
                key="app",
            ) from error
        hint = suggest_name(name, (file.stem for file in Path.cwd().glob("*.py")))
        message = _(
            "{setting}: no module {name!r} (searched for {path} in {here} and the Python path)",
            setting=setting,
            name=error.name,
            path=path,
            here=here,
        )
        raise ConfigError(
            _("{message}; {hint}", message=message, hint=hint) if hint else message, key="app"
        ) from None


def _no_attribute(
    module: object, attribute: str, part: str, found: object, setting: str
) -> ConfigError:
    attributes = vars(found) if hasattr(found, "__dict__") else ()
    known = [each for each in attributes if not each.startswith("_")]
    hint = suggest_name(part, known)
    where = getattr(module, "__name__", "?")
    message = _(
        "{setting}: {module} has no {name!r}", setting=setting, module=where, name=attribute
    )
    return ConfigError(
        _("{message}; {hint}", message=message, hint=hint) if hint else _with_apps(message, module),
        key="app",
    )


def _with_apps(message: Message, module: object) -> Message:
    from chimes.sdk.app import Chimes

    apps = [name for name, value in vars(module).items() if isinstance(value, Chimes)]
    if not apps:
        return message
    return _("{message}; available: {names}", message=message, names=", ".join(sorted(apps)))


def _article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
