"""Receives callbacks of Chimes: verifies them and performs each effect once.

    from chimes.receiver import Receiver, SqliteStore

    receiver = Receiver(["whsec_…"], store=SqliteStore("receipts.db"))

    @app.post("/report")          # FastAPI; `receiver.django` and `receiver.wsgi` for others
    @receiver.fastapi
    def report(call):
        send_report(call.json())

Chimes calls at least once: a node can die after a call and before the record of its result, and the
next attempt calls again. A receiver therefore checks the signature (Standard Webhooks), remembers
the ids of runs, and refuses an attempt that a later one has replaced (its fence is smaller).

This module needs the standard library only and imports nothing of Chimes, so that it can be copied
into a service that does not install the package.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import inspect
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

#: Seconds that the clocks of sender and receiver may differ, by Standard Webhooks.
TOLERANCE: Final = 300.0
#: Seconds after which an effect that has neither ended nor failed counts as lost.
BUSY_FOR: Final = 900.0
#: Seconds that ids are remembered: longer than any run is retried.
KEEP_FOR: Final = 30 * 86400.0
_PREFIX = "whsec_"
_PRUNE_EVERY = 100
_MAX_ID = 200


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The HTTP response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """A call whose effect must not be performed; `answer` says why."""

    def __init__(self, status: int, code: str, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        problem = {"title": "Call refused", "status": status, "code": code, "detail": detail}
        self.answer = Answer(
            status=status,
            body=json.dumps(problem).encode(),
            content_type="application/problem+json",
            headers={} if retry_after is None else {"Retry-After": str(retry_after)},
        )


@dataclass(kw_only=True)
class Call:
    """One verified call."""

    #: The id of the run (of the delivery, for a notification): the same for all attempts.
    run_id: str
    #: 1 for the first attempt; 0 for a notification.
    attempt: int
    #: Increases with each claim of the run; 0 for a notification.
    fence: int
    #: The planned time; None for a notification.
    slot: datetime | None
    #: None for a run without a schedule and for a notification.
    schedule_id: str | None
    #: By lower-case name.
    headers: Mapping[str, str]
    body: bytes
    #: With `SqlStore`: the connection whose transaction also remembers the id.
    connection: Any = None
    #: The response; set if an earlier attempt has performed the effect.
    answer: Answer | None = None

    def json(self) -> Any:
        return json.loads(self.body)

    def finish(self, result: object = None) -> Answer:
        """Sets the response: an Answer, bytes, text, None (no content), or a value for JSON."""
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(
                "the effect returned a coroutine, which is not awaited here: pass a plain function,"
                " or an async function to receive_async or fastapi"
            )
        if isinstance(result, Answer):
            self.answer = result
        elif result is None:
            self.answer = Answer(status=204)
        elif isinstance(result, bytes | str):
            content = result.encode() if isinstance(result, str) else result
            self.answer = Answer(body=content, content_type="text/plain; charset=utf-8")
        else:
            self.answer = Answer(body=json.dumps(result).encode())
        return self.answer


# --- Stores ---------------------------------------------------------------------------------------


class Receipt(NamedTuple):
    """What is remembered of a run."""

    fence: int
    #: begun, done or failed
    state: str
    answer: str
    at: float


class Store(Protocol):
    """Remembers ids. All methods are called within `transaction`, which yields a connection or
    None."""

    def transaction(self) -> AbstractContextManager[Any]: ...

    #: Whether the effect belongs to the transaction: mark and effect are committed together.
    atomic: bool

    def add(self, connection: Any, run_id: str, receipt: Receipt) -> Receipt | None:
        """Adds a receipt if there is none, else returns the one that there is."""

    def replace(self, connection: Any, run_id: str, receipt: Receipt) -> None: ...

    def prune(self, connection: Any, before: float) -> None:
        """Forgets receipts that are older."""


class MemoryStore:
    """Receipts of one process, lost with it: for tests, and for effects that may be repeated after
    a restart."""

    atomic = False

    def __init__(self) -> None:
        self._receipts: dict[str, Receipt] = {}
        self._lock = threading.Lock()

    def transaction(self) -> AbstractContextManager[Any]:
        return self._lock

    def add(self, connection: Any, run_id: str, receipt: Receipt) -> Receipt | None:
        found = self._receipts.setdefault(run_id, receipt)
        return None if found is receipt else found

    def replace(self, connection: Any, run_id: str, receipt: Receipt) -> None:
        self._receipts[run_id] = receipt

    def prune(self, connection: Any, before: float) -> None:
        for run_id in [each for each, receipt in self._receipts.items() if receipt.at < before]:
            del self._receipts[run_id]


class SqlStore:
    """Receipts in a table of the application's database, in the transaction of the effect: both are
    committed together or not at all, so that the effect happens exactly once.

    `connect` returns a DB-API connection for one call, with autocommit off, which is closed after
    the call; the effect uses it as `call.connection` and leaves COMMIT to the receiver. For SQLite
    (sqlite3), PostgreSQL (psycopg) and MariaDB (PyMySQL).
    """

    atomic = True

    def __init__(self, connect: Callable[[], Any], *, table: str = "chimes_receipts") -> None:
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"{table!r} is not a name of a table: use letters, digits and _")
        self._connect = connect
        self._table = table
        self._created = False

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        if not self._created:
            # In a transaction of its own: that of an effect that fails is rolled back.
            with self._begin() as connection:
                self._execute(
                    connection,
                    f"CREATE TABLE IF NOT EXISTS {self._table} (id VARCHAR({_MAX_ID}) PRIMARY KEY,"
                    " fence BIGINT NOT NULL, state VARCHAR(10) NOT NULL, answer TEXT NOT NULL,"
                    " at DOUBLE PRECISION NOT NULL)",
                )
            self._created = True
        with self._begin() as connection:
            yield connection

    @contextmanager
    def _begin(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            yield connection
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()

    def add(self, connection: Any, run_id: str, receipt: Receipt) -> Receipt | None:
        # The database waits here for another transaction that inserts the same id.
        verb, on_conflict = "INSERT", " ON CONFLICT DO NOTHING"
        if _is_a(connection, "mysql", "mariadb"):
            verb, on_conflict = "INSERT IGNORE", ""
        added = self._execute(
            connection,
            f"{verb} INTO {self._table} (id, fence, state, answer, at) VALUES (?, ?, ?, ?, ?)"
            f"{on_conflict}",
            (run_id, *receipt),
        )
        if added.rowcount == 1:
            return None
        # The caller decides by what is read, so no other transaction may change it until the end of
        # this one. The INSERT has locked a SQLite database; servers lock the row.
        lock = "" if _is_a(connection, "sqlite") else " FOR UPDATE"
        statement = f"SELECT fence, state, answer, at FROM {self._table} WHERE id = ?{lock}"
        row = self._execute(connection, statement, (run_id,)).fetchone()
        if row is None:
            raise Refused(503, "in_progress", "the receipt was just pruned; repeat the call", 1)
        return Receipt(*row)

    def replace(self, connection: Any, run_id: str, receipt: Receipt) -> None:
        statement = (
            f"UPDATE {self._table} SET fence = ?, state = ?, answer = ?, at = ? WHERE id = ?"
        )
        self._execute(connection, statement, (*receipt, run_id))

    def prune(self, connection: Any, before: float) -> None:
        self._execute(connection, f"DELETE FROM {self._table} WHERE at < ?", (before,))

    def _execute(self, connection: Any, statement: str, values: tuple[object, ...] = ()) -> Any:
        # sqlite3 takes question marks, other drivers and Django %s.
        own = isinstance(connection, sqlite3.Connection)
        cursor = connection.cursor()
        cursor.execute(statement if own else statement.replace("?", "%s"), values)
        return cursor


def _is_a(connection: Any, *databases: str) -> bool:
    if isinstance(connection, sqlite3.Connection):
        return "sqlite" in databases
    name = getattr(connection, "vendor", None) or type(connection).__module__
    return any(each in name.lower() for each in databases)


class SqliteStore(SqlStore):
    """Receipts in a file of their own, for effects outside a database. The id is remembered before
    the effect; if the process dies in between, an attempt after `busy_for` performs it again."""

    atomic = False

    def __init__(self, path: str) -> None:
        super().__init__(lambda: sqlite3.connect(path, timeout=30))


class DjangoStore(SqlStore):
    """Receipts in the database of a Django project, in the transaction of the effect."""

    def __init__(self, using: str = "default", *, table: str = "chimes_receipts") -> None:
        super().__init__(lambda: None, table=table)
        self._using = using

    @contextmanager
    def _begin(self) -> Iterator[Any]:
        from django.db import connections, transaction

        with transaction.atomic(using=self._using):
            yield connections[self._using]


# --- Receiver -------------------------------------------------------------------------------------


class Receiver:
    """Verifies calls and performs each effect once.

    `secrets` are the signing secrets of the schedules (`whsec_…`); two while a key is rotated.
    `unsigned=True` accepts calls without a signature, for trusted networks only.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        store: Store | None = None,
        unsigned: bool = False,
        tolerance: float = TOLERANCE,
        busy_for: float = BUSY_FOR,
        keep_for: float = KEEP_FOR,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = [_key(secret) for secret in secrets]
        if not self._keys and not unsigned:
            raise ValueError("no signing secret is given: pass whsec_… or unsigned=True")
        self._store: Store = store or MemoryStore()
        self._tolerance = tolerance
        self._busy_for = busy_for
        self._keep_for = keep_for
        self._clock = clock
        self._count = 0

    def verify(self, headers: Mapping[str, str], body: bytes) -> Call:
        """The call, if its signature and time are right. Raises Refused."""
        given = {name.lower(): value for name, value in headers.items()}
        run_id = given.get("webhook-id", "")
        stamp = given.get("webhook-timestamp", "")
        if not 0 < len(run_id) <= _MAX_ID or not stamp:
            raise Refused(
                400, "not_a_webhook", "webhook-id and webhook-timestamp are missing: not Chimes?"
            )
        if self._keys:
            self._check_signature(given.get("webhook-signature", ""), run_id, stamp, body)
        try:
            age = self._clock() - int(stamp)
        except ValueError:
            raise Refused(400, "bad_timestamp", "webhook-timestamp is not a number") from None
        if abs(age) > self._tolerance:
            raise Refused(
                401,
                "too_old",
                f"webhook-timestamp is {age:.0f} s ago, more than {self._tolerance:.0f} s: "
                "a replayed call, or a wrong clock",
            )
        slot = given.get("x-chimes-slot")
        return Call(
            run_id=run_id,
            attempt=_number(given, "x-chimes-attempt"),
            fence=_number(given, "x-chimes-fence"),
            slot=None if slot is None else datetime.fromisoformat(slot),
            schedule_id=given.get("x-chimes-schedule-id"),
            headers=given,
            body=body,
        )

    def _check_signature(self, given: str, run_id: str, stamp: str, body: bytes) -> None:
        content = f"{run_id}.{stamp}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, content, "sha256")) for key in self._keys]
        # Several signatures are separated by spaces while the sender rotates its key.
        for each in given.split():
            version, _comma, signature = each.partition(",")
            if version == "v1":
                sent = signature.encode()
                if any(hmac.compare_digest(sent, known) for known in expected):
                    return
        raise Refused(401, "bad_signature", "webhook-signature fits no secret of this receiver")

    @contextmanager
    def accept(self, headers: Mapping[str, str], body: bytes) -> Iterator[Call]:
        """Yields the call to perform. If `call.answer` is set, an earlier attempt has performed it;
        otherwise perform it and call `call.finish`. An exception lets a later attempt perform it.
        Raises Refused. It waits for the store: in a coroutine use `receive_async`.

            with receiver.accept(headers, body) as call:
                if call.answer is None:
                    call.finish(send_report(call.json()))
        """
        call = self.verify(headers, body)
        began = self._clock()
        performing = False
        try:
            with self._store.transaction() if self._store.atomic else nullcontext() as connection:
                call.connection = connection
                self._begin(connection, call, began)
                performing = call.answer is None
                yield call
                if performing:
                    self._record(connection, call, began, "done", call.answer or call.finish())
        except BaseException:
            if performing:
                # After the rollback of the transaction: what has failed stays known.
                self._record(None, call, began, "failed")
            raise

    def _begin(self, connection: Any, call: Call, now: float) -> None:
        """Remembers the call; sets its answer if it was performed before. Raises Refused."""
        begun = Receipt(call.fence, "begun", "", now)
        with self._within(connection) as inner:
            self._count += 1
            if self._count % _PRUNE_EVERY == 0:
                self._store.prune(inner, now - self._keep_for)
            found = self._store.add(inner, call.run_id, begun)
            if found is None:
                return
            if call.fence < found.fence:
                raise Refused(
                    409,
                    "stale_fence",
                    f"attempt {call.attempt} has fence {call.fence}, but fence {found.fence} was "
                    "seen: another node has taken the run over",
                )
            if found.state == "done":
                call.answer = _load(found.answer)
                if call.fence > found.fence:
                    self._store.replace(inner, call.run_id, found._replace(fence=call.fence))
                return
            if found.state == "begun" and now - found.at < self._busy_for:
                # A later attempt has the right to go on, but not beside the effect of this one.
                self._store.replace(inner, call.run_id, found._replace(fence=call.fence))
                busy = True
            else:
                self._store.replace(inner, call.run_id, begun)
                busy = False
        if busy:
            raise Refused(
                503,
                "in_progress",
                "an earlier attempt of this run is being performed; repeat the call later",
                retry_after=5,
            )

    def _record(
        self, connection: Any, call: Call, began: float, state: str, answer: Answer | None = None
    ) -> None:
        """Remembers how the attempt that began at that time has ended."""
        text = "" if answer is None else _dump(answer)
        with self._within(connection) as inner:
            receipt = Receipt(call.fence, state, text, self._clock())
            found = self._store.add(inner, call.run_id, receipt)
            if found is None or found.state == "done":
                # A later attempt has performed it, or COMMIT failed after it took effect.
                return
            if state == "failed" and found.state == "begun" and found.at != began:
                # A later attempt is performing it. The fence does not tell: it also increases when
                # a later attempt is refused because of this one.
                return
            fence = max(call.fence, found.fence)
            self._store.replace(inner, call.run_id, receipt._replace(fence=fence))

    def _within(self, connection: Any) -> AbstractContextManager[Any]:
        """The transaction of the effect, or one of its own."""
        return nullcontext(connection) if connection is not None else self._store.transaction()

    def receive(
        self, headers: Mapping[str, str], body: bytes, effect: Callable[[Call], object]
    ) -> Answer:
        """Performs the effect, once, and returns the response. An exception of the effect is
        raised: respond with a 5xx, so that the call is repeated."""
        try:
            with self.accept(headers, body) as call:
                if call.answer is None:
                    call.finish(effect(call))
        except Refused as refused:
            return refused.answer
        assert call.answer is not None
        return call.answer

    async def receive_async(
        self, headers: Mapping[str, str], body: bytes, effect: Callable[[Call], Any]
    ) -> Answer:
        """The same in an event loop. A plain function runs in a thread. A coroutine function runs
        in the loop, and only the calls of the store run in threads; with `SqlStore` and
        `DjangoStore` it is a TypeError, because their transactions would block the loop."""
        self._check_effect(effect)
        if not _is_coroutine_function(effect):
            return await asyncio.to_thread(self.receive, headers, body, effect)
        accepting = self.accept(headers, body)
        # Shielded from cancellation: what is marked as begun has to be marked as failed or done.
        entering = asyncio.ensure_future(asyncio.to_thread(accepting.__enter__))
        try:
            call = await asyncio.shield(entering)
            if call.answer is None:
                call.finish(await effect(call))
        except BaseException as error:
            await asyncio.wait([entering])
            if not entering.cancelled() and entering.exception() is None:
                given = (type(error), error, error.__traceback__)
                await asyncio.shield(asyncio.to_thread(accepting.__exit__, *given))
            if isinstance(error, Refused):
                return error.answer
            raise
        await asyncio.shield(asyncio.to_thread(accepting.__exit__, None, None, None))
        assert call.answer is not None
        return call.answer

    def _check_effect(self, effect: Callable[[Call], Any]) -> None:
        if self._store.atomic and _is_coroutine_function(effect):
            raise TypeError(
                f"{getattr(effect, '__name__', effect)} is async, but the transaction of"
                f" {type(self._store).__name__} would block the event loop: use a plain function"
                " (def), which runs in a thread, or a store outside the transaction of the effect,"
                " such as SqliteStore"
            )

    # --- Adapters ---------------------------------------------------------------------------------

    def fastapi(self, effect: Callable[[Call], Any]) -> Callable[..., Any]:
        """An endpoint of FastAPI or Starlette: `app.post("/report")(receiver.fastapi(report))`. As
        for `receive_async`, the effect may be async unless the store is SqlStore or DjangoStore."""
        self._check_effect(effect)
        from starlette.requests import Request
        from starlette.responses import Response

        async def endpoint(request):  # type: ignore[no-untyped-def]
            answer = await self.receive_async(request.headers, await request.body(), effect)
            headers = {"Content-Type": answer.content_type, **answer.headers}
            return Response(answer.body, answer.status, headers)

        endpoint.__annotations__ = {"request": Request, "return": Response}
        return _named(endpoint, effect)

    def django(self, effect: Callable[[Call], Any]) -> Callable[..., Any]:
        """A view of Django: `path("report", receiver.django(report))`."""
        from django.http import HttpResponse
        from django.views.decorators.csrf import csrf_exempt

        def view(request: Any) -> Any:
            answer = self.receive(request.headers, request.body, effect)
            return HttpResponse(
                answer.body,
                status=answer.status,
                content_type=answer.content_type,
                headers=dict(answer.headers),
            )

        exempt: Callable[..., Any] = csrf_exempt(_named(view, effect))
        return exempt

    def wsgi(self, effect: Callable[[Call], Any]) -> Callable[..., Iterable[bytes]]:
        """A WSGI application, for example for Flask's dispatcher or `wsgiref`."""

        def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            headers = {
                name.removeprefix("HTTP_").replace("_", "-"): value
                for name, value in environ.items()
                if name.startswith("HTTP_")
            }
            length = int(environ.get("CONTENT_LENGTH") or 0)
            answer = self.receive(headers, environ["wsgi.input"].read(length), effect)
            lines = {"Content-Type": answer.content_type, **answer.headers}
            start(f"{answer.status} {'OK' if answer.status < 300 else 'Refused'}", [*lines.items()])
            return [answer.body]

        return application


def _named(endpoint: Callable[..., Any], effect: Callable[..., Any]) -> Callable[..., Any]:
    """Without `functools.wraps`: frameworks would read the parameters of the effect."""
    endpoint.__name__ = getattr(effect, "__name__", endpoint.__name__)
    endpoint.__doc__ = effect.__doc__
    return endpoint


def _is_coroutine_function(effect: Callable[..., Any]) -> bool:
    # Also that of an object with an async __call__.
    return any(inspect.iscoroutinefunction(each) for each in (effect, type(effect).__call__))


def _key(secret: str) -> bytes:
    encoded = secret.removeprefix(_PREFIX)
    try:
        if encoded == secret:
            raise ValueError
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a signing secret is whsec_ and base64, as Chimes shows it") from None


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "0")
    if not text.isdecimal():
        raise Refused(400, "bad_header", f"{name} is not a number")
    return int(text)


def _dump(answer: Answer) -> str:
    body = base64.b64encode(answer.body).decode()
    return json.dumps([answer.status, answer.content_type, body])


def _load(text: str) -> Answer:
    status, content_type, body = json.loads(text)
    return Answer(status=status, content_type=content_type, body=base64.b64decode(body))
