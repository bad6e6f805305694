"""The Python blocks of guides, run in their order as one program for each."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import chimes
from chimes import Chimes
from chimes.sdk.tasks import AppTask, TaskOptions

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
GUIDE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
WAITS = (ROOT / "docs" / "guides" / "waiting-flows.md").read_text(encoding="utf-8")


async def test_code_blocks_run() -> None:
    for guide, least in ((GUIDE, 7), (WAITS, 2)):
        blocks = BLOCK.findall(guide)
        assert len(blocks) >= least
        names: dict[str, object] = {"__name__": "guide"}
        for block in blocks:
            code = compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            ended = eval(code, names)
            if inspect.isawaitable(ended):
                await ended


def test_every_option_is_in_the_guide() -> None:
    schedule = set(inspect.signature(Chimes.schedule).parameters) - {"self", "name", "trigger"}
    application = set(inspect.signature(Chimes).parameters) - {"clock"}
    enqueue = set(inspect.signature(AppTask.options).parameters) - {"self"}
    step = set(inspect.signature(chimes.Flow.step).parameters) - {"self"}
    for name in schedule | application | enqueue | step | set(TaskOptions.__annotations__):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|`{name}`", GUIDE), name


def test_every_method_is_in_the_guide() -> None:
    verbs = {
        name
        for name in dir(Chimes)
        if not name.startswith("_") and inspect.iscoroutinefunction(getattr(Chimes, name))
    }
    for name in verbs - {"open", "close"}:
        assert name in GUIDE, name
