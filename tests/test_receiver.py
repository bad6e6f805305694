"""The receiver kit, in one process: signatures, stores, fences and adapters."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook
from starlette.testclient import TestClient

from chimes.receiver import (
    Answer,
    Call,
    DjangoStore,
    MemoryStore,
    Receiver,
    Refused,
    SqliteStore,
    SqlStore,
    Store,
)
from chimes.targets.http.request import signatures

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW = 1_900_000_000
ROOT = Path(__file__).parents[1]


def headers(
    run_id: str = "r1",
    *,
    fence: int = 1,
    body: bytes = b"{}",
    at: int = NOW,
    secrets: tuple[str, ...] = (SECRET,),
) -> dict[str, str]:
    return {
        "Webhook-Id": run_id,
        "webhook-timestamp": str(at),
        "webhook-signature": signatures(secrets, message_id=run_id, timestamp=at, body=body),
        "X-Chimes-Attempt": str(fence),
        "X-Chimes-Fence": str(fence),
        "X-Chimes-Slot": "2030-02-11T02:00:00Z",
        "X-Chimes-Schedule-Id": "s1",
    }


def a_receiver(store: Store | None = None, **options: Any) -> Receiver:
    return Receiver([SECRET], store=store, clock=lambda: NOW, **options)


class Effects:
    def __init__(self, result: object = None) -> None:
        self.calls: list[Call] = []
        self.result = {"sent": True} if result is None else result

    def __call__(self, call: Call) -> object:
        self.calls.append(call)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def code_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["code"])


def test_call_has_what_the_headers_say() -> None:
    call = a_receiver().verify(headers(body=b'{"a":1}'), b'{"a":1}')
    assert (call.run_id, call.attempt, call.fence, call.schedule_id) == ("r1", 1, 1, "s1")
    assert call.slot == datetime(2030, 2, 11, 2, tzinfo=UTC)
    assert call.json() == {"a": 1}


def test_signatures_are_those_of_standard_webhooks() -> None:
    stamp = datetime.fromtimestamp(NOW, UTC)
    signed = Webhook(SECRET).sign("r1", stamp, '{"a":1}')
    given = headers() | {"webhook-signature": signed}
    assert a_receiver().verify(given, b'{"a":1}').run_id == "r1"


@pytest.mark.parametrize(
    ("change", "body", "code"),
    [
        ({}, b"{ }", "bad_signature"),
        ({"webhook-signature": ""}, b"{}", "bad_signature"),
        ({"webhook-signature": "v1,AAAA v2,BBBB"}, b"{}", "bad_signature"),
        ({"webhook-timestamp": str(NOW - 1)}, b"{}", "bad_signature"),
        (headers("r2"), b"{}", "ok"),
        (headers("r1", secrets=(OTHER,)), b"{}", "bad_signature"),
        (headers("r1", secrets=(OTHER, SECRET)), b"{}", "ok"),
        (headers("r1", at=NOW - 301), b"{}", "too_old"),
        (headers("r1", at=NOW + 301), b"{}", "too_old"),
        (headers("r1", at=NOW - 299), b"{}", "ok"),
        ({"Webhook-Id": ""}, b"{}", "not_a_webhook"),
        ({"X-Chimes-Fence": "-1"}, b"{}", "bad_header"),
    ],
)
def test_only_signed_recent_calls_are_accepted(
    change: dict[str, str], body: bytes, code: str
) -> None:
    effects = Effects()
    answer = a_receiver().receive(headers() | change, body, effects)
    assert len(effects.calls) == (code == "ok")
    assert code == ("ok" if answer.status == 200 else code_of(answer))


def test_key_of_the_receiver_is_rotated_with_two_secrets() -> None:
    receiver = Receiver([OTHER, SECRET], clock=lambda: NOW)
    assert receiver.verify(headers(secrets=(SECRET,)), b"{}").run_id == "r1"
    assert receiver.verify(headers(secrets=(OTHER,)), b"{}").run_id == "r1"


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="unsigned=True"):
        Receiver()
    with pytest.raises(ValueError, match="whsec_ and base64"):
        Receiver(["secret"])
    with pytest.raises(ValueError, match="name of a table"):
        SqlStore(lambda: None, table="x; DROP TABLE y")
    unsigned = Receiver(unsigned=True, clock=lambda: NOW)
    assert unsigned.verify(headers() | {"webhook-signature": ""}, b"{}").fence == 1


@contextmanager
def _django(_tmp_path: Path) -> Iterator[Store]:
    yield DjangoStore()


@contextmanager
def _memory(_tmp_path: Path) -> Iterator[Store]:
    yield MemoryStore()


@contextmanager
def _file(tmp_path: Path) -> Iterator[Store]:
    yield SqliteStore(str(tmp_path / "receipts.db"))


@contextmanager
def _table(tmp_path: Path) -> Iterator[Store]:
    yield SqlStore(lambda: sqlite3.connect(tmp_path / "shop.db", check_same_thread=False))


@pytest.fixture(params=[_memory, _file, _table, _django], ids=lambda each: each.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param is _django:
        configure_django(tmp_path)
    with request.param(tmp_path) as found:
        yield found


def configure_django(tmp_path: Path) -> None:
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            ROOT_URLCONF="tests.test_receiver",
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ""}},
        )
        django.setup()
    connections.close_all()
    connections["default"].settings_dict["NAME"] = str(tmp_path / "django.db")


def test_effect_of_a_repeated_call_is_performed_once(store: Store) -> None:
    receiver, effects = a_receiver(store), Effects({"number": 7})
    first = receiver.receive(headers(fence=1), b"{}", effects)
    again = receiver.receive(headers(fence=2), b"{}", effects)
    assert first == again
    stale = receiver.receive(headers(fence=1), b"{}", effects)
    assert code_of(stale) == "stale_fence"
    assert json.loads(again.body) == {"number": 7}
    assert len(effects.calls) == 1
    receiver.receive(headers("r2"), b"{}", effects)
    assert len(effects.calls) == 2


def test_failed_effect_is_performed_by_the_next_attempt(store: Store) -> None:
    receiver, failing = a_receiver(store), Effects(OSError("no printer"))
    with pytest.raises(OSError, match="no printer"):
        receiver.receive(headers(fence=2), b"{}", failing)
    effects = Effects()
    stale = receiver.receive(headers(fence=1), b"{}", effects)
    assert (stale.status, code_of(stale)) == (409, "stale_fence")
    assert receiver.receive(headers(fence=3), b"{}", effects).status == 200
    assert len(effects.calls) == 1


def test_attempt_with_an_older_fence_is_refused(store: Store) -> None:
    receiver, effects = a_receiver(store), Effects()
    receiver.receive(headers(fence=4), b"{}", effects)
    answer = receiver.receive(headers(fence=3), b"{}", effects)
    assert (answer.status, code_of(answer)) == (409, "stale_fence")
    assert len(effects.calls) == 1


@pytest.mark.parametrize("make", [_memory, _file], ids=lambda each: each.__name__)
def test_attempt_waits_for_the_effect_of_an_earlier_one(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    now = [float(NOW)]
    with make(tmp_path) as store:
        receiver = Receiver([SECRET], store=store, tolerance=1e9, clock=lambda: now[0])
        with receiver.accept(headers(fence=1), b"{}") as call:
            effects = Effects()
            busy = receiver.receive(headers(fence=2), b"{}", effects)
            assert (busy.status, code_of(busy)) == (503, "in_progress")
            assert busy.headers["Retry-After"] == "5"
            call.finish({"sent": 1})
        assert json.loads(receiver.receive(headers(fence=3), b"{}", effects).body) == {"sent": 1}
        # A process that died: its effect counts as lost after a while.
        dead = receiver.accept(headers("r2", fence=1), b"{}")
        dead.__enter__()
        now[0] += 901
        assert receiver.receive(headers("r2", fence=2), b"{}", effects).status == 200
        assert len(effects.calls) == 1


def _check_late_failure(store: Store) -> None:
    """An attempt fails after a later one has performed the effect: after `busy_for`, or, in the
    transaction of the effect, between its rollback and the record of its failure."""
    now = [float(NOW)]
    receiver = Receiver([SECRET], store=store, tolerance=1e9, clock=lambda: now[0])
    effects = Effects({"by": 2})
    waiting: list[Callable[[], object]] = []
    transaction = store.transaction

    def after_the_waiting() -> Any:
        while waiting:
            waiting.pop()()
        return transaction()

    def late(_call: Call) -> None:
        now[0] += 901
        waiting.append(lambda: receiver.receive(headers("late", fence=2), b"{}", effects))
        raise OSError("no printer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "transaction", after_the_waiting)
        with pytest.raises(OSError, match="no printer"):
            receiver.receive(headers("late", fence=1), b"{}", late)
    assert len(effects.calls) == 1
    again = receiver.receive(headers("late", fence=3), b"{}", effects)
    assert json.loads(again.body) == {"by": 2}
    assert len(effects.calls) == 1


def test_late_failure_does_not_replace_done(store: Store) -> None:
    _check_late_failure(store)


@pytest.mark.parametrize("make", [_memory, _file], ids=lambda each: each.__name__)
def test_late_failure_does_not_end_a_later_attempt(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    now = [float(NOW)]
    with make(tmp_path) as store:
        receiver = Receiver([SECRET], store=store, tolerance=1e9, clock=lambda: now[0])
        effects = Effects()

        def fail_late(fences: tuple[int, int]) -> None:
            """The second attempt begins and the first fails; the second ends afterwards."""
            first, second = (headers(f"r{fences}", fence=fence) for fence in fences)
            later = receiver.accept(second, b"{}")

            def late(_call: Call) -> None:
                now[0] += 901
                later.__enter__().finish("second")
                raise OSError("late")

            with pytest.raises(OSError, match="late"):
                receiver.receive(first, b"{}", late)
            busy = receiver.receive(second, b"{}", effects)
            assert (busy.status, code_of(busy)) == (503, "in_progress")
            later.__exit__(None, None, None)
            assert receiver.receive(second, b"{}", effects).body == b"second"

        fail_late((1, 2))
        fail_late((0, 0))  # a notification has no fence
        assert effects.calls == []

        # An attempt that was refused because of the first does not make its failure a late one.
        def soon(_call: Call) -> None:
            assert receiver.receive(headers(fence=2), b"{}", effects).status == 503
            raise OSError("soon")

        with pytest.raises(OSError, match="soon"):
            receiver.receive(headers(fence=1), b"{}", soon)
        assert receiver.receive(headers(fence=3), b"{}", effects).status == 200


class _Unsure(sqlite3.Connection):
    """Loses the answer of the server to COMMIT."""

    unsure = False

    def commit(self) -> None:
        super().commit()
        if self.unsure:
            raise sqlite3.OperationalError("connection lost")


def test_failure_of_commit_after_it_took_effect_does_not_replace_done(tmp_path: Path) -> None:
    store = SqlStore(lambda: sqlite3.connect(tmp_path / "shop.db", factory=_Unsure))
    receiver, effects = a_receiver(store), Effects()

    def unsure(call: Call) -> object:
        call.connection.unsure = True
        return effects(call)

    with pytest.raises(sqlite3.OperationalError, match="connection lost"):
        receiver.receive(headers(fence=1), b"{}", unsure)
    assert receiver.receive(headers(fence=2), b"{}", effects).status == 200
    assert len(effects.calls) == 1


def _add_order(call: Call) -> None:
    call.connection.cursor().execute("INSERT INTO orders VALUES (1)")


#: Performs the effect and dies before COMMIT.
DYING = """
import os, sqlite3, psycopg, pymysql
from chimes.receiver import SqlStore
from tests.test_receiver import _add_order, a_receiver, headers

