"""`serve --demo` and `demo remove`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli, Server


def website_example_id(listed: str) -> str:
    """The id of the example that ends immediately."""
    found = json.loads(listed)
    rows = found["items"] if isinstance(found, dict) else found
    return next(str(each["id"]) for each in rows if "website" in each["name"])


def test_serve_demo_loads_the_examples_and_demo_remove_deletes_them(
    cli: Cli, tmp_path: Path
) -> None:
    """Works while the node is running, on a shared store."""
    url = f"sqlite:///{tmp_path}/demo.db"
    server = Server(tmp_path, "--demo", "--store", url)
    try:
        found = cli("ls", "--json", CHIMES_URL=server.url)
        assert found.out.count('"Demo: ') == 10
        ran = cli("run", website_example_id(found.out), "--wait", CHIMES_URL=server.url)
        assert ran.code == 0, ran.err
        # Of the server, not of the store that is configured here.
        gone = cli("demo", "remove", CHIMES_URL=server.url, CHIMES_STORE="sqlite:///other.db")
        assert gone.code == 0, gone.err
        assert "10 example schedules were removed" in gone.err
        assert server.url in gone.err
        assert not (tmp_path / "other.db").exists()
        assert cli("ls", "-q", CHIMES_URL=server.url).out == ""
    finally:
        assert server.stop() == 0
    again = cli("demo", "remove", "--store", url)
    assert (again.code, f"There are no example schedules in {url}." in again.err) == (0, True)
