"""An application with a task that does nothing."""

from __future__ import annotations

from chimes import Chimes

app = Chimes()


@app.task(name="noop")
async def noop() -> None: ...
