"""The Flask extension."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from chimes.errors import NotFound, RunFailed
from tests.integrations.conftest import Project


def test_the_example_project(
    project: Callable[[str], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = project("flask_shop")
    monkeypatch.chdir(shop.home)
    monkeypatch.syspath_prepend(str(shop.home))
    for name in ("web", "tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    web = importlib.import_module("web")
    try:
        client = web.create_app().test_client()
        made = client.post("/orders/7")
        assert made.status_code == 202
        assert client.post("/orders/7").json == made.json
        shop.start("-m", "flask", "--app", "web", "chimes", "worker")
        found = client.get(f"/runs/{made.json['run']}")
        assert found.json == {"result": "order 7 is confirmed"}, shop.output
        engine = create_engine(f"sqlite:///{shop.home / 'shop.db'}")
        with Session(engine) as session:
            lost = web.chimes.enqueue(web.confirm.options(connection=session), 9)
            session.rollback()
            kept = web.chimes.enqueue(web.confirm.options(connection=session), 9)
            session.commit()
        engine.dispose()
        with pytest.raises(NotFound):
            lost.run()
        assert kept.result("60s") == "order 9 is confirmed"
        handle = web.chimes.enqueue(web.confirm.options(delay="1h"), 8)
        assert handle.status() == "queued"
        assert handle.cancel()
        with pytest.raises(RunFailed):
            handle.result("10s")
    finally:
        web.chimes.close()
        for name in ("web", "tasks"):
            sys.modules.pop(name, None)


def test_a_command_without_an_application_says_what_is_missing(
    project: Callable[[str], Project],
) -> None:
    shop = project("flask_shop")
    text = (shop.home / "web.py").read_text(encoding="utf-8")
    (shop.home / "web.py").write_text(text.replace('"tasks:app"', '""'), encoding="utf-8")
    with pytest.raises(AssertionError, match=r'config\["CHIMES_APP"\]: expected module:name'):
        shop.run("-m", "flask", "--app", "web", "chimes", "worker")
