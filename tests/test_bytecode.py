from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import bytecode


def test_pytest_uses_precompiled_bytecode(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytecode, "_config", pytestconfig, raising=False)
    file = tmp_path / "test_one.py"
    file.write_text("def test_one():\n    assert 1 + 1 == 2\n")
    bytecode._compile(file)
    target = bytecode.compiled(file)
    before = target.stat().st_mtime_ns
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [target.name] == [each.name for each in target.parent.iterdir()]
    assert target.stat().st_mtime_ns == before, "pytest compiled it again"


def test_file_with_a_syntax_error_is_not_compiled(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytecode, "_config", pytestconfig, raising=False)
    file = tmp_path / "test_one.py"
    file.write_text("def test_one(:\n")
    bytecode._compile(file)
    assert not bytecode.compiled(file).exists()
