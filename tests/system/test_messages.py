"""A reminder from its time to the inbox of its owner, on a real node (UX A.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.node import Node, wait_until


def test_a_message_is_in_the_inbox_at_its_time(tmp_path: Path) -> None:
    node = Node("sqlite:///chimes.db", tmp_path)
    node.start()
    try:
        made = node.create(
            name="Stand-up",
            trigger={"kind": "every", "every": "PT1S", "max_runs": 1},
            target={"kind": "message", "text": "ประชุมใน **10** นาที"},
        )

        def told() -> list[dict[str, Any]]:
            items: list[dict[str, Any]] = node.get("/api/v1/inbox")["items"]
            return items

        (item,) = wait_until(told, "the message in the inbox")
        assert item["schedule_id"] == made["id"]
        assert "ประชุมใน **10** นาที" in str(item)
        (run,) = node.ended(made["id"])
        assert (run["status"], run["attempt"]) == ("succeeded", 1)
    finally:
        node.close()
