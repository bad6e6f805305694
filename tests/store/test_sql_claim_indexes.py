"""A database of schema 3 gets the indexes of claims of schema 4 and the labels of runs of schema 5,
on each SQL database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import inspect

from chimes.errors import SchemaMismatch
from chimes.store.sql import SqlStore, open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.store.sql.migrations import HEAD
from tests.builders import LEASE, NOW, a_node, a_run, claim_request
from tests.servers import MARIADB, POSTGRES, shared


def make_schema_3(tx: Tx) -> None:
    """As the former version left it."""
    if tx.dialect.name == "postgresql":
        tx.connection.exec_driver_sql("DROP INDEX claims_to_cancel")
        tx.connection.exec_driver_sql("CREATE INDEX claims_by_node ON claims (node)")
    tx.connection.exec_driver_sql("ALTER TABLE definitions DROP COLUMN labels")
    tx.connection.exec_driver_sql("ALTER TABLE definitions DROP COLUMN cause")
    versions = "alembic_version" if tx.dialect.name == "sqlite" else "chimes_version"
    tx.connection.exec_driver_sql(f"UPDATE {versions} SET version_num = '3'")


def indexes(tx: Tx) -> set[str | None]:
    return {each["name"] for each in inspect(tx.connection).get_indexes("claims")}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_claims_get_the_indexes_of_a_new_database(kind: str, tmp_path: Path) -> None:
    server = {"postgresql": POSTGRES, "mariadb": MARIADB}.get(kind)
    url = shared(server).new_database() if server else ""

    def make() -> SqlStore:
        if kind == "sqlite":
            return open_sqlite(tmp_path / "chimes.db")
        return open_postgres(url) if kind == "postgresql" else open_mariadb(url)

    store = make()
    await store.open()
    new = await store._database.read(indexes)
    await store._database.write(make_schema_3)
    await store.close()
    if server:
        store = make()
        with pytest.raises(SchemaMismatch):
            await store.open()
        await store.close()
    for _ in range(2):
        migrating = make()
        assert (await migrating.migrate())[1] == HEAD
        await migrating.close()
    store = make()
    await store.open()
    node = await store.join(a_node(), LEASE)
    run = a_run(available_at=NOW - timedelta(days=3650), labels={"team": "web"})
    await store.add_runs([run])
    (claimed,) = await store.claim(claim_request(node.id, 1))
    assert (claimed.id, claimed.definition.labels) == (run.id, {"team": "web"})
    assert await store._database.read(indexes) == new
    assert ("claims_by_node" in new) == (kind != "postgresql")
    node = await store.join(a_node(), LEASE)
    run = a_run(available_at=NOW - timedelta(days=3650))
    await store.add_runs([run])
    assert [each.id for each in await store.claim(claim_request(node.id, 1))] == [run.id]
    await store.cancel_run(run.id, "no longer needed")
    beat = await store.heartbeat(node.id, LEASE, clock=NOW)
    assert beat.cancel == (run.id,)
    await store.close()
    if server:
        shared(server).drop_database(url)
