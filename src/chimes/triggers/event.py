"""Event triggers: an inbound webhook, the end of a run, a file, a SQL condition.

They have no slots: `next_after` finds none, and a schedule has no next run. An event becomes a run
in `chimes.services.events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, get_args

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import TriggerBase
from chimes.triggers.calendars import Calendar
from chimes.triggers.once import SingleFire
from chimes.triggers.values import (
    check_keys,
    format_duration_iso,
    parse_duration,
    quote_text,
    suggest_name,
)

Scheme = Literal["none", "standard", "github", "stripe"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
#: How a run may end.
END_STATUSES = ("succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown")

LONGEST_PERIOD = timedelta(days=31)
SHORTEST_SQL_INTERVAL = timedelta(seconds=5)
DEFAULT_SQL_INTERVAL = timedelta(minutes=1)
MAX_BATCH = 1000
MAX_TEXT = 4096
#: What responses have instead of a secret (`chimes.redaction.HIDDEN`, which takes long to import).
HIDDEN = "***"
MAX_QUERY = 20_000
_NO_FIRE = SingleFire(None, None)
_PACE_KEYS = ("debounce", "throttle", "batch")


@dataclass(frozen=True, slots=True)
class Batch:
    """Collects events until there are `count` of them, or `within` after the first."""

    count: int
    within: timedelta

    def to_dict(self) -> dict[str, object]:
        return {"count": self.count, "within": format_duration_iso(self.within)}


class EventTrigger(TriggerBase):
    """Behaviour common to triggers without planned slots."""

    __slots__ = ()

    bounds: ClassVar[tuple[str, ...]] = ()
    on_event: ClassVar[bool] = True
    start_at: ClassVar[datetime | None] = None  # type: ignore[misc]
    end_at: ClassVar[datetime | None] = None  # type: ignore[misc]
    max_runs: ClassVar[int | None] = None  # type: ignore[misc]
    exclude: ClassVar[tuple[Calendar, ...]] = ()  # type: ignore[misc]
    jitter: ClassVar[timedelta | None] = None  # type: ignore[misc]
    spread: ClassVar[timedelta | None] = None  # type: ignore[misc]
    _search: ClassVar[SingleFire] = _NO_FIRE  # type: ignore[misc]

    #: One run with the last event, after this long without another one.
    debounce: timedelta | None
    #: At most one run in this time, with the first event of it.
    throttle: timedelta | None
    #: One run with several events.
    batch: Batch | None

    @property
    def paced(self) -> bool:
        """Whether several events may become one run."""
        return self.debounce is not None or self.throttle is not None or self.batch is not None

    def _set_pace(self, debounce: object, throttle: object, batch: object) -> None:
        put = object.__setattr__
        put(self, "debounce", _period(debounce, "debounce"))
        put(self, "throttle", _period(throttle, "throttle"))
        put(self, "batch", _batch(batch))
        given = [name for name in _PACE_KEYS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidTrigger(
                _("choose one of {names}", names=", ".join(given)),
                field=given[1],
                code="contradiction",
            )

    def _pace_dict(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.debounce is not None:
            found["debounce"] = format_duration_iso(self.debounce)
        if self.throttle is not None:
            found["throttle"] = format_duration_iso(self.throttle)
        if self.batch is not None:
            found["batch"] = self.batch.to_dict()
        return found


@dataclass(frozen=True, slots=True, init=False)
class Webhook(EventTrigger, TriggerBase):
    """Starts a run when a request reaches the URL of the schedule (`POST /hooks/{token}`)."""

    kind: ClassVar[Literal["webhook"]] = "webhook"
    json_keys: ClassVar[tuple[str, ...]] = ("scheme", "secret", "token", *_PACE_KEYS)
    required: ClassVar[tuple[str, ...]] = ()

    #: How the sender signs its requests.
    scheme: Scheme
    #: The key of the signatures.
    secret: str = field(repr=False)
    #: The secret part of the URL; made by the service.
    token: str = field(repr=False)
    debounce: timedelta | None
    throttle: timedelta | None
    batch: Batch | None

    def __init__(
        self,
        scheme: str = "none",
        *,
        secret: str = "",
        token: str = "",
        debounce: timedelta | str | None = None,
        throttle: timedelta | str | None = None,
        batch: object = None,
    ) -> None:
        put = object.__setattr__
        if scheme not in SCHEMES:
            raise InvalidTrigger(
                _(
                    "scheme must be one of {known}, not {given}",
                    known=", ".join(SCHEMES),
                    given=quote_text(scheme),
                ),
                field="scheme",
                code="unknown_kind",
                hint=suggest_name(scheme, SCHEMES) if isinstance(scheme, str) else None,
            )
        put(self, "scheme", scheme)
        put(self, "secret", _text(secret, "secret", 1024))
        put(self, "token", _text(token, "token", 200))
        if scheme == "none" and self.secret:
            raise InvalidTrigger(
                _("a secret needs a scheme: standard, github or stripe"),
                field="scheme",
                code="contradiction",
            )
        if scheme != "none" and not self.secret:
            raise InvalidTrigger(
                _("the scheme {scheme} needs the secret of its signatures", scheme=scheme),
                field="secret",
                code="missing_key",
            )
        self._set_pace(debounce, throttle, batch)

    def completed(self, before: TriggerBase | None) -> Webhook:
        """With the token of the trigger that it replaces, and its secret where it is masked."""
        known = before if isinstance(before, Webhook) else None
        token = known.token if known is not None and known.token else _new_token()
        secret = self.secret
        if secret == HIDDEN:
            if known is None or not known.secret:
                raise InvalidTrigger(
                    _("the secret is masked; send the secret itself"),
                    field="secret",
                    code="masked",
                )
            secret = known.secret
        return replace(self, token=token, secret=secret)

    def rotated(self) -> Webhook:
        """With another URL."""
        return replace(self, token=_new_token())

    def has_token(self, token: str) -> bool:
        import hmac

        return bool(self.token) and hmac.compare_digest(
            token.encode(errors="replace"), self.token.encode()
        )

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "scheme": self.scheme}
        if self.secret:
            found["secret"] = self.secret
        if self.token:
            found["token"] = self.token
        return found | self._pace_dict()

    def shown(self) -> dict[str, object]:
        found = self.to_dict()
        found.pop("token", None)
        return found | ({"secret": HIDDEN} if self.secret else {})


@dataclass(frozen=True, slots=True, init=False)
class OnRunEnd(EventTrigger, TriggerBase):
    """Starts a run when a run of another schedule ends."""

    kind: ClassVar[Literal["run_end"]] = "run_end"
    json_keys: ClassVar[tuple[str, ...]] = ("schedule", "status", *_PACE_KEYS)

    #: The id of the other schedule.
    schedule: str
    #: Only runs that end like this; empty: all that were executed.
    status: tuple[str, ...]
    debounce: timedelta | None
    throttle: timedelta | None
    batch: Batch | None

    def __init__(
        self,
        schedule: str,
        *,
        status: Iterable[str] | str = (),
        debounce: timedelta | str | None = None,
        throttle: timedelta | str | None = None,
        batch: object = None,
    ) -> None:
        put = object.__setattr__
        put(self, "schedule", _text(schedule, "schedule", 200, needed=True))
        given = (status,) if isinstance(status, str) else status
        if not isinstance(given, (list, tuple, set, frozenset)):
            raise InvalidTrigger(
                _("status must be a list, not {type}", type=type(given).__name__),
                field="status",
                code="wrong_type",
            )
        for each in given:
            if each not in END_STATUSES:
                raise InvalidTrigger(
                    _(
                        "status must be one of {known}, not {given}",
                        known=", ".join(END_STATUSES),
                        given=quote_text(each),
                    ),
                    field="status",
                    code="unknown_kind",
                    hint=suggest_name(each, END_STATUSES) if isinstance(each, str) else None,
                )
        put(self, "status", tuple(each for each in END_STATUSES if each in given))
        self._set_pace(debounce, throttle, batch)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "schedule": self.schedule}
        if self.status:
            found["status"] = list(self.status)
        return found | self._pace_dict()


@dataclass(frozen=True, slots=True, init=False)
class OnFile(EventTrigger, TriggerBase):
    """Starts a run when a file appears or changes and its size is stable."""

    kind: ClassVar[Literal["file"]] = "file"
    json_keys: ClassVar[tuple[str, ...]] = ("path", *_PACE_KEYS)

    #: An absolute path; the last part may have the wildcards * ? [].
    path: str
    debounce: timedelta | None
    throttle: timedelta | None
    batch: Batch | None

    def __init__(
        self,
        path: str,
        *,
        debounce: timedelta | str | None = None,
        throttle: timedelta | str | None = None,
        batch: object = None,
    ) -> None:
        text = _text(path, "path", MAX_TEXT, needed=True)
        parts = text.split("/")
        if not text.startswith("/") or not parts[-1] or ".." in parts:
            raise InvalidTrigger(
                _("path must be an absolute pattern of files such as /data/in/*.csv, without .."),
                field="path",
                code="not_absolute",
            )
        if any(set("*?[") & set(part) for part in parts[:-1]):
            raise InvalidTrigger(
                _("only the last part of path may have wildcards"),
                field="path",
                code="wildcard",
            )
        object.__setattr__(self, "path", text)
        self._set_pace(debounce, throttle, batch)

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "path": self.path} | self._pace_dict()


@dataclass(frozen=True, slots=True, init=False)
class OnSql(EventTrigger, TriggerBase):
    """Starts a run when a query begins to find something."""

    kind: ClassVar[Literal["sql"]] = "sql"
    json_keys: ClassVar[tuple[str, ...]] = ("query", "connection", "interval", *_PACE_KEYS)
    required: ClassVar[tuple[str, ...]] = ("query", "connection")

    query: str
    #: A name of `connections:` in chimes.yaml.
    connection: str
    interval: timedelta
    debounce: timedelta | None
    throttle: timedelta | None
    batch: Batch | None

    def __init__(
        self,
        query: str,
        *,
        connection: str,
        interval: timedelta | str = DEFAULT_SQL_INTERVAL,
        debounce: timedelta | str | None = None,
        throttle: timedelta | str | None = None,
        batch: object = None,
    ) -> None:
        put = object.__setattr__
        text = _text(query, "query", MAX_QUERY, needed=True).strip()
        if text.split(None, 1)[0].lower() not in ("select", "with", "values"):
            raise InvalidTrigger(_("query must be a SELECT"), field="query", code="not_a_select")
        if not is_single_query(text):
            raise InvalidTrigger(
                _("query must be a single SELECT, without INTO OUTFILE or INTO DUMPFILE"),
                field="query",
                code="not_a_select",
            )
        put(self, "query", text)
        put(self, "connection", _text(connection, "connection", 200, needed=True))
        every = parse_duration(interval, field="interval")
        if not SHORTEST_SQL_INTERVAL <= every <= LONGEST_PERIOD:
            raise InvalidTrigger(
                _("interval must be between 5s and 31 days"),
                field="interval",
                code="out_of_range",
            )
        put(self, "interval", every)
        self._set_pace(debounce, throttle, batch)

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "query": self.query,
            "connection": self.connection,
            "interval": format_duration_iso(self.interval),
        } | self._pace_dict()


_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
#: Databases differ in where a quoted text ends after these.
_AMBIGUOUS = re.compile(r"\\|--|#|/\*|\$")
_WRITES_FILE = re.compile(r"into.*(?:outfile|dumpfile)", re.IGNORECASE | re.DOTALL)


def is_single_query(query: str) -> bool:
    """Whether the text is one statement that writes no file. A semicolon may be inside quotes, and
    at the very end; with a comment or a backslash in the query, at the very end only."""
    rest = query.rstrip().removesuffix(";")
    if not _AMBIGUOUS.search(rest):
        rest = _QUOTED.sub("''", rest)
    return ";" not in rest and not _WRITES_FILE.search(rest)


def _new_token() -> str:
    import secrets

    return secrets.token_urlsafe(24)


def _text(value: object, name: str, most: int, *, needed: bool = False) -> str:
    if not isinstance(value, str):
        raise InvalidTrigger(
            _("{key} must be text, not {type}", key=name, type=type(value).__name__),
            field=name,
            code="wrong_type",
        )
    if needed and not value.strip():
        raise InvalidTrigger(_("{key} is empty", key=name), field=name, code="missing_key")
    if len(value) > most or "\0" in value:
        raise InvalidTrigger(
            _("{key} may have up to {most} characters, none of them NUL", key=name, most=most),
            field=name,
            code="too_long",
        )
    return value


def _period(value: object, name: str) -> timedelta | None:
    if value is None:
        return None
    found = parse_duration(value, field=name)  # type: ignore[arg-type]
    if found > LONGEST_PERIOD:
        raise InvalidTrigger(
            _("{key} may be at most 31 days", key=name), field=name, code="out_of_range"
        )
    return found


def _batch(value: object) -> Batch | None:
    if value is None or isinstance(value, Batch):
        return value
    given = check_keys(value, ("count", "within"), "batch")
    count = given.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 2 <= count <= MAX_BATCH:
        raise InvalidTrigger(
            _("batch.count must be a whole number from 2 to {most}", most=MAX_BATCH),
            field="batch.count",
            code="out_of_range",
        )
    within = _period(given.get("within"), "batch.within")
    if within is None:
        raise InvalidTrigger(
            _("batch needs within, the longest time that its first event waits"),
            field="batch.within",
            code="missing_key",
        )
    return Batch(count, within)
