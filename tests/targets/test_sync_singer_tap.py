"""A Singer tap from PyPI as a source: `tap-dbf`, which reads files of dBase."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from chimes.model.run import AttemptEnd
from tests.targets.sync_calls import StoredCheckpoint, a_runner, execute

#: `tools/setup.sh` installs it, in an environment of its own.
TAP = Path(sys.prefix) / "tap/bin/tap-dbf"


def write_dbf(path: Path, rows: Iterable[tuple[str, int]]) -> None:
    """A file of dBase III with the fields NAME (10 characters) and SIZE (number)."""
    fields = ((b"NAME", b"C", 10), (b"SIZE", b"N", 8))
    records = [b" " + name.encode().ljust(10) + str(size).rjust(8).encode() for name, size in rows]
    header = struct.pack("<BBBBLHH20x", 3, 130, 1, 1, len(records), 32 + 32 * 2 + 1, 1 + 10 + 8)
    described = b"".join(
        struct.pack("<11sc4xBB14x", name, kind, length, 0) for name, kind, length in fields
    )
    path.write_bytes(header + described + b"\r" + b"".join(records) + b"\x1a")


async def test_records_of_a_tap_are_written_and_its_state_is_kept(tmp_path: Path) -> None:
    write_dbf(tmp_path / "orders.dbf", [("first", 7), ("second", 12)])
    config = {
        "command": [str(TAP), "--config", "{config_file}", "--state", "{state_file}"],
        "format": "singer",
        "output": "out/{collection}.jsonl",
        "path": str(tmp_path / "orders.dbf"),
    }
    kept = StoredCheckpoint()
    for _turn in range(2):
        done = await execute(a_runner("command", config, tmp_path), kept)
        assert done.outcome.end is AttemptEnd.SUCCEEDED, done.lines
    assert done.outcome.result is not None
    assert done.outcome.result["records"] == 2
    state = json.loads(kept.value or "")
    assert isinstance(state.get("bookmarks"), dict), state
    lines = [json.loads(line) for line in (tmp_path / "out/orders.jsonl").read_text().splitlines()]
    found = [(line["record"]["NAME"], line["record"]["SIZE"]) for line in lines]
    assert found == [("first", 7), ("second", 12)] * 2
