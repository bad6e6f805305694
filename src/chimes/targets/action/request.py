"""The requests that the action service gets; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from chimes.model.access import SYSTEM_OWNER
from chimes.model.http_url import parse_http_url
from chimes.model.run import Origin, Run
from chimes.model.target import ActionTarget
from chimes.redaction import masked_tail
from chimes.targets.action.config import ActionConfig
from chimes.targets.http_callback.placeholders import header_safe
from chimes.targets.http_callback.request import Request, wire_url
from chimes.triggers import format_moment

EOL = "\r\n"
#: Objects of an execution that are asked for where all of them are too many to be read.
FEW_RESULTS = 20
#: The service takes it for granted where nothing is said.
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
        # The same for all attempts: whoever honours it executes once (R0.24, C14).
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
    """The same facts, with few of the objects."""
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
    """The objects under both names (C23). Network and branch are named here where the address
    does not name them."""
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
    """Of whoever made the schedule; where nobody is named, of its owner."""
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
    shown = destination.origin + masked_tail(tail)
    return Request(method, url, EOL.join(lines).encode(), data, True, shown, config.secrets)


def _lines(headers: Mapping[str, str]) -> list[str]:
    """Each name once, whatever its case; the last one counts."""
    once = {name.lower(): (name, value) for name, value in headers.items()}
    return [f"{name}: {header_safe(value)}" for name, value in once.values()]
