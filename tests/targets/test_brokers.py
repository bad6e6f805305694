"""Messages for real brokers: RabbitMQ, NATS JetStream and Redis streams. No Kafka server can be had
here: its protocol is spoken with the mock cluster of librdkafka, which listens on a port."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from chimes.config.connections import Connection
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import (
    AmqpTarget,
    KafkaTarget,
    NatsTarget,
    PublishTarget,
    RedisStreamTarget,
)
from chimes.targets.base import Call
from chimes.targets.engines.brokers import AmqpBroker, KafkaBroker, NatsBroker, RedisBroker
from chimes.targets.engines.port import Broker
from chimes.targets.engines.runner import PublishRunner
from tests.builders import NOW, a_run
from tests.servers import NATS, RABBITMQ, shared
from tests.servers.redis_places import empty_redis_url

SECRET = "hunter2-very-secret"


async def as_it_is(connection: Connection) -> Connection:
    return connection


@asynccontextmanager
async def publisher(
    kind: str, build: Callable[[Connection], Broker], **connection: Any
) -> AsyncIterator[PublishRunner]:
    given = Connection(name="main", kind=kind, **connection)
    runner = PublishRunner(kind, [given], build, as_it_is, "https://chimes.example.com")
    try:
        yield runner
    finally:
        await runner.close()


def a_message(target: PublishTarget, *, seconds: float = 30, **run: Any) -> Call:
    values: dict[str, Any] = {
        "target": target,
        "policy": Policy(timeout=timedelta(seconds=seconds)),
        "attempt": 1,
        "fence": 1,
    }
    return Call(
        run=a_run(**values | run),
        triggered_at=NOW,
        log=lambda level, message: None,
        secrets={"TOKEN": SECRET},
    )


def succeeded(outcome: Outcome) -> dict[str, Any]:
    assert outcome.end is AttemptEnd.SUCCEEDED, outcome
    assert outcome.result is not None
    return dict(outcome.result)


def failed(outcome: Outcome, code: str, *, retryable: bool) -> None:
    found = (outcome.end, outcome.code, outcome.retryable)
    assert found == (AttemptEnd.FAILED, code, retryable), outcome


async def test_amqp_message_is_confirmed_and_has_the_run_id() -> None:
    import aio_pika

    url, queue_name = shared(RABBITMQ).url, f"orders-{secrets.token_hex(4)}"
    async with (
        await aio_pika.connect(url) as connection,
        publisher("amqp", AmqpBroker, url=url) as runner,
    ):
        channel = await connection.channel()
        exchange = await channel.declare_exchange(queue_name, "topic", auto_delete=True)
        queue = await channel.declare_queue(queue_name, exclusive=True)
        await queue.bind(exchange, "order.*")
        target = AmqpTarget(
            connection="main",
            exchange=queue_name,
            routing_key="order.{{schedule_name}}",
            body='{"run": "{{run_id}}", "token": "{{secret.TOKEN}}"}',
        )
        call = a_message(target, id="run-1", schedule_name="nightly")
        result = succeeded(await runner.execute(call))
        assert result["message_id"] == "run-1"
        assert result["routing_key"] == "order.nightly"
        assert SECRET not in json.dumps(result)
        message = await queue.get(timeout=20)
        assert (message.message_id, message.content_type) == ("run-1", "application/json")
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
        assert json.loads(message.body) == {"run": "run-1", "token": SECRET}
        assert message.headers["chimes-run-id"] == "run-1"
        await message.ack()

        event = AmqpTarget(
            connection="main", routing_key=queue_name, body='{"n": 7}', cloudevents=True
        )
        succeeded(await runner.execute(a_message(event, id="run-2", schedule_name="nightly")))
        message = await queue.get(timeout=20)
        envelope = json.loads(message.body)
        assert message.content_type == "application/cloudevents+json"
        assert {name: envelope[name] for name in ("specversion", "id", "source", "type")} == {
            "specversion": "1.0",
            "id": "run-2",
            "source": "https://chimes.example.com",
            "type": "chimes.run",
        }
        assert (envelope["subject"], envelope["data"]) == ("nightly", {"n": 7})
        await message.ack()

        nowhere = AmqpTarget(connection="main", exchange=queue_name, routing_key="nobody")
        failed(await runner.execute(a_message(nowhere)), "unroutable", retryable=False)
        missing = AmqpTarget(connection="main", exchange="no-such-exchange", routing_key="a")
        outcome = await runner.execute(a_message(missing))
        failed(outcome, "unknown_exchange", retryable=False)
        # The channel was closed by the broker; the next message opens another.
        succeeded(await runner.execute(a_message(event, id="run-3")))


async def test_an_unreachable_broker_fails_so_that_the_run_is_retried() -> None:
    for kind, build, target in (
        ("amqp", AmqpBroker, AmqpTarget(connection="main", routing_key="q")),
        ("nats", NatsBroker, NatsTarget(connection="main", subject="q")),
        ("redis", RedisBroker, RedisStreamTarget(connection="main", stream="q")),
        ("kafka", KafkaBroker, KafkaTarget(connection="main", topic="q")),
    ):
        url = f"{kind}://user:{SECRET}@127.0.0.1:9/"
        async with publisher(kind, build, url=url) as runner:  # type: ignore[arg-type]
            outcome = await runner.execute(a_message(target))
            failed(outcome, "unreachable", retryable=True)
            assert SECRET not in outcome.error


async def test_patterns_of_the_operator_apply_to_the_filled_name() -> None:
    async with publisher("amqp", AmqpBroker, url="amqp://127.0.0.1:9/", allow=("x.*",)) as runner:
        target = AmqpTarget(connection="main", exchange="y.{{run_id}}")
        failed(await runner.execute(a_message(target)), "not_allowed_there", retryable=False)


async def test_nats_stream_takes_a_run_once() -> None:
    import nats

    url, name = shared(NATS).url, f"orders{secrets.token_hex(4)}"
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[f"{name}.>"])
        async with publisher("nats", NatsBroker, url=url) as runner:
            target = NatsTarget(
                connection="main", subject=f"{name}.{{{{run_id}}}}", body="hello {{attempt}}"
            )
            first = succeeded(await runner.execute(a_message(target, id="run-1")))
            assert (first["stream"], first["sequence"]) == (name, 1)
            assert "duplicate" not in first
            again = succeeded(await runner.execute(a_message(target, id="run-1", attempt=2)))
            assert (again["sequence"], again["duplicate"]) == (1, True)
            stored = await stream.get_msg(name, 1)
            assert (stored.data, stored.subject) == (b"hello 1", f"{name}.run-1")
            assert stored.headers is not None
            assert stored.headers["Nats-Msg-Id"] == "run-1"
            assert (await stream.stream_info(name)).state.messages == 1
            outside = NatsTarget(connection="main", subject="elsewhere")
            failed(await runner.execute(a_message(outside)), "no_stream", retryable=False)
    finally:
        await client.close()


async def test_redis_stream_takes_a_run_once() -> None:
    from redis.asyncio import Redis

    url = empty_redis_url().partition("?")[0]
    async with (
        Redis.from_url(url, decode_responses=True) as client,
        publisher("redis", RedisBroker, url=url, max_length=1000) as runner,
    ):
        target = RedisStreamTarget(
            connection="main", stream="orders", fields={"run": "{{run_id}}", "n": "1"}
        )
        first = succeeded(await runner.execute(a_message(target, id="run-1")))
        again = succeeded(await runner.execute(a_message(target, id="run-1", attempt=2)))
        assert (again["entry"], again["duplicate"]) == (first["entry"], True)
        event = RedisStreamTarget(
            connection="main", stream="orders", fields={"n": "2"}, cloudevents=True
        )
        succeeded(await runner.execute(a_message(event, id="run-2")))
        entries = await client.xrange("orders")
        assert entries[0] == (
            first["entry"],
            {"message_id": "run-1", "run": "run-1", "n": "1"},
        )
        assert entries[1][1]["message_id"] == "run-2"
        envelope = json.loads(entries[1][1]["event"])
        assert (envelope["id"], envelope["data"]) == ("run-2", {"n": "2"})
        assert len(entries) == 2
        await client.set("text", "not a stream")
        wrong = RedisStreamTarget(connection="main", stream="text", fields={"n": "1"})
        failed(await runner.execute(a_message(wrong)), "refused", retryable=False)


async def test_kafka_record_has_the_run_id_in_its_header() -> None:
    from confluent_kafka import Consumer, Producer

    quiet = {"log_level": 0}
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", **quiet})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    address = f"{broker.host}:{broker.port}"
    async with publisher("kafka", KafkaBroker, url=f"kafka://{address}") as runner:
        target = KafkaTarget(connection="main", topic="orders", body="{{run_id}}")
        result = succeeded(await runner.execute(a_message(target, id="run-1")))
        assert (result["topic"], result["offset"]) == ("orders", 0)
        keyed = KafkaTarget(
            connection="main", topic="orders", key="{{schedule_name}}", cloudevents=True
        )
        succeeded(await runner.execute(a_message(keyed, id="run-2", schedule_name="nightly")))
    options = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, **quiet})
    try:
        consumer.subscribe(["orders"])
        found = {}
        while len(found) < 2:
            record = await asyncio.to_thread(consumer.poll, 30)
            assert record is not None
            assert record.error() is None
            headers = dict(record.headers())
            found[headers["message-id"]] = (record.key(), record.value())
    finally:
        consumer.close()
    assert found[b"run-1"] == (b"run-1", b"run-1")
    key, value = found[b"run-2"]
    assert (key, json.loads(value)["id"]) == (b"nightly", "run-2")


async def test_time_for_a_broker_that_does_not_answer_is_limited() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        url = f"amqp://127.0.0.1:{port}/"
        async with publisher("amqp", AmqpBroker, url=url) as runner:
            target = AmqpTarget(connection="main", routing_key="q")
            outcome = await runner.execute(a_message(target, seconds=0.5))
            assert outcome.end is AttemptEnd.TIMEOUT
