"""Documents name existing paths; the tree contains no forbidden content."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import chimes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "chimes"
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
_PATH = re.compile(r"`((?:src|tests|docs|bench|tools|deploy|examples)/[\w./-]+)`")
_BELOW_PACKAGE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py|[a-z_]+\.py|(?:[a-z_]+/)+)`")
_LINK = re.compile(r"\]\(([\w./-]+)\)")


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_named_in_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(_PATH.findall(text)) | set(_LINK.findall(text))
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_architecture_names_real_modules() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(_BELOW_PACKAGE.findall(text))
    assert len(named) > 20
    places = (PACKAGE, ROOT, PACKAGE / "store", PACKAGE / "web", PACKAGE / "targets",
              PACKAGE / "engine")  # fmt: skip
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert not missing


def test_code_map_lists_exactly_the_existing_modules() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("## Code map")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    present = {
        path.name
        for path in PACKAGE.iterdir()
        if not path.name.startswith(("_", ".")) and (path.is_dir() or path.suffix == ".py")
    }
    assert listed == present


def test_lock_files_contain_no_urls() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock", "requirements-tap.lock"):
        for line in (ROOT / lock).read_text().splitlines():
            assert re.fullmatch(
                r"[a-z0-9._-]+==\S+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line
            ), line
    assert not (ROOT / "uv.lock").exists()


def test_no_file_names_a_package_registry() -> None:
    hosts = [".".join(parts) for parts in (("pypi", "org"), ("npmjs", "org"), ("deb", "debian"))]
    for path in tracked():
        if path.suffix in (".png", ".ico"):
            continue
        text = path.read_text(errors="replace")
        for host in hosts:
            assert host not in text, f"{path} names {host}"


def test_source_uses_no_dangerous_functions() -> None:
    patterns = (
        r"\bpickle\b",
        r"\beval\(",
        r"\bexec\(",
        r"shell=True",
        r"yaml\.(unsafe_|full_)load",
        r"yaml\.(Unsafe|Full)?Loader\b",
    )
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text())
        for pattern in patterns:
            assert not re.search(pattern, code), f"{pattern} in {path}"


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == chimes.__version__ == version("chimes")


def test_every_dependency_has_a_minimum_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for requirement in project["project"]["dependencies"] + project["dependency-groups"]["dev"]:
        assert ">=" in requirement, requirement
