"""`add --sync`, against a real `serve` with a source in its file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chimes.client import Client
from chimes.errors import InvalidInput
from chimes.model.target import SyncTarget
from tests.cli.conftest import Cli, Server

SOURCE = """
def sync(source, collection, config, state):
    print(f"{source} {collection}", flush=True)
"""
FILE = {
    "sources": {
        "shop": {
            "driver": "python",
            "config": {"callable": "cli_source:sync"},
            "collections": [{"name": "orders"}, {"name": "clients", "priority": 100}],
        }
    }
}


@pytest.fixture(scope="module")
def sync_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sync-server")
    (directory / "cli_source.py").write_text(SOURCE)
    (directory / "chimes.yaml").write_text(json.dumps(FILE))
    started = Server(directory, "--config", "chimes.yaml")
    yield started
    assert started.stop() == 0


def test_sync_pair_is_scheduled_run_and_shown(cli: Cli, sync_server: Server) -> None:
    at = {"CHIMES_URL": sync_server.url}
    made = cli("add", "@yearly", "--sync", "shop/clients", "--yes", "--json", **at)
    assert made.code == 0, made.err
    shown = json.loads(made.out)
    assert (shown["name"], shown["priority"]) == ("sync shop/clients", 100)
    assert shown["target"] == {"kind": "sync", "source": "shop", "collection": "clients"}
    assert shown["policy"]["concurrency_key"] == "sync:shop#clients"
    assert "sync shop/clients" in cli("show", shown["id"], **at).out
    ran = cli("run", shown["id"], "--wait", "--json", **at)
    assert ran.code == 0, ran.err
    followed = cli("logs", shown["id"], "-f", **at)
    assert "shop clients" in followed.out
    filled = cli(
        *("backfill", shown["id"], "--from", "2020-01-01T00:00:00Z"),
        *("--to", "2021-06-01T00:00:00Z"),
        **at,
    )
    assert filled.code != 0
    assert "has no slots to backfill" in filled.err


def test_unknown_pair_is_rejected_with_a_hint(cli: Cli, sync_server: Server) -> None:
    at = {"CHIMES_URL": sync_server.url}
    for pair, message in (
        ("shop/order", "did you mean orders?"),
        ("shp/orders", "did you mean shop?"),
    ):
        made = cli("add", "@yearly", "--sync", pair, "--yes", **at)
        assert made.code != 0
        assert message in made.err
    busy = cli("add", "@yearly", "--sync", "shop/orders", "--overlap", "queue", "--yes", **at)
    assert busy.code != 0
    assert "one run of each pair at a time" in busy.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sync", "shop"), "SOURCE/COLLECTION, not 'shop'"),
        (("--sync", "/orders"), "SOURCE/COLLECTION, not '/orders'"),
        (("--sync", "shop/orders", "--task", "greet"), "--http URL"),
        (("--sync", "shop/orders", "--arg", "a=1"), "--arg cannot be used with --sync"),
    ],
)
def test_invalid_sync_options_are_rejected(
    cli: Cli, options: tuple[str, ...], message: str
) -> None:
    refused = cli("add", "@yearly", *options, "--dry-run")
    assert refused.code == 2
    assert message in refused.err


def test_sync_target_through_the_client(sync_server: Server) -> None:
    with Client(sync_server.url) as client:
        made = client.schedule("pair", "@yearly", "sync:shop/orders")
        assert (made.kind, made.target, made.input) == ("sync", "shop/orders", {})
        target = SyncTarget(source="shop", collection="orders")
        handle = client.enqueue(target)
        handle.result(timeout=30)
        run = handle.run()
        assert (run.kind, run.target) == ("sync", "shop/orders")
        with pytest.raises(InvalidInput, match="has no collection"):
            client.enqueue("sync:shop/nothing")