def effect(call):
    _add_order(call)
    os._exit(9)

a_receiver(SqlStore(lambda: {connect})).receive(headers("r0"), b"{{}}", effect)
"""


def _check_exactly_once(expression: str) -> None:
    """Attempts at the same time, after one whose process died before COMMIT or that has failed, and
    a late failure."""

    def connect() -> Any:
        return eval(expression, {"sqlite3": sqlite3, "psycopg": psycopg, "pymysql": pymysql})

    setup = connect()
    setup.cursor().execute("CREATE TABLE orders (number INT)")
    setup.commit()
    receiver = a_receiver(SqlStore(connect))
    receiver.receive(headers("warm-up"), b"{}", Effects())  # creates the table
    dying = DYING.format(connect=expression)
    assert subprocess.run([sys.executable, "-c", dying], cwd=ROOT, timeout=60).returncode == 9

    started, go_on = threading.Event(), threading.Event()

    def slow(call: Call) -> None:
        _add_order(call)
        started.set()
        assert go_on.wait(60)

    answers: list[Answer] = []

    def attempt(fence: int, effect: Callable[[Call], None]) -> threading.Thread:
        def run() -> None:
            answers.append(receiver.receive(headers("r0", fence=fence), b"{}", effect))

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    first = attempt(2, slow)
    assert started.wait(60)
    second = attempt(3, _add_order)
    time.sleep(0.2)  # It waits in the database for the first; if it did not, it would add an order.
    go_on.set()
    first.join(60)
    second.join(60)
    assert sorted(each.status for each in answers) == [204, 204]
    _check_failed_run(SqlStore(connect))
    _check_late_failure(SqlStore(connect))
    cursor = setup.cursor()
    cursor.execute("SELECT COUNT(*) FROM orders")
    assert cursor.fetchone()[0] == 2
    setup.close()


def _check_failed_run(store: SqlStore) -> None:
    """A run has failed, and two attempts find its receipt before one of them has changed it."""
    receiver, found = a_receiver(store), threading.Event()
    with pytest.raises(OSError, match="no printer"):
        receiver.receive(headers("r1"), b"{}", Effects(OSError("no printer")))
    add, replace = store.add, store.replace

    def attempt() -> None:
        receiver.receive(headers("r1", fence=3), b"{}", _add_order)

    second = threading.Thread(target=attempt)

    def add_second(*given: Any) -> Any:
        receipt = add(*given)
        if threading.current_thread() is second:
            found.set()
        return receipt

    def replace_after_second(*given: Any) -> None:
        if second.ident is None:
            second.start()
            assert not found.wait(0.5)  # It waits in the database for the first.
        replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "add", add_second)
        patch.setattr(store, "replace", replace_after_second)
        receiver.receive(headers("r1", fence=2), b"{}", _add_order)
        second.join(60)
    assert found.is_set()


def test_effect_in_the_transaction_of_sqlite_happens_exactly_once(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    _check_exactly_once(f"sqlite3.connect({path!r}, timeout=60)")


def test_effect_in_the_transaction_of_postgresql_happens_exactly_once(postgres_url: str) -> None:
    _check_exactly_once(f"psycopg.connect({postgres_url!r})")


def test_effect_in_the_transaction_of_mariadb_happens_exactly_once(mariadb_url: str) -> None:
    place = urlsplit(mariadb_url)
    _check_exactly_once(
        f"pymysql.connect(host={place.hostname!r}, port={place.port}, user={place.username!r},"
        f" password={place.password or ''!r}, database={place.path.lstrip('/')!r})"
    )


def test_old_receipts_are_pruned(tmp_path: Path) -> None:
    now = [float(NOW)]
    for store in (MemoryStore(), SqliteStore(str(tmp_path / "r.db"))):
        receiver = Receiver([SECRET], store=store, tolerance=1e9, keep_for=60, clock=lambda: now[0])
        effects = Effects()
        receiver.receive(headers("old"), b"{}", effects)
        now[0] += 61
        for number in range(100):
            receiver.receive(headers(f"r{number}"), b"{}", effects)
        receiver.receive(headers("old"), b"{}", effects)
        assert [call.run_id for call in effects.calls].count("old") == 2


async def test_fastapi_endpoint() -> None:
    app, receiver, effects = FastAPI(), a_receiver(), Effects()

    @app.post("/sync")
    @receiver.fastapi
    def report(call: Call) -> object:
        """Sends the report."""
        return effects(call)

    @app.post("/async")
    @receiver.fastapi
    async def other(call: Call) -> str:
        return f"{call.run_id} done"

    client = TestClient(app)
    for _ in range(2):
        answer = client.post("/sync", content=b"{}", headers=headers())
        assert (answer.status_code, answer.json()) == (200, {"sent": True})
    assert len(effects.calls) == 1
    assert client.post("/async", content=b"{}", headers=headers("r9")).text == "r9 done"
    refused = client.post("/sync", content=b"x", headers=headers())
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert app.openapi()["paths"]["/sync"]["post"]["description"] == "Sends the report."


@pytest.mark.parametrize("make", [_table, _django], ids=lambda each: each.__name__)
async def test_async_effect_is_refused_in_a_transaction(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    async def report(call: Call) -> None:
        raise AssertionError(call)

    class Report:
        async def __call__(self, call: Call) -> None:
            raise AssertionError(call)

    with make(tmp_path) as store:
        receiver = a_receiver(store)
        for effect in (report, Report()):
            with pytest.raises(TypeError, match=r"plain function \(def\), which runs in a thread"):
                receiver.fastapi(effect)
            with pytest.raises(TypeError, match=r"async.*would block the event loop"):
                await receiver.receive_async(headers(), b"{}", effect)


async def test_plain_effects_in_a_transaction_wait_for_each_other_in_threads(
    tmp_path: Path,
) -> None:
    receiver = a_receiver(SqlStore(lambda: sqlite3.connect(tmp_path / "shop.db", timeout=60)))
    loop, go_on, started = asyncio.get_running_loop(), threading.Event(), asyncio.Event()
    effects = Effects("second")

    def slow(_call: Call) -> str:
        loop.call_soon_threadsafe(started.set)
        assert go_on.wait(60)
        return "first"

    first = asyncio.create_task(receiver.receive_async(headers(fence=1), b"{}", slow))
    await asyncio.wait_for(started.wait(), 60)
    second = asyncio.create_task(receiver.receive_async(headers(fence=2), b"{}", effects))
    await asyncio.sleep(0.1)
    go_on.set()
    assert [(await each).body for each in (first, second)] == [b"first", b"first"]
    assert effects.calls == []


async def test_async_effect_waits_for_the_store_in_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "receipts.db"
    receiver, effects = a_receiver(SqliteStore(str(path))), Effects()

    async def effect(call: Call) -> object:
        await asyncio.sleep(0)
        return effects(call)

    await receiver.receive_async(headers("warm-up"), b"{}", effect)  # creates the table
    other = sqlite3.connect(path)

    async def while_locked(run_id: str) -> asyncio.Task[Answer]:
        """A call that waits for the lock of another transaction."""
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(receiver.receive_async(headers(run_id), b"{}", effect))
        await asyncio.sleep(0.2)
        return task

    task = await while_locked("r1")
    other.rollback()  # by the loop, which goes on
    assert (await task).status == 200
    assert [call.run_id for call in effects.calls] == ["warm-up", "r1"]

    task = await while_locked("r2")
    task.cancel()
    await asyncio.sleep(0)
    other.rollback()
    other.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The call that was cancelled has failed; it is not in progress for 15 minutes.
    assert (await receiver.receive_async(headers("r2", fence=2), b"{}", effect)).status == 200


async def test_async_effect_fails_is_cancelled_and_refuses() -> None:
    receiver, started = a_receiver(), asyncio.Event()

    async def endless(_call: Call) -> None:
        started.set()
        await asyncio.Event().wait()

    async def failing(_call: Call) -> None:
        raise OSError("no printer")

    async def refusing(_call: Call) -> None:
        raise Refused(422, "unknown_customer", "there is no customer 7")

    async def effect(_call: Call) -> str:
        return "sent"

    task = asyncio.create_task(receiver.receive_async(headers(fence=1), b"{}", endless))
    await asyncio.wait_for(started.wait(), 60)
    busy = await receiver.receive_async(headers(fence=2), b"{}", effect)
    assert (busy.status, code_of(busy)) == (503, "in_progress")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OSError, match="no printer"):
        await receiver.receive_async(headers(fence=3), b"{}", failing)
    refused = await receiver.receive_async(headers(fence=4), b"{}", refusing)
    assert (refused.status, code_of(refused)) == (422, "unknown_customer")
    for fence in (5, 6):
        assert (await receiver.receive_async(headers(fence=fence), b"{}", effect)).body == b"sent"
    with pytest.raises(TypeError, match="returned a coroutine"):
        receiver.receive(headers("r2"), b"{}", effect)


def test_django_view(tmp_path: Path) -> None:
    configure_django(tmp_path)
    from django.test import RequestFactory

    effects = Effects()
    view = a_receiver(DjangoStore()).django(effects)
    given = {f"HTTP_{name.replace('-', '_').upper()}": value for name, value in headers().items()}
    for _ in range(2):
        request = RequestFactory().post("/", data=b"{}", content_type="application/json", **given)
        answer = view(request)
        assert (answer.status_code, json.loads(answer.content)) == (200, {"sent": True})
    assert len(effects.calls) == 1
    assert getattr(view, "csrf_exempt", False)


def test_wsgi_application() -> None:
    effects = Effects()
    application = a_receiver().wsgi(effects)
    given = {f"HTTP_{name.replace('-', '_').upper()}": value for name, value in headers().items()}
    started: list[str] = []
    for body in (b"{}", b"{}", b"x"):
        environ = {**given, "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
        application(environ, lambda status, _headers: started.append(status))
    assert started == ["200 OK", "200 OK", "401 Refused"]
    assert len(effects.calls) == 1


def test_effect_may_refuse_a_call() -> None:
    receiver = a_receiver()

    def effect(_call: Call) -> None:
        raise Refused(422, "unknown_customer", "there is no customer 7")

    assert code_of(receiver.receive(headers(), b"{}", effect)) == "unknown_customer"


def test_module_needs_the_standard_library_only(tmp_path: Path) -> None:
    """A copy of the file works without the package."""
    source = Path(sys.modules[Receiver.__module__].__file__ or "")
    (tmp_path / "receiver.py").write_text(source.read_text())
    program = "import receiver; print(receiver.Receiver(['whsec_a2tra2tra2s=']))"
    found = subprocess.run(
        [sys.executable, "-IS", "-c", f"import sys; sys.path.append('.'); {program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "Receiver" in found.stdout


def test_answers_keep_status_and_type() -> None:
    receiver = a_receiver()
    given = Answer(status=202, body=b"\xff", content_type="application/octet-stream")
    for _ in range(2):
        assert receiver.receive(headers(), b"{}", lambda _call: given) == given
    assert receiver.receive(headers("r2"), b"{}", lambda _call: None).status == 204
