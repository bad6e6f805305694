from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.node import Node
from tests.system.receiver import Receiver

Start = Callable[..., Node]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture(params=["sqlite", "json"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    paths = {"sqlite": tmp_path / "chimes.db", "json": tmp_path / "data"}
    return f"{request.param}:///{paths[request.param]}"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chimes.db'}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes and ends those that are left, by their pid."""
    nodes: list[Node] = []

    def start_node(store: str, **environment: str) -> Node:
        node = Node(store, tmp_path / "home", **environment)
        nodes.append(node)
        return node.start()

    yield start_node
    for node in nodes:
        node.close()
