"""Driver `python`: calls a function of the operator's; inside the process of a task. What few
tasks need is imported where they need it: there may be a process every second."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Awaitable, Callable
from types import FrameType, ModuleType

from chimes.i18n import _
from chimes.targets.sync.config import Section, read_python
from chimes.targets.sync.wire import Request
from chimes.targets.sync.worker_link import DriverFailure, Stopped, Tether

Function = Callable[[str, str, dict[str, object], object], object]


def synchronise(request: Request, tether: Tether) -> None:
    """What the function returns, unless it is None, is the new state."""
    function = function_at(read_python(Section(request.config, "config")).callable)
    given = (request.source, request.collection, dict(request.config), request.kept)
    signal.signal(signal.SIGTERM, _stop)
    try:
        returned = function(*given)
        if isinstance(returned, Awaitable):
            import asyncio

            returned = asyncio.run(_awaited(returned))
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise DriverFailure(
                "exited", _("the function exited with {code!r}", code=ended.code)
            ) from ended
        return
    if returned is not None:
        tether.keep(returned)


def function_at(path: str) -> Function:
    """Raises DriverFailure that says which part of `module:function` is wrong, or what the import
    raises."""
    module_name, _unused, attribute = path.partition(":")
    module = _module(module_name)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            from chimes.triggers.json_values import suggest_name

            hint = suggest_name(part, _public(found))
            missing = _("{place} has no {name!r}", place=module_name, name=attribute)
            raise DriverFailure(
                "bad_callable",
                _("{message}; {hint}", message=missing, hint=hint) if hint else missing,
            )
        found = getattr(found, part)
    if not callable(found):
        raise DriverFailure(
            "bad_callable", _("{path} is no function: it cannot be called", path=path)
        )
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Not found is our word; a module that it imports and that is missing is the module's.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise DriverFailure(
            "bad_callable",
            _(
                "there is no module {name!r} beside the file or in the Python path",
                name=error.name,
            ),
        ) from None


def _public(value: object) -> list[str]:
    return [name for name in getattr(value, "__dict__", {}) if not name.startswith("_")]


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(_("told to stop"))


async def _awaited(work: Awaitable[object]) -> object:
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
