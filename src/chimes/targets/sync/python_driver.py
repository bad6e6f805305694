"""Driver `python`: calls a user function inside the child process of a task.

Rarely needed modules are imported where they are used, since a process may start every second.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Awaitable, Callable
from types import FrameType, ModuleType

from chimes.i18n import _
from chimes.targets.sync.config import Section, read_python
from chimes.targets.sync.wire import Request
from chimes.targets.sync.worker_link import DriverFailure, Stopped, WorkerLink

Function = Callable[[str, str, dict[str, object], object], object]


def synchronise(request: Request, link: WorkerLink) -> None:
    """Stores the return value of the function as the new state, unless it is None."""
    function = function_at(read_python(Section(request.config, "config")).callable)
    given = (request.source, request.collection, dict(request.config), request.checkpoint)
    signal.signal(signal.SIGTERM, _stop)
    try:
        returned = function(*given)
        if isinstance(returned, Awaitable):
            import asyncio

            returned = asyncio.run(_await_result(returned))
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise DriverFailure(
                "exited", _("the function exited with {code!r}", code=ended.code)
            ) from ended
        return
    if returned is not None:
        link.save_checkpoint(returned)


def function_at(path: str) -> Function:
    """Raises DriverFailure that names the wrong part of `module:function`, or the exception of the
    import."""
    module_name, _unused, attribute = path.partition(":")
    module = _import_module(module_name)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            from chimes.triggers.values import suggest_name

            hint = suggest_name(part, _public_names(found))
            missing = _("{place} has no {name!r}", place=module_name, name=attribute)
            raise DriverFailure(
                "bad_callable",
                _("{message}; {hint}", message=missing, hint=hint) if hint else missing,
            )
        found = getattr(found, part)
    if not callable(found):
        raise DriverFailure("bad_callable", _("{path} is not callable", path=path))
    return found


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing module that this module imports is an error of user code: raised unchanged.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise DriverFailure(
            "bad_callable",
            _(
                "module {name!r} was not found beside the file or on the Python path",
                name=error.name,
            ),
        ) from None


def _public_names(value: object) -> list[str]:
    return [name for name in getattr(value, "__dict__", {}) if not name.startswith("_")]


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(_("canceled"))


async def _await_result(work: Awaitable[object]) -> object:
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
