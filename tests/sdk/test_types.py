"""The types of the SDK accept the sample application and reject its wrong calls.

mypy checks `public_types.py` with `make check`; pyright, which editors use, checks it here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).with_name("public_types.py")
#: A comment that suppresses nothing is an error: a wrong call would be accepted.
RULES = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "reportUnnecessaryTypeIgnoreComment": "error",
    # The sample states expected types with variables that it does not use.
    "reportUnusedVariable": "none",
}


def check(folder: Path, source: str) -> list[tuple[int, str]]:
    """Line and rule of each error that pyright reports."""
    (folder / "sample.py").write_text(source, encoding="utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps(RULES), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return [
        (each["range"]["start"]["line"] + 1, f"{each.get('rule')}: {each['message']}")
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def test_pyright_accepts_right_calls_and_rejects_wrong_ones(tmp_path: Path) -> None:
    source = SAMPLE.read_text(encoding="utf-8")
    assert check(tmp_path, source) == []
    lines = source.splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "  # type: ignore[" in line}
    bare = [line.partition("  # type: ignore[")[0] for line in lines]
    assert len(marked) > 15
    assert {line for line, _rule in check(tmp_path, "\n".join(bare))} == marked
