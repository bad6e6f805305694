"""Vendored files are unmodified."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest

import chimes.web.dashboard

SHIPPED = Path(chimes.web.dashboard.__file__).parent / "static" / "vendor"
FOR_TESTS = Path(__file__).parents[2] / "browser" / "vendor"


@pytest.mark.parametrize("folder", [SHIPPED, FOR_TESTS], ids=["shipped", "for tests"])
def test_vendored_files_are_listed_with_version_sum_and_licence(folder: Path) -> None:
    listed = {"VENDOR.toml"}
    for name, package in tomllib.loads((folder / "VENDOR.toml").read_text()).items():
        assert package["version"], name
        assert package["licence"], name
        assert (folder / package["licence_file"]).stat().st_size > 200, name
        listed.add(package["licence_file"])
        for file, about in package["files"].items():
            found = hashlib.sha256((folder / file).read_bytes()).hexdigest()
            assert found == about["sha256"], file
            listed.add(file)
    assert {path.name for path in folder.iterdir()} == listed
