"""The blocks of docs/guides/receive-webhooks.md do what the text says."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from chimes.targets.http.request import signatures
from tests.test_receiver import SECRET, configure_django

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "receive-webhooks.md"
BLOCKS = re.findall(r"```(sh|python|ts)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
BODY = b'{"order": 7}'


def _headers(fence: int = 1) -> dict[str, str]:
    now = int(time.time())
    signed = signatures([SECRET], message_id="r1", timestamp=now, body=BODY)
    return {
        "webhook-id": "r1",
        "webhook-timestamp": str(now),
        "webhook-signature": signed,
        "x-chimes-fence": str(fence),
    }


def test_guide_has_the_blocks_that_are_tested_here() -> None:
    assert [kind for kind, _text in BLOCKS] == ["sh", "python", "python", "python", "ts"]


def test_python_blocks_book_an_order_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHIMES_SIGNING_SECRET", SECRET)
    fastapi, django, other = (text for kind, text in BLOCKS if kind == "python")

    found: dict[str, Any] = {}
    exec(compile(fastapi, str(GUIDE), "exec"), found)
    client = TestClient(found["app"])
    for fence in (1, 2):
        answer = client.post("/orders", content=BODY, headers=_headers(fence))
        assert answer.json() == {"booked": 7}
    connection = sqlite3.connect("orders.db")
    assert connection.execute("SELECT number FROM orders").fetchall() == [(7,)]
    connection.close()

    configure_django(tmp_path)
    from django.test import RequestFactory

    found = {}
    exec(compile(django, str(GUIDE), "exec"), found)
    meta = {f"HTTP_{n.replace('-', '_').upper()}": each for n, each in _headers().items()}
    request = RequestFactory().post("/orders", BODY, content_type="application/json", **meta)
    assert json.loads(found["urlpatterns"][0].callback(request).content) == {"booked": 7}

    found = {}
    exec(compile(other, str(GUIDE), "exec"), found)
    assert found["handle"](_headers(), BODY) == (200, b'{"booked": 7}')
    assert found["handle"](_headers() | {"webhook-signature": "v1,x"}, BODY)[0] == 401


def test_definition_of_the_schedule_is_valid() -> None:
    from chimes.web.api.schemas import ScheduleIn

    (command,) = (text for kind, text in BLOCKS if kind == "sh")
    (definition,) = re.findall(r"-d '(\{.*?\})'\n", command, re.DOTALL)
    body = json.loads(definition)
    assert ScheduleIn.model_validate(body).policy.max_retries == 20
    assert body["target"]["signing_secrets"] == ["{{secret.HOOK_KEY}}"]
