"""Client of the action service: configuration, egress, requests, responses, errors."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from urllib.parse import quote

import aiohttp

from chimes.egress import (
    Address,
    Denial,
    Egress,
    EgressRules,
    HttpUrl,
    parse_http_url,
)
from chimes.errors import ConfigError, InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER
from chimes.model.checkpoint import MAX_EXECUTION_ID_LENGTH, execution_end
from chimes.model.run import AttemptEnd, Origin, Run
from chimes.model.target import ActionTarget
from chimes.model.validation import check_header_name
from chimes.redaction import Redactor, mask_url
from chimes.targets.base import TargetError
from chimes.targets.http.connection import (
    READ_LIMIT,
    EgressDenied,
    Exchange,
    GuardedConnector,
    Lookup,
    Reply,
    system_lookup,
    wait_asked,
)
from chimes.targets.http.request import Request, header_safe, wire_url
from chimes.targets.http.runner import failure_of
from chimes.triggers import format_moment


class ActionEgress:
    """Egress rules of callbacks plus the configured server, which may be private."""

    def __init__(self, egress: Egress, place: HttpUrl) -> None:
        self._egress = egress
        self._line = f"{place.bracketed_host.removesuffix('.')}:{place.port}"

    def now(self) -> EgressRules:
        return _widened(self._egress.now(), self._line)

    def check_url(self, url: HttpUrl) -> Denial | None:
        return self.now().check_url(url)

    def check_host(self, host: str, port: int) -> Denial | None:
        return self.now().check_host(host, port)

    def check_address(
        self, address: Address, port: int, *, host: str, same_machine: bool = False
    ) -> Denial | None:
        return self.now().check_address(address, port, host=host, same_machine=same_machine)


@lru_cache(maxsize=16)
def _widened(rules: EgressRules, line: str) -> EgressRules:
    """Cached by rules: connections are checked again when the object changes."""
    return replace(rules, allow=(*rules.allow, line))


#: Placeholders allowed in the address.
PLACEHOLDERS = frozenset({"kn_id", "branch"})

# Shorter values occur everywhere.
_SHORTEST_SECRET = 8
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionConfig:
    """Settings of the action service; the address may be private."""

    #: Base of `/action-types/{id}/execute`, without a trailing slash.
    url: str
    #: Sent with every request.
    headers: tuple[tuple[str, str], ...] = ()
    #: Timeout of one request.
    timeout: timedelta = timedelta(seconds=30)

    @property
    def place(self) -> HttpUrl:
        """Host and port of the service."""
        return parse_http_url(self.url)

    @property
    def names_network(self) -> bool:
        return "{kn_id}" in self.url

    @property
    def names_branch(self) -> bool:
        return "{branch}" in self.url

    @property
    def secrets(self) -> tuple[str, ...]:
        """Includes the parts of `Bearer <token>`: the service may echo the token alone."""
        words = {each for _unused, value in self.headers for each in value.split()}
        long = {each for each in words if len(each) >= _SHORTEST_SECRET}
        return tuple(sorted({value for _unused, value in self.headers} | long))

    def base_for(self, target: ActionTarget) -> str:
        filled = {"{kn_id}": target.kn_id, "{branch}": target.branch}
        return _BRACES.sub(lambda found: quote(filled[found[0]], safe=""), self.url)


def checked_config(config: ActionConfig) -> ActionConfig:
    """ConfigError names the invalid setting."""
    url = config.url.rstrip("/")
    try:
        found = parse_http_url(url)
        if "?" in found.tail:
            raise InvalidInput(_("the address must not have a query (?...)"))
        for name in _BRACES.findall(found.tail):
            if name not in PLACEHOLDERS:
                raise InvalidInput(_("only kn_id and branch can stand in braces"))
    except InvalidInput as error:
        raise ConfigError(
            _(
                "action_url: expected an address such as "
                "http://127.0.0.1:13018/knowledge-networks/{{kn_id}}: {why}",
                why=error.message,
            ),
            key="action_url",
        ) from None
    for name, _unused in config.headers:
        try:
            check_header_name(name)
        except InvalidInput as error:
            raise ConfigError(
                _("action_headers: {why}", why=error.message), key="action_headers"
            ) from None
    return replace(config, url=url)


# Responses of the action service, truncated to what is kept.

LONGEST_TEXT = 1000
LONGEST_STATUS = 50

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
#: Our names of the counts and those of the service.
_COUNTS = {"total": "total_count", "success": "success_count", "failed": "failed_count"}
_MOST_COUNTED = 10**12


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionReport:
    """A response about an execution; missing fields are empty."""

    execution_id: str = ""
    status: str = ""
    message: str = ""
    counts: Mapping[str, int] | None = None
    #: Error of the first failed object, else of the execution.
    why: str = ""


def parse_report(reply: Reply) -> ExecutionReport | None:
    """None if the body is not a JSON object."""
    found = parse_document(reply)
    if found is None:
        return None
    return ExecutionReport(
        execution_id=_id(found.get("execution_id") or found.get("id")),
        status=short(found.get("status"), LONGEST_STATUS),
        message=short(found.get("message"), LONGEST_TEXT),
        counts=_counts(found),
        why=_why(found),
    )


def parse_document(reply: Reply) -> Mapping[str, object] | None:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def rejection_text(reply: Reply) -> str:
    """The error text of a rejection in the service's format or another common one."""
    found = parse_document(reply)
    if found is None:
        page = reply.body.lstrip().startswith("<")
        return "" if page else short(reply.body, LONGEST_TEXT)
    for name in ("description", "message", "detail", "error", "title", "error_code"):
        text = short(found.get(name), LONGEST_TEXT)
        if text:
            details = short(found.get("error_details"), LONGEST_TEXT)
            return f"{text}: {details}" if details and details != text else text
    return ""


