"""Action target: executed once, polled until its end, resumed after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.egress import EgressRules
from chimes.errors import ConfigError
from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.checkpoint import (
    ExecutionEnd,
    decode_action_checkpoint,
    encode_action_checkpoint,
    execution_end,
)
from chimes.model.run import AttemptEnd, Origin
from chimes.model.target import ActionTarget
from chimes.targets.action import ActionConfig
from chimes.targets.action import runner as following
from chimes.targets.action.service import checked_config
from chimes.targets.base import NO_ACTION_SERVICE, NotConfigured, WrongNode
from chimes.targets.http.connection import READ_LIMIT
from tests.builders import with_definition
from tests.targets.action_servers import (
    COMPLETED,
    PENDING,
    RUNNING,
    TARGET,
    TOKEN,
    Given,
    action_runner,
    action_service,
    an_action,
    as_response,
    logged,
)
from tests.targets.agent_servers import StoredCheckpoint
from tests.targets.sinks import SERVER, answer
from tests.targets.waiting import pass_time, until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(following, "LONGEST_PAUSE", 0.02)


async def test_action_is_executed_for_its_account_and_polled_until_it_ends() -> None:
    states: list[Given] = [PENDING, RUNNING, COMPLETED]
    headers = (("Authorization", TOKEN), ("X-Business-Domain", "bd_public"))
    async with (
        action_service(states=states) as there,
        action_runner(
            f"{there.url}/in/v1/knowledge-networks/{{kn_id}}/", headers=headers
        ) as runner,
    ):
        call = an_action(
            state=(state := StoredCheckpoint()),
            id="run-1",
            schedule_id="sch-1",
            origin=Origin.SCHEDULE,
            slot=datetime(2030, 1, 2, 2, 0, tzinfo=UTC),
        )
        outcome = await runner.execute(call)
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result == {
        "execution_id": "e1",
        "status": "completed",
        "message": "Action execution started",
        "accepted": True,
        "followed": True,
        "counts": {"total": 2, "success": 2, "failed": 0},
        "http_status": 202,
    }
    execute, *_ = there.requests
    base = "/in/v1/knowledge-networks/kn1"
    assert (execute.method, execute.target) == ("POST", f"{base}/action-types/restart/execute")
    identities = [{"id": "pod-1"}, {"id": "pod-2"}]
    assert json.loads(execute.body) == {
        "trigger_type": "scheduled",
        "unique_identities": identities,
        "_instance_identities": identities,
        "dynamic_params": {"force": True},
    }
    sent = execute.headers
    assert (sent["x-account-id"], sent["x-account-type"]) == ("u-1", "user")
    assert (sent["idempotency-key"], sent["content-type"]) == ("run-1", "application/json")
    assert (sent["authorization"], sent["x-business-domain"]) == (TOKEN, "bd_public")
    assert (sent["x-chimes-attempt"], sent["x-chimes-schedule-id"]) == ("1", "sch-1")
    assert sent["x-chimes-slot"] == "2030-01-02T02:00:00Z"
    assert there.polls == [f"{base}/action-executions/e1"] * 3
    # Polls carry the account as well.
    assert {each.headers["x-account-id"] for each in there.requests} == {"u-1"}
    assert decode_action_checkpoint(state.value) == "e1"
    assert "Accepted as execution e1" in [text for _, text in logged(call)]


async def test_execution_id_is_checkpointed_before_the_first_poll() -> None:
    seen: list[str] = []

    class Watched(StoredCheckpoint):
        async def save(self, value: str) -> bool:
            seen.extend(there.polls)
            return await super().save(value)

    async with action_service() as there, action_runner(there.url) as runner:
        await runner.execute(an_action(state=(state := Watched())))
    assert seen == []
    assert state.writes == [encode_action_checkpoint("e1")]


async def test_next_attempt_resumes_the_same_execution() -> None:
    state = StoredCheckpoint(value=encode_action_checkpoint("e1"))
    async with action_service() as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action(state=state, attempt=2, fence=2))
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["execution_id"] == "e1"
    assert there.executed == []


async def test_idempotency_key_and_body_are_the_same_for_all_attempts() -> None:
    async with action_service(executes=[500, PENDING]) as there, action_runner(there.url) as runner:
        first = await runner.execute(an_action(id="run-1"))
        again = await runner.execute(an_action(id="run-1", attempt=2, fence=2))
    assert (first.end, first.code, first.retryable) == (AttemptEnd.FAILED, "http_500", True)
    assert again.end is AttemptEnd.SUCCEEDED
    one, two = there.executed
    assert one.headers["idempotency-key"] == two.headers["idempotency-key"] == "run-1"
    assert one.body == two.body
    assert (one.headers["x-chimes-attempt"], two.headers["x-chimes-attempt"]) == ("1", "2")


# Only 200 and 202 count as accepted.
@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (408, True),
        (429, True),
        (500, True),
        (503, True),
        (201, False),
        (301, False),
        (400, False),
        (404, False),
        (409, False),
    ],
)
async def test_error_status_on_execute_fails_the_attempt(status: int, retryable: bool) -> None:
    async with action_service(executes=[status]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action())
    assert (outcome.end, outcome.retryable) == (AttemptEnd.FAILED, retryable)
    assert outcome.code == ("redirect" if status == 301 else f"http_{status}")
    assert outcome.error.startswith(f"the action service answered HTTP {status}: ")
    assert status == 301 or outcome.error.endswith("not now: busy")
    assert outcome.result is not None
    assert (outcome.result["accepted"], outcome.result["http_status"]) == (False, status)
    assert ("error", outcome.error) in logged(call)
    assert there.polls == []


async def test_retry_after_of_the_service_delays_the_retry() -> None:
    busy = answer("429 Too Many Requests", Retry_After="7")
    async with action_service(executes=[busy]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert (outcome.retryable, outcome.retry_after) == (True, timedelta(seconds=7))


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted"])
async def test_execution_that_ended_on_acceptance_is_not_polled(status: str) -> None:
    done = as_response(COMPLETED | {"execution_id": "e1"}, status)
    async with action_service(executes=[done]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert (outcome.result["status"], outcome.result["followed"]) == ("completed", True)
    assert there.polls == []


@pytest.mark.parametrize(
    "accepted",
    [
        answer("202 Accepted"),
        answer("200 OK", b"ok"),
        answer("202 Accepted", b'{"status": "pending"}'),
        answer("202 Accepted", b'{"execution_id": "a\\nb"}'),
        answer("202 Accepted", b'{"execution_id": true}'),
        answer("202 Accepted", b'{"execution_id": ".."}'),
        answer("202 Accepted", b'{"execution_id": "."}'),
        answer("202 Accepted", b'{"execution_id": "a\\u0085b"}'),
        answer("202 Accepted", b'["e1"]'),
        answer("202 Accepted", b'{"execution_id": "' + b"x" * 201 + b'"}'),
        answer("202 Accepted", b"[" * 100_000),
    ],
)
async def test_accepted_without_execution_id_succeeds_without_polling(accepted: bytes) -> None:
    async with action_service(executes=[accepted]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action(state=(state := StoredCheckpoint())))
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert (outcome.result["execution_id"], outcome.result["followed"]) == ("", False)
    assert ("info", "Accepted; the action service returned no execution_id") in logged(call)
    assert (state.value, there.polls) == (None, [])


@pytest.mark.parametrize(("status", "looks"), [(404, 3), (405, 1), (501, 1), (403, 1)])
async def test_service_without_a_status_endpoint_succeeds_as_accepted(
    status: int, looks: int
) -> None:
    async with action_service(states=[status]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["status"] == "pending"
    assert (outcome.result["accepted"], outcome.result["followed"]) == (True, False)
    assert logged(call)[-1] == (
        "info",
        f"Accepted; the action service does not report the end (HTTP {status})",
    )
    assert len(there.polls) == looks


# A proxy may answer every URL with 200: the run counts as accepted and nothing is canceled.
@pytest.mark.parametrize(
    "empty",
    [{}, {"id": "e1"}, {"status": None}, answer("200 OK", b"<html>hello</html>")],
    ids=["nothing", "id", "null", "page"],
)
async def test_three_empty_status_responses_stop_the_polling(empty: Given) -> None:
    async with action_service(states=[empty]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert (outcome.result["accepted"], outcome.result["followed"]) == (True, False)
    assert logged(call)[-1][1] == (
        "Accepted; the action service does not report the end (HTTP 200)"
    )
    assert (len(there.polls), there.canceled) == (3, [])


async def test_empty_responses_after_a_known_status_do_not_stop_the_polling() -> None:
    states: list[Given] = [RUNNING, {}, {}, {}, {}, COMPLETED]
    async with action_service(states=states) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["followed"]


# The node that claimed the run polls the same execution.
async def test_fenced_attempt_stops_without_canceling_the_execution() -> None:
    class Fenced(StoredCheckpoint):
        async def save(self, value: str) -> bool:
            return False

    async with action_service(states=[RUNNING]) as there:
        async with action_runner(there.url) as runner:
            outcome = await runner.execute(an_action(state=Fenced()))
        assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "lost")
        assert not outcome.retryable
        assert (there.polls, there.canceled) == ([], [])
        assert len(there.executed) == 1


async def test_brief_404_responses_do_not_stop_the_polling() -> None:
    states: list[Given] = [404, 404, RUNNING, 404, 404, COMPLETED]
    async with action_service(states=states) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["followed"]
    assert len(there.polls) == 6


async def test_execution_that_disappears_fails_without_retry() -> None:
    async with action_service(states=[RUNNING, 404]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "execution_lost")
    assert not outcome.retryable
    assert outcome.error == "the action service no longer knows execution e1"
    assert len(there.polls) == 4


# A retry would execute the action a second time.
@pytest.mark.parametrize(
    ("ended", "code", "error"),
    [
        ({"status": "failed"}, "action_failed", "the action failed"),
        (
            {"status": "failed", "error_message": "it broke"},
            "action_failed",
            "the action failed: it broke",
        ),
        (
            {"status": "failed", "message": "no node"},
            "action_failed",
            "the action failed: no node",
        ),
        (
            {
                "status": "FAILED",
                "results": [{"status": "success"}, {"error_message": "no\nsuch pod"}],
            },
            "action_failed",
            "the action failed: no such pod",
        ),
        (
            {"status": "failed", "error": {"why": TOKEN.split()[1]}},
            "action_failed",
            'the action failed: {"why": "***"}',
        ),
        (
            {"status": "cancelled"},
            "action_canceled",
            "the action was canceled in the action service",
        ),
        (
            {"status": "canceled"},
            "action_canceled",
            "the action was canceled in the action service",
        ),
    ],
)
async def test_failed_execution_is_not_retried(
    ended: dict[str, Any], code: str, error: str
) -> None:
    headers = (("Authorization", TOKEN),)
    async with (
        action_service(states=[RUNNING, ended]) as there,
        action_runner(there.url, headers=headers) as runner,
    ):
        outcome = await runner.execute(an_action())
    assert (outcome.end, outcome.code, outcome.error) == (AttemptEnd.FAILED, code, error)
    assert not outcome.retryable
    assert outcome.result is not None
    assert outcome.result["execution_id"] == "e1"


async def test_failed_execution_without_reason_gets_a_default_error() -> None:
    async with (
        action_service(executes=[{"execution_id": "e1", "status": "failed"}]) as there,
        action_runner(there.url) as runner,
    ):
        outcome = await runner.execute(an_action())
    assert (outcome.code, outcome.error) == ("action_failed", "the action failed")


# The run fails only if all objects failed.
async def test_partial_failure_succeeds_with_a_warning() -> None:
    some = COMPLETED | {
        "success_count": 1,
        "failed_count": 1,
        "results": [{"error_message": "gone"}],
    }
    async with action_service(states=[some]) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["counts"] == {"total": 2, "success": 1, "failed": 1}
    assert ("warning", "1 of 2 objects failed: gone") in logged(call)


async def test_transient_errors_do_not_stop_the_polling() -> None:
    broken = b"nonsense\r\n\r\n"
    states: list[Given] = [500, 503, 429, 408, broken, answer("200 OK", b"?"), {}, COMPLETED]
    async with action_service(states=states) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(call := an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert len(there.polls) == 8
    assert sum(level == "warning" for level, _ in logged(call)) == 7


async def test_oversized_status_is_read_again_with_a_results_limit() -> None:
    long = as_response(COMPLETED | {"results": [{"result": "x" * READ_LIMIT}]})
    async with (
        action_service(states=[long, COMPLETED]) as there,
        action_runner(there.url) as runner,
    ):
        outcome = await runner.execute(an_action())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert there.polls == ["/action-executions/e1", "/action-logs/e1?results_limit=20"]


async def test_execute_response_that_hangs_or_floods_is_bounded() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    limit = timedelta(seconds=0.3)
    async with (
        action_service(then=hang) as there,
        action_runner(there.url, timeout=limit) as runner,
    ):
        outcome = await runner.execute(an_action())
        assert (outcome.end, outcome.code) == (AttemptEnd.TIMEOUT, "timeout")
        assert outcome.retryable
        assert outcome.error == "the action service did not answer within 0.3 s"
    async with action_service(then=flood) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
        assert outcome.end is AttemptEnd.SUCCEEDED
        assert outcome.result is not None
        assert outcome.result["execution_id"] == ""


async def test_refused_connection_is_retryable() -> None:
    async with action_service() as there:
        pass
    async with action_runner(there.url) as runner:
        outcome = await runner.execute(an_action())
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "connect_failed")
    assert outcome.retryable
    assert outcome.error == "the action service: connection refused"


async def test_execution_past_its_timeout_is_canceled_and_not_retried() -> None:
    async with action_service(states=[RUNNING]) as there:
        async with action_runner(there.url) as runner:
            attempt = asyncio.create_task(runner.execute(an_action()))
            await until(lambda: len(there.polls) > 1)
            pass_time(60)
            outcome = await attempt
        assert (outcome.end, outcome.code) == (AttemptEnd.TIMEOUT, "timeout")
        assert not outcome.retryable
        assert outcome.result is not None
        assert outcome.result["execution_id"] == "e1"
        (cancel,) = there.canceled
    assert cancel.target == "/action-logs/e1/cancel"
    assert json.loads(cancel.body) == {"reason": "the run timed out"}
    assert "idempotency-key" not in cancel.headers


async def test_timeout_before_acceptance_is_retryable() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with action_service(then=hang) as there, action_runner(there.url) as runner:
        outcome = await runner.execute(an_action(timeout=0.2))
    assert (outcome.end, outcome.retryable) == (AttemptEnd.TIMEOUT, True)
    assert there.canceled == []


@pytest.mark.parametrize("canceled", [True, False])
async def test_only_a_user_cancel_cancels_the_execution(canceled: bool) -> None:
    async with action_service(states=[RUNNING]) as there:
        async with action_runner(there.url) as runner:
            call = an_action(canceled=canceled)
            task = asyncio.create_task(runner.execute(call))
            await until(lambda: len(there.polls) > 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [json.loads(each.body) for each in there.canceled] == (
            [{"reason": "the run was canceled"}] if canceled else []
        )


async def test_manual_run_uses_owner_as_account_and_sends_its_branch() -> None:
    target = ActionTarget(action_type_id="a/b ü", kn_id="kn/1", branch="dev/2")
    owner = Owner(type=OwnerType.USER, id="alice")
    async with action_service() as there, action_runner(there.url) as runner:
        await runner.execute(an_action(target, owner=owner, origin=Origin.MANUAL))
        await runner.execute(an_action(target))
    first, *_, last = (each for each in there.requests if each.method == "POST")
    assert first.target == "/action-types/a%2Fb%20%C3%BC/execute?branch=dev%2F2"
    assert json.loads(first.body) == {
        "trigger_type": "manual",
        "unique_identities": [],
        "_instance_identities": [],
        "dynamic_params": {},
        "kn_id": "kn/1",
    }
    assert (first.headers["x-account-id"], first.headers["x-account-type"]) == ("alice", "user")
    assert "x-account-id" not in last.headers
    assert there.polls[0] == "/action-executions/e1?branch=dev%2F2"


async def test_kn_id_and_branch_are_encoded_in_the_url() -> None:
    target = replace(TARGET, kn_id="../kn", branch="a b")
    async with (
        action_service() as there,
        action_runner(f"{there.url}/v1/{{kn_id}}/{{branch}}") as runner,
    ):
        await runner.execute(an_action(target))
    assert there.executed[0].target == "/v1/..%2Fkn/a%20b/action-types/restart/execute"


# The operator configured this server, so its private address is allowed.
async def test_private_service_address_is_allowed_but_own_ports_and_metadata_are_not() -> None:
    async with action_service() as there, action_runner(there.url, egress=SERVER) as runner:
        assert (await runner.execute(an_action())).end is AttemptEnd.SUCCEEDED
    own = EgressRules(open_mode=True, own_ports=frozenset({("127.0.0.1", there.port)}))
    for egress, url in ((own, there.url), (SERVER, "http://169.254.169.254:80")):
        async with action_runner(url, egress=egress) as runner:
            outcome = await runner.execute(an_action())
        assert (outcome.code, outcome.retryable) == ("egress_denied", False)


# Egress rules apply to the resolved address.
async def test_egress_rules_apply_to_the_resolved_service_address() -> None:
    async with action_service() as there:
        for address, code in (("127.0.0.1", ""), ("169.254.169.254", "egress_denied")):
            url = f"http://ontology-query:{there.port}"
            async with action_runner(url, egress=SERVER, lookup=lambda _: [address]) as runner:  # noqa: B023
                outcome = await runner.execute(an_action())
            assert outcome.code == code
    assert there.executed[0].headers["host"] == f"ontology-query:{there.port}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>Bad Gateway</html>", "the action service answered HTTP 502"),
        (b"no\nupstream", "the action service answered HTTP 502: no upstream"),
        (b"{}", "the action service answered HTTP 502"),
        (b'{"error": {"code": 5}}', 'the action service answered HTTP 502: {"code": 5}'),
    ],
)
async def test_error_text_is_taken_from_the_response_body(body: bytes, message: str) -> None:
    refusal = answer("502 Bad Gateway", body)
    async with action_service(executes=[refusal]) as there, action_runner(there.url) as runner:
        assert (await runner.execute(an_action())).error == message


async def test_numeric_execution_id_is_accepted_and_long_message_truncated() -> None:
    ended = COMPLETED | {"message": "x" * 5000}
    async with (
        action_service(executes=[{"execution_id": 17}], states=[ended]) as there,
        action_runner(there.url) as runner,
    ):
        outcome = await runner.execute(an_action())
    assert outcome.result is not None
    assert outcome.result["execution_id"] == "17"
    assert len(str(outcome.result["message"])) == 1000
    assert there.polls == ["/action-executions/17"]


async def test_secrets_are_redacted_in_errors_results_and_logs() -> None:
    secret = TOKEN.split()[1]
    refusal = answer("400 Bad Request", f'{{"description": "bad token {secret}"}}'.encode())
    headers = (("Authorization", TOKEN),)
    async with (
        action_service(executes=[refusal, PENDING | {"message": secret}]) as there,
        action_runner(there.url, headers=headers) as runner,
    ):
        refused = await runner.execute(call := an_action())
        accepted = await runner.execute(an_action())
    assert secret not in f"{refused}{accepted}{logged(call)}"
    assert refused.error == "the action service answered HTTP 400: bad token ***"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "localhost:8000"}, "action_url: expected an address such as"),
        ({"url": "http://user:pw@svc"}, "action_url: .*user name or password"),
        ({"url": "http://svc/?a=1"}, "action_url: .*query"),
        ({"url": "http://svc/{kn}"}, "action_url: .*only kn_id and branch"),
        ({"url": "http://{kn_id}.svc/"}, "action_url: .*host"),
        ({"headers": (("Host", "x"),)}, "action_headers: Host is set by Chimes itself"),
        ({"headers": (("Idempotency-Key", "x"),)}, "action_headers: Idempotency-Key"),
    ],
)
def test_invalid_settings_are_rejected(given: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"url": "http://svc"}
    with pytest.raises(ConfigError, match=message):
        checked_config(ActionConfig(**(values | given)))


async def test_run_without_action_service_names_the_missing_setting() -> None:
    async def no_other_node() -> bool:
        return False

    async def another_node() -> bool:
        return True

    def runner(elsewhere: Callable[[], Awaitable[bool]]) -> NotConfigured:
        return NotConfigured("action", "no_action_service", NO_ACTION_SERVICE, elsewhere)

    call = an_action()
    outcome = await runner(no_other_node).execute(call)
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "no_action_service")
    assert "CHIMES_ACTION_URL" in outcome.error
    assert logged(call) == [("error", outcome.error)]
    with pytest.raises(WrongNode):
        await runner(another_node).execute(call)


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"execution_id": 5}'])
def test_invalid_checkpoint_decodes_to_no_execution(text: str | None) -> None:
    assert decode_action_checkpoint(text) == ""


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("pending", "running", "accepted", "queued", ""), None),
        (("completed", " Completed ", "success", "SUCCEEDED"), ExecutionEnd.COMPLETED),
        (("failed", "FAILED"), ExecutionEnd.FAILED),
        (("cancelled", "canceled"), ExecutionEnd.CANCELLED),
    ],
)
def test_status_words_map_to_execution_ends(
    words: tuple[str, ...], end: ExecutionEnd | None
) -> None:
    assert {execution_end(word) for word in words} == {end}


async def test_named_secrets_are_filled_into_parameters_and_identities() -> None:
    async with (
        action_service(states=[COMPLETED]) as there,
        action_runner(f"{there.url}/in") as runner,
    ):
        call = an_action(state=StoredCheckpoint())
        target = call.run.target
        assert isinstance(target, ActionTarget)
        target = replace(
            target, params={"key": ["{{secret.KEY}}"]}, identities=({"id": "{{secret.KEY}}"},)
        )
        call = replace(
            call, run=with_definition(call.run, target=target), secrets={"KEY": "5ecret"}
        )
        assert (await runner.execute(call)).end is AttemptEnd.SUCCEEDED
    sent = json.loads(there.requests[0].body)
    assert sent["dynamic_params"] == {"key": ["5ecret"]}
    assert sent["unique_identities"] == [{"id": "5ecret"}]
