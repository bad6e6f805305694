from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolates the tests from the settings of the machine."""
    for name in list(os.environ):
        if name.startswith("CHIMES_") and not name.startswith("CHIMES_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