def short(given: object, most: int) -> str:
    """One line of text that every store accepts."""
    if given is None or given == "":
        return ""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    text = _CONTROL.sub(" ", text).strip().encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _id(given: object) -> str:
    """Empty if there is no usable id."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str) or len(given) > MAX_EXECUTION_ID_LENGTH:
        return ""
    if given in (".", ".."):
        # In a path they mean another resource.
        return ""
    return given if given == short(given, MAX_EXECUTION_ID_LENGTH) else ""


def _counts(found: Mapping[str, object]) -> Mapping[str, int] | None:
    counts = {
        ours: value
        for ours, theirs in _COUNTS.items()
        if isinstance(value := found.get(theirs), int)
        and not isinstance(value, bool)
        and 0 <= value <= _MOST_COUNTED
    }
    return counts or None


def _why(found: Mapping[str, object]) -> str:
    results = found.get("results")
    for each in results if isinstance(results, list) else ():
        if isinstance(each, Mapping) and each.get("error_message"):
            return short(each["error_message"], LONGEST_TEXT)
    return short(found.get("error_message") or found.get("error"), LONGEST_TEXT)


class Record:
    """What is known about an execution; a failed attempt reports it too."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.execution_id = ""
        self.status = ""
        self.message = ""
        self.why = ""
        #: The message that came with the end of the execution.
        self.last_words = ""
        self.counts: Mapping[str, int] | None = None
        #: Status of the response to `execute`; None: no response in this attempt.
        self.http_status: int | None = None
        #: Whether the service accepted the action, in this attempt or an earlier one.
        self.accepted = False
        #: Whether the service reported the end.
        self.followed = False

    def add(self, report: ExecutionReport) -> None:
        self.status = report.status or self.status
        self.message = report.message or self.message
        self.why = report.why or self.why
        if execution_end(report.status) is not None:
            self.last_words = report.message
        self.counts = report.counts or self.counts

    def result(self) -> dict[str, object]:
        found: dict[str, object] = {
            "execution_id": self.execution_id,
            "status": self.status,
            "message": self._redactor.text(self.message),
            "accepted": self.accepted,
            "followed": self.followed,
        }
        if self.counts is not None:
            found["counts"] = dict(self.counts)
        if self.http_status is not None:
            found["http_status"] = self.http_status
        return found


# Requests.

EOL = "\r\n"
#: Objects in the summary of an execution.
FEW_RESULTS = 20
#: The default branch of the service.
MAIN = "main"


def execute_request(config: ActionConfig, run: Run, target: ActionTarget, agent: str) -> Request:
    path = f"/action-types/{_part(target.action_type_id)}/execute"
    return _request(
        config,
        run,
        target,
        agent,
        method="POST",
        path=path,
        body=execute_body(config, run, target),
        # The same for all attempts: a service that honours it executes once.
        headers={"Idempotency-Key": header_safe(run.id)},
    )


def status_request(
    config: ActionConfig, run: Run, target: ActionTarget, agent: str, execution_id: str
) -> Request:
    path = f"/action-executions/{_part(execution_id)}"
    return _request(config, run, target, agent, method="GET", path=path)


def summary_request(
    config: ActionConfig, run: Run, target: ActionTarget, agent: str, execution_id: str
) -> Request:
    """The same data with few objects."""
    path = f"/action-logs/{_part(execution_id)}?results_limit={FEW_RESULTS}"
    return _request(config, run, target, agent, method="GET", path=path)


