"""Signal handling: graceful stop, and reload on SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator


@contextlib.contextmanager
def stop_signals(handler: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    names = (signal.SIGINT, signal.SIGTERM)
    try:
        for name in names:
            loop.add_signal_handler(name, handler)
    except NotImplementedError:  # Windows
        for name in names:
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(handler))
        yield
        return
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)


@contextlib.contextmanager
def reload_signal(work: Callable[[], Coroutine[object, object, None]]) -> Iterator[None]:
    """Runs `work` on each SIGHUP; cancels what still runs at the end."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    loop = asyncio.get_running_loop()
    started: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = loop.create_task(work())
        started.add(task)
        task.add_done_callback(started.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in started:
            task.cancel()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def stop_gracefully(stop: Callable[[], Awaitable[None]], signaled: asyncio.Event) -> None:
    """Calls `stop`, and again when a second signal arrives meanwhile."""
    stopping = asyncio.ensure_future(stop())
    again = asyncio.create_task(signaled.wait())
    await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not stopping.done():
        await stop()
    await stopping
