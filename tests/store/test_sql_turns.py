"""A database of schema 1 gets the column by which owners take turns, on each SQL database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from chimes.errors import SchemaMismatch
from chimes.model.run import owner_number
from chimes.store.sql import SqlStore, open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.store.sql.migrations import HEAD
from tests.builders import ALICE, BOB, LEASE, NOW, a_node, a_run, claim_request
from tests.servers import MARIADB, POSTGRES, shared

DAY = timedelta(days=1)
ROWS = "SELECT run_id, owner FROM queue ORDER BY run_id"


def make_schema_1(tx: Tx) -> None:
    """As the former version left it."""
    versions = "alembic_version" if tx.dialect.name == "sqlite" else "chimes_version"
    on = " ON queue" if tx.dialect.name == "mariadb" else ""
    for statement in (
        f"DROP INDEX queue_turns{on}",
        "ALTER TABLE queue DROP COLUMN owner",
        f"UPDATE {versions} SET version_num = '1'",
    ):
        tx.connection.exec_driver_sql(statement)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_queued_runs_get_their_owners(kind: str, tmp_path: Path) -> None:
    server = {"postgresql": POSTGRES, "mariadb": MARIADB}.get(kind)
    url = shared(server).new_database() if server else ""

    def make() -> SqlStore:
        if kind == "sqlite":
            return open_sqlite(tmp_path / "chimes.db")
        return open_postgres(url) if kind == "postgresql" else open_mariadb(url)

    store = make()
    await store.open()
    node = await store.join(a_node(), LEASE)
    runs = [a_run(owner=owner, available_at=NOW - 3650 * DAY) for owner in (ALICE, BOB)]
    await store.add_runs(runs)
    await store._database.write(make_schema_1)
    await store.close()
    if server:
        # Nodes of the new version wait for the command; those of schema 1 continue after it.
        with pytest.raises(SchemaMismatch, match="chimes store migrate"):
            await make().open()
    for _ in range(2):
        migrating = make()
        assert (await migrating.migrate())[1] == HEAD
        await migrating.close()
    store = make()
    await store.open()
    found = await store._database.read(lambda tx: tx.connection.exec_driver_sql(ROWS).all())
    expected = [(run.id, owner_number(str(run.owner))) for run in runs]
    assert [tuple(row) for row in found] == expected

    def move(tx: Tx) -> None:
        """Rows of a node of schema 1."""
        columns = "run_id, rank, available_at, planned_at, needs, attempt, fence, blocked"
        columns = f"{columns}, concurrency_limit".replace(
            "rank", tx.connection.dialect.identifier_preparer.quote("rank")
        )
        for statement in (
            "CREATE TABLE moved AS SELECT * FROM queue",
            "DELETE FROM queue",
            f"INSERT INTO queue ({columns}) SELECT {columns} FROM moved",
            "DROP TABLE moved",
        ):
            tx.connection.exec_driver_sql(statement)

    await store._database.write(move)
    await store.join(a_node(), LEASE)
    claimed = await store.claim(claim_request(node.id, 1))
    claimed += await store.claim(claim_request(node.id, 1))
    assert {run.id for run in claimed} == {run.id for run in runs}
    await store.close()
    if server:
        shared(server).drop_database(url)
