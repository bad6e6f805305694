"""The wheel: its contents, the size of what it needs, and that it runs in a clean environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_supply_chain import normalised

ROOT = Path(__file__).parents[1]
UV = str(Path(sys.executable).with_name("uv"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Of an installation without extras, Chimes included.
MAX_PACKAGES, MAX_BYTES = 45, 90_000_000
NOT_INSTALLED = (".po", ".pot", ".pyc")


@cache
def core() -> dict[str, Distribution]:
    """The packages that an installation without extras has, by name."""
    found: dict[str, Distribution] = {}
    wanted = [Requirement("chimes")]
    while wanted:
        requirement = wanted.pop()
        name = normalised(requirement.name)
        if name in found:
            continue
        found[name] = distribution(name)
        for text in found[name].requires or ():
            each = Requirement(text)
            extras = ("", *requirement.extras)
            if each.marker is None or any(each.marker.evaluate({"extra": x}) for x in extras):
                wanted.append(each)
    return found


def test_the_core_is_small() -> None:
    assert len(core()) <= MAX_PACKAGES, sorted(core())
    sizes = {
        name: sum(
            Path(str(each.locate_file(file))).stat().st_size
            for file in each.files or ()
            if file.suffix not in NOT_INSTALLED and Path(str(each.locate_file(file))).exists()
        )
        for name, each in core().items()
        if name != "chimes"
    }
    sizes["chimes"] = sum(
        path.stat().st_size
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and path.suffix not in NOT_INSTALLED
    )
    assert sizes["sqlalchemy"] > 10_000_000, "the files are not listed"
    assert sum(sizes.values()) <= MAX_BYTES, sorted(sizes.items(), key=lambda x: -x[1])[:9]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source distribution, built as `make package` does."""
    folder = tmp_path_factory.mktemp("dist")
    command = re.search(r"^\t@(\$\(BIN\)/uv build.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert command is not None
    words = command[1].replace("$(BIN)/uv", UV).replace("$(BIN)/python", sys.executable).split()
    words[words.index("--out-dir") + 1] = str(folder)
    subprocess.run(words, cwd=ROOT, check=True, timeout=300)
    return folder


def test_the_wheel_has_all_files_of_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name == f"chimes-{PROJECT['version']}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"chimes-{PROJECT['version']}.dist-info/METADATA").decode()
    tracked = subprocess.run(
        ["git", "ls-files", "src/chimes"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    expected = {path.removeprefix("src/") for path in tracked if not path.endswith((".po", ".pot"))}
    info = f"chimes-{PROJECT['version']}.dist-info"
    assert {name for name in names if not name.startswith(info)} == expected
    for name in (
        "chimes/py.typed",
        "chimes/web/dashboard/templates/base.html",
        "chimes/web/dashboard/static/app.css",
        "chimes/locale/th/LC_MESSAGES/chimes.mo",
        f"{info}/licenses/LICENSE",
        f"{info}/licenses/src/chimes/web/dashboard/static/vendor/htmx.LICENSE",
    ):
        assert name in names, name
    assert "License-Expression: Apache-2.0" in metadata
    assert set(re.findall(r"^Provides-Extra: (.+)$", metadata, re.M)) == set(
        PROJECT["optional-dependencies"]
    )
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as sources:
        inside = {name.partition("/")[2] for name in sources.getnames()}
    assert {"pyproject.toml", "LICENSE", "tests/test_package.py", "src/chimes/py.typed"} <= inside


def interpreters() -> Iterator[str]:
    """Every supported Python of this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(11, 15):
        found = [*pyenv.glob(f"3.{minor}.*/bin/python")]
        found += [Path(path)] if (path := shutil.which(f"python3.{minor}")) else []
        if found:
            yield str(found[0])


VARIANTS = [
    ("pinned", sys.executable),
    ("lowest", sys.executable),
    *(("latest", each) for each in interpreters()),
]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("versions", "python"), VARIANTS, ids=[f"{v} {Path(p).parts[-3]}" for v, p in VARIANTS]
)
def test_the_wheel_runs_in_a_clean_environment(
    dist: Path, tmp_path: Path, versions: str, python: str
) -> None:
    """`pip install chimes && chimes serve`, without extras."""
    venv = tmp_path / "venv"
    (wheel,) = dist.glob("*.whl")
    subprocess.run([UV, "venv", "-q", "--python", python, str(venv)], check=True, timeout=120)
    options: list[str] = []
    if versions == "pinned":
        options = ["--constraint", str(ROOT / "requirements.lock")]
    if versions == "lowest":
        options = ["--constraint", str(lowest(tmp_path, python))]
    install = [UV, "pip", "install", "-q", "--python", str(venv / "bin/python"), *options]
    subprocess.run([*install, str(wheel)], check=True, timeout=600)
    if versions == "lowest":
        check_floors(venv)
    if versions == "pinned":
        packages = [*venv.glob("lib/python*/site-packages/*.dist-info")]
        assert len(packages) <= MAX_PACKAGES
    chimes = str(venv / "bin/chimes")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CHIMES_PORT": "0"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [chimes, *words], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "serve" in run("--help")
    assert PROJECT["version"] in run("version")
    assert run("next", "0 9 * * *", "--tz", "Asia/Bangkok")
    server = subprocess.Popen(
        [chimes, "serve", "--data-dir", str(tmp_path / "data")],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        shown = ""
        while (found := re.search(r"http://127\.0\.0\.1:\d+", shown)) is None:
            line = server.stderr.readline()
            assert line, shown
            shown += line
        for path, text in (("/ready", "ready"), ("/ui/", "Chimes"), ("/api/v1/schedules", "items")):
            with urllib.request.urlopen(found[0] + path, timeout=60) as answer:
                assert text in answer.read().decode(), path
        environment["CHIMES_URL"] = found[0]
        run("add", "every day 09:00", "--http", "http://127.0.0.1:9/", "--name", "daily", "--yes")
        assert "daily" in run("ls")
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert server.returncode == 0


def lowest(folder: Path, python: str) -> Path:
    """The minimum versions that pyproject.toml allows, with all extras."""
    found = folder / "lowest.txt"
    subprocess.run(
        [
            *(UV, "pip", "compile", "-q", "--resolution", "lowest-direct", "--all-extras"),
            *("--python", python, "-o", str(found), "pyproject.toml"),
        ],
        cwd=ROOT,
        check=True,
        timeout=300,
    )
    return found


def check_floors(venv: Path) -> None:
    """The installed versions are the minimum ones, so that these were tested."""
    answer = subprocess.run(
        [UV, "pip", "freeze", "--python", str(venv / "bin/python")],
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (line.partition("==") for line in answer.stdout.splitlines() if "==" in line)
    installed = {normalised(name): version for name, _equals, version in pairs}
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        floor = next(each.version for each in requirement.specifier if each.operator == ">=")
        version = installed[normalised(requirement.name)]
        assert version == floor or version.startswith(f"{floor}."), requirement.name
