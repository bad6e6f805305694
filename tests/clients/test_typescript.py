"""The TypeScript client: its document and types are those of the server, and it works with one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Start
from tests.system.node import Node
from tests.system.receiver import Receiver
from tests.system.test_receiver_examples import EXAMPLES, Served, check_one_effect, serve

__all__ = ["serve"]
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
REGENERATE = "run `make client` and commit what it changes"


def _tool(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_document_of_the_client_is_that_of_the_server() -> None:
    kept = (PACKAGE / "openapi.json").read_text(encoding="utf-8")
    assert kept == _tool("openapi").document(), REGENERATE


def _npm(directory: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        ["npm", *words],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built copy, with the packages of package-lock.json."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    copy = tmp_path_factory.mktemp("npm") / "typescript"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    _npm(copy, "ci", "--no-audit", "--no-fund")
    _npm(copy, "run", "build")
    return copy


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(f"sqlite:///{tmp_path}/chimes.db", tmp_path / "home")
    yield node.start()
    node.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chimes.db'}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def start_node(store: str, **environment: str) -> Node:
        nodes.append(Node(store, tmp_path / "home", **environment))
        return nodes[-1].start()

    yield start_node
    for node in nodes:
        node.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_types_are_those_of_the_document(package: Path) -> None:
    _npm(package, "run", "generate")
    generated = (package / "src" / "schema.ts").read_text(encoding="utf-8")
    assert generated == (PACKAGE / "src" / "schema.ts").read_text(encoding="utf-8"), REGENERATE


@pytest.mark.long
@pytest.mark.timeout(600)
def test_client_and_receiver_work(
    package: Path, node: Node, receiver: Receiver, postgres_url: str
) -> None:
    """Creates, lists, runs and reads logs on a real server."""
    output = _npm(
        *(package, "test"),
        CHIMES_URL=f"http://127.0.0.1:{node.port}",
        CHIMES_HOOK=receiver.url("/hook"),
        POSTGRES_URL=postgres_url,
    )
    assert "# skipped 0" in output, output
    assert receiver.calls("/hook")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_blocks_of_guide_and_readme_have_the_right_types(package: Path) -> None:
    guides = (ROOT / "docs" / "guides" / "receive-webhooks.md", PACKAGE / "README.md")
    blocks = [
        block
        for guide in guides
        for block in re.findall(r"```ts\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert len(blocks) >= 3
    for number, block in enumerate(blocks):
        (package / "test" / f"block{number}.ts").write_text(block, encoding="utf-8")
    _npm(package, "exec", "--", "tsc", "-p", "test", "--noEmit")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_express_receiver_performs_the_effect_once(
    package: Path, serve: Any, sqlite: str, start: Start, tmp_path: Path
) -> None:
    example = package / "with_express.mjs"
    shutil.copy(EXAMPLES / example.name, example)
    served: Served = serve("node", str(example), "{port}")
    lines = tmp_path / "receiver" / "orders.txt"
    check_one_effect(
        served, sqlite, start, lambda: [each.split() for each in lines.read_text().splitlines()]
    )
