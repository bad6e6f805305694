from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import KINDS, shared
from tests.servers.copies import copied_database
from tests.system.link import Link
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


@pytest.fixture(params=["postgres", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A separate, set-up database on the session's server."""
    server = shared(KINDS[request.param])
    url = copied_database() if request.param == "postgres" else server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture(params=["postgres", "mariadb"])
def empty_server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without the schema of Chimes."""
    server = shared(KINDS[request.param])
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def link() -> Iterator[Callable[[str], Link]]:
    """Creates proxies to the server of a URL."""
    links: list[Link] = []

    def connect(url: str) -> Link:
        links.append(Link(url))
        return links[-1]

    yield connect
    for each in links:
        each.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chimes.db'}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes and ends the remaining ones by pid."""
    nodes: list[Node] = []

    def start_node(store: str, **environment: str) -> Node:
        node = Node(store, tmp_path / "home", **environment)
        nodes.append(node)
        return node.start()

    yield start_node
    for node in nodes:
        node.close()
