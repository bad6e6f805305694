"""Finds an application in a child process by `module:name` or `/path/of/a/script.py:name`."""

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

#: A script is imported under this name, so that its `if __name__ == "__main__"` block does not
#: run again.
SCRIPT_NAME = "__chimes_main__"

#: Set in the child process of a task before it imports the application.
_inside_task = False


def find_app_path(registry: Registry) -> str:
    """Path of the global variable that holds the registry, or the application that has it as
    `registry`. Empty if there is none."""
    found = ""
    likely = [getattr(task.function, "__module__", "") for task in registry]
    for module_name in dict.fromkeys((*likely, *sys.modules)):
        module = sys.modules.get(module_name)
        name = _find_global_name(module, registry) if isinstance(module, ModuleType) else None
        if module is None or name is None:
            continue
        if module.__name__ != "__main__":
            return f"{module.__name__}:{name}"
        found = _script_app_path(module, name)
    return found


def load_registry(path: str) -> Registry:
    """Imports the registry at a path of `find_app_path`. Raises `ConfigError`, or the exception of
    the import."""
    module_name, _unused, name = path.rpartition(":")
    if not module_name or not name:
        raise ConfigError(_("expected an application as module:name, got {path!r}", path=path))
    module = (
        _import_script(Path(module_name))
        if module_name.endswith(".py")
        else importlib.import_module(module_name)
    )
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(_("{place} has no {name!r}", place=module_name, name=name))
        found = getattr(found, part)
    if isinstance(found, Registry):
        return found
    registry = getattr(found, "registry", None)
    if not isinstance(registry, Registry):
        raise ConfigError(_("{path} is not an application: it has no task registry", path=path))
    return registry


def mark_inside_task() -> None:
    global _inside_task
    _inside_task = True


def ensure_not_inside_task() -> None:
    """Raises ConfigError in the child process of a task. A script that starts a node on import
    would otherwise start one for every run of an isolated task."""
    if _inside_task:
        raise ConfigError(
            _(
                "a node is started while a task's process imports the application: move the call "
                'that starts it under `if __name__ == "__main__":`'
            )
        )


def _find_global_name(module: ModuleType, registry: Registry) -> str | None:
    for name, value in list(vars(module).items()):
        if isinstance(value, ModuleType):
            continue
        if value is registry or inspect.getattr_static(value, "registry", None) is registry:
            return name
    return None


def _script_app_path(module: ModuleType, name: str) -> str:
    spec = module.__spec__
    if spec is not None:
        # `python -m package.module`
        return f"{spec.name}:{name}"
    file = getattr(module, "__file__", None)
    return "" if file is None else f"{Path(file).resolve()}:{name}"


def _import_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT_NAME, path)
    if spec is None or spec.loader is None:
        raise ConfigError(_("{path} cannot be imported", path=path))
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and others look up the module of a class by its name.
    sys.modules[SCRIPT_NAME] = module
    spec.loader.exec_module(module)
    return module