def cancel_request(
    config: ActionConfig,
    run: Run,
    target: ActionTarget,
    agent: str,
    execution_id: str,
    reason: str,
) -> Request:
    path = f"/action-logs/{_part(execution_id)}/cancel"
    body: dict[str, object] = {"reason": reason}
    return _request(config, run, target, agent, method="POST", path=path, body=body)


def execute_body(config: ActionConfig, run: Run, target: ActionTarget) -> dict[str, object]:
    """The objects under both names that services use; the network if the address has no
    placeholder for it."""
    identities = [dict(each) for each in target.identities]
    by_hand = run.origin is Origin.MANUAL
    body: dict[str, object] = {
        "trigger_type": "manual" if by_hand else "scheduled",
        "unique_identities": identities,
        "_instance_identities": identities,
        "dynamic_params": dict(target.params),
    }
    if not config.names_network:
        body["kn_id"] = target.kn_id
    return body


def account_headers(run: Run, target: ActionTarget) -> dict[str, str]:
    """The account of the target, else the owner of the run."""
    if target.account_id:
        found = {"X-Account-Id": target.account_id}
        return found | ({"X-Account-Type": target.account_type} if target.account_type else {})
    if run.owner == SYSTEM_OWNER:
        return {}
    return {"X-Account-Id": run.owner.id, "X-Account-Type": run.owner.type.value}


def _part(text: str) -> str:
    return quote(text, safe="")


def _request(
    config: ActionConfig,
    run: Run,
    target: ActionTarget,
    agent: str,
    *,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    if target.branch != MAIN and not config.names_branch:
        path += f"{'&' if '?' in path else '?'}branch={_part(target.branch)}"
    destination = parse_http_url(config.base_for(target))
    tail = destination.tail.rstrip("/") + path
    url = wire_url(destination, tail)
    data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    sent: dict[str, str] = {
        "Host": str(url.host_port_subcomponent),
        "User-Agent": agent,
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        **dict(config.headers),
        **account_headers(run, target),
        **(headers or {}),
        "X-Chimes-Attempt": str(run.attempt),
        "X-Chimes-Fence": str(run.fence),
        "X-Chimes-Slot": format_moment(run.slot or run.planned_at),
    }
    if run.schedule_id:
        sent["X-Chimes-Schedule-Id"] = run.schedule_id
    if body is not None:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1", *_lines(sent), "", ""]
    shown = destination.origin + mask_url(tail)
    return Request(method, url, EOL.join(lines).encode(), data, True, shown, config.secrets)


def _lines(headers: Mapping[str, str]) -> list[str]:
    """Each name once, ignoring case; the last value wins."""
    once = {name.lower(): (name, value) for name, value in headers.items()}
    return [f"{name}: {header_safe(value)}" for name, value in once.values()]


def not_accepted(reply: Reply, now: datetime) -> TargetError:
    """For a response to `execute` other than 200 and 202; `now` is the store's time."""
    status = reply.status
    if 300 <= status <= 399:
        return TargetError(
            "redirect",
            _(
                "the action service answered HTTP {status}: redirects are not followed",
                status=status,
            ),
        )
    detail = rejection_text(reply)
    if detail:
        text = _(
            "the action service answered HTTP {status}: {detail}", status=status, detail=detail
        )
    else:
        text = _("the action service answered HTTP {status}", status=status)
    retryable = status in (408, 429) or status >= 500
    return TargetError(
        f"http_{status}",
        text,
        retryable=retryable,
        retry_after=wait_asked(reply.retry_after, now) if status in (429, 503) else None,
    )


def too_slow(seconds: float) -> TargetError:
    """Timeout of a single request."""
    return TargetError(
        "timeout",
        _("the action service did not answer within {seconds:g} s", seconds=seconds),
        end=AttemptEnd.TIMEOUT,
        retryable=True,
    )


class ActionService:
    def __init__(
        self,
        config: ActionConfig,
        *,
        egress: Egress,
        connections: int,
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._seconds = config.timeout.total_seconds()
        self._egress = ActionEgress(egress, config.place)
        self._connections = connections
        self._lookup = lookup
        self._tls = tls
        self._exchange: Exchange | None = None

    async def open(self) -> None:
        self._exchange = Exchange(
            GuardedConnector(
                rules=self._egress, limit=self._connections, lookup=self._lookup, tls=self._tls
            )
        )

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close()

    async def send(self, request: Request) -> Reply:
        """Returns any HTTP response; TargetError if there is none."""
        assert self._exchange is not None, "open() comes first"
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange.send(request, keep=READ_LIMIT)
        except TimeoutError:
            raise too_slow(self._seconds) from None
        except (aiohttp.ClientError, EgressDenied, OSError) as error:
            failure = failure_of(error)
            raise TargetError(
                failure.code,
                _("the action service: {failure}", failure=failure.text),
                retryable=failure.retryable,
            ) from None
