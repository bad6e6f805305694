"""Compiles the package and its tests once, before the workers of a session start.

Otherwise each worker compiles all of it at the same time: pytest rewrites the asserts of a test
file when it imports the file, which takes ten seconds of a core for the whole suite.
"""

from __future__ import annotations

import compileall
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).parents[1]

_config: pytest.Config


def compile_all(config: pytest.Config) -> None:
    """Compiles what is not compiled yet."""
    global _config
    if sys.dont_write_bytecode:
        return
    _config = config
    files = sorted((ROOT / "tests").rglob("*.py"))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        package = pool.submit(compileall.compile_dir, ROOT / "src", quiet=2)
        tests = pool.map(_compile, files, chunksize=8)
        # A file that cannot be compiled raises the error when it is imported.
        package.result()
        list(tests)


def _compile(file: Path) -> None:
    if not is_rewritten(file):
        compileall.compile_file(file, quiet=2)
        return
    target = compiled(file)
    try:
        if rewrite._read_pyc(file, target) is None:
            source_hash, code = rewrite._rewrite_test(file, _config)
            target.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(_config.stash[rewrite.assertstate_key], code, source_hash, target)
    except (OSError, SyntaxError):
        pass  # the import of the file raises the same error


def is_rewritten(file: Path) -> bool:
    return file.name.startswith("test_") or file.name == "conftest.py"


def compiled(file: Path) -> Path:
    """Path where pytest looks for the bytecode of a test file with rewritten asserts."""
    return rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
