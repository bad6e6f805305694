"""How a process finds an application again: `module:name`, or `/path/of/a/script.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.targets.python.registry import Registry

#: A script is imported under this name, so that what stands under `if __name__ == "__main__"`
#: is not done again.
SCRIPT_NAME = "__chimes_main__"

#: Set in the process of a task, before the application is imported.
_inside_task = False


def path_of(registry: Registry) -> str:
    """Where the registry, or the application that has it as its `registry`, is a global name.
    Empty if it is nowhere."""
    found = ""
    likely = [getattr(task.function, "__module__", "") for task in registry]
    for place in dict.fromkeys((*likely, *sys.modules)):
        module = sys.modules.get(place)
        name = _name_in(module, registry) if isinstance(module, ModuleType) else None
        if module is None or name is None:
            continue
        if module.__name__ != "__main__":
            return f"{module.__name__}:{name}"
        found = _path_of_script(module, name)
    return found


def registry_at(path: str) -> Registry:
    """Imports what `path_of` names. Raises `ConfigError`, or what the import raises."""
    place, _unused, name = path.rpartition(":")
    if not place or not name:
        raise ConfigError(_("an application is named as module:name, not {path!r}", path=path))
    module = _script(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(_("{place} has no {name!r}", place=place, name=name))
        found = getattr(found, part)
    if isinstance(found, Registry):
        return found
    registry = getattr(found, "registry", None)
    if not isinstance(registry, Registry):
        raise ConfigError(_("{path} is no application: it has no registry of tasks", path=path))
    return registry


def mark_inside_task() -> None:
    global _inside_task
    _inside_task = True


def refuse_inside_task() -> None:
    """A script that starts a node whenever it is imported would start one for every run of an
    isolated task, and those nodes further ones."""
    if _inside_task:
        raise ConfigError(
            _(
                "a node is started while a task's process imports the application: put what starts "
                'it under `if __name__ == "__main__":`'
            )
        )


def _name_in(module: ModuleType, registry: Registry) -> str | None:
    for name, value in list(vars(module).items()):
        if isinstance(value, ModuleType):
            continue
        if value is registry or inspect.getattr_static(value, "registry", None) is registry:
            return name
    return None


def _path_of_script(module: ModuleType, name: str) -> str:
    spec = module.__spec__
    if spec is not None:
        # `python -m package.module`
        return f"{spec.name}:{name}"
    file = getattr(module, "__file__", None)
    return "" if file is None else f"{Path(file).resolve()}:{name}"


def _script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT_NAME, path)
    if spec is None or spec.loader is None:
        raise ConfigError(_("{path} cannot be imported", path=path))
    module = importlib.util.module_from_spec(spec)
    # Found by its name by whatever looks for the module of a class, dataclasses among others.
    sys.modules[SCRIPT_NAME] = module
    spec.loader.exec_module(module)
    return module
