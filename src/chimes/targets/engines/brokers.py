"""Brokers that messages are published to: AMQP, NATS JetStream, Redis streams, Kafka.

Each confirms a message before the run succeeds, and gets the run id as message id, so that the
broker or the consumer can de-duplicate. Clients are imported with the first message.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, cast

from chimes.config.connections import Connection
from chimes.i18n import _
from chimes.model.target import AmqpTarget, KafkaTarget, NatsTarget, RedisStreamTarget
from chimes.targets.base import TargetError
from chimes.targets.engines.port import Broker, Publication, Receipt, unreachable

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection

_SECONDS = 10.0


class AmqpBroker(Broker):
    """AMQP 0-9-1, such as RabbitMQ. Messages are confirmed; one that no queue takes fails."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._open: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._lock = asyncio.Lock()

    async def check(self) -> str:
        await self._ready()
        return _("broker answers")

    async def close(self) -> None:
        connection, self._open, self._channel = self._open, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def publish(self, message: Publication) -> Receipt:
        import aio_pika
        from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError

        target = cast(AmqpTarget, message.target)
        channel = await self._ready()
        envelope = aio_pika.Message(
            message.body,
            message_id=message.id,
            content_type=message.content_type,
            content_encoding="utf-8",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            headers=dict(message.headers),
            app_id="chimes",
        )
        try:
            exchange = (
                await channel.get_exchange(target.exchange, ensure=False)
                if target.exchange
                else channel.default_exchange
            )
            await exchange.publish(envelope, target.routing_key, mandatory=True)
        except PublishError:
            raise TargetError(
                "unroutable",
                _(
                    "no queue is bound to exchange {exchange!r} for routing key {key!r}",
                    exchange=target.exchange,
                    key=target.routing_key,
                ),
            ) from None
        except ChannelNotFoundEntity:
            await self.close()
            raise TargetError(
                "unknown_exchange", _("there is no exchange {name!r}", name=target.exchange)
            ) from None
        except DeliveryError:
            raise TargetError(
                "not_confirmed", _("the broker did not accept the message"), retryable=True
            ) from None
        except (ConnectionError, OSError, RuntimeError) as error:
            await self.close()
            raise unreachable(self.connection, error) from None
        except Exception as error:
            await self.close()
            raise unreachable(self.connection, error) from None
        return Receipt(facts={"exchange": target.exchange, "routing_key": target.routing_key})

    async def _ready(self) -> AbstractChannel:
        import aio_pika

        async with self._lock:
            if self._channel is not None and not self._channel.is_closed:
                return self._channel
            await self.close()
            try:
                self._open = await aio_pika.connect(self.connection.url, timeout=_SECONDS)
                self._channel = await self._open.channel(
                    publisher_confirms=True, on_return_raises=True
                )
            except Exception as error:
                await self.close()
                raise unreachable(self.connection, error) from None
            return self._channel


class NatsBroker(Broker):
    """NATS JetStream. A stream ignores a second message with the same `Nats-Msg-Id` within its
    duplicate window."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._client: Any = None
        self._lock = asyncio.Lock()

    async def check(self) -> str:
        client = await self._ready()
        try:
            account = await client.jetstream().account_info()
        except Exception as error:
            raise unreachable(self.connection, error) from None
        return _("server answers; {count} streams", count=account.streams)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    async def publish(self, message: Publication) -> Receipt:
        from nats.js.errors import NoStreamResponseError

        target = cast(NatsTarget, message.target)
        client = await self._ready()
        headers = {
            **message.headers,
            "Nats-Msg-Id": message.id,
            "Content-Type": message.content_type,
        }
        try:
            ack = await client.jetstream().publish(
                target.subject, message.body, timeout=_SECONDS, headers=headers
            )
        except NoStreamResponseError:
            raise TargetError(
                "no_stream", _("no stream has the subject {name!r}", name=target.subject)
            ) from None
        except Exception as error:
            raise unreachable(self.connection, error) from None
        facts = {"subject": target.subject, "stream": ack.stream, "sequence": ack.seq}
        return Receipt(facts=facts, duplicate=bool(ack.duplicate))

    async def _ready(self) -> Any:
        import nats

        last: list[Exception] = []

        async def note(error: Exception) -> None:
            last.append(error)

        async with self._lock:
            if self._client is not None and self._client.is_connected:
                return self._client
            await self.close()
            try:
                self._client = await nats.connect(
                    self.connection.url.split(","),
                    connect_timeout=5,
                    # Not 0, which means for ever.
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0.1,
                    error_cb=note,
                    name="chimes",
                )
            except Exception as error:
                raise unreachable(self.connection, last[-1] if last else error) from None
            return self._client


#: Adds the entry unless this run has: KEYS are the stream and the mark of the run, ARGV the
#: approximate maximal length, the seconds that the mark is kept, and the fields.
_ADD = """
local known = redis.call('GET', KEYS[2])
if known then return {known, 1} end
local command = {'XADD', KEYS[1]}
if ARGV[1] ~= '0' then
  for _, word in ipairs({'MAXLEN', '~', ARGV[1]}) do table.insert(command, word) end
end
table.insert(command, '*')
for i = 3, #ARGV do table.insert(command, ARGV[i]) end
local id = redis.call(unpack(command))
redis.call('SET', KEYS[2], id, 'EX', ARGV[2])
return {id, 0}
"""
_MARK_SECONDS = 24 * 3600


class RedisBroker(Broker):
    """Streams of Redis. The entry and a mark of the run are written in one script, so that a
    repeated attempt adds no second entry within a day."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        from redis.asyncio import Redis

        self._client = Redis.from_url(
            connection.url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS
        )

    async def check(self) -> str:
        from redis.exceptions import RedisError

        try:
            found = await self._client.info("server")
        except (RedisError, OSError) as error:
            raise unreachable(self.connection, error) from None
        return _("Redis {version} answers", version=str(found.get("redis_version")))

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await self._client.aclose()

    async def publish(self, message: Publication) -> Receipt:
        from redis.exceptions import RedisError, ResponseError

        target = cast(RedisStreamTarget, message.target)
        fields: dict[str, str] = (
            {"event": message.body.decode()} if target.cloudevents else dict(target.fields)
        )
        words = [word for pair in fields.items() for word in pair]
        # In braces: on a cluster, both keys must be in one slot.
        stream = target.stream
        mark = f"{stream if '{' in stream else '{' + stream + '}'}:chimes:{message.id}"
        try:
            answer: Any = await cast(
                Any,
                cast(Any, self._client).execute_command(
                    "EVAL",
                    _ADD,
                    2,
                    stream,
                    mark,
                    str(self.connection.max_length),
                    str(_MARK_SECONDS),
                    *("message_id", message.id, *words),
                ),
            )
        except ResponseError as error:
            raise TargetError("refused", _("Redis refused: {why}", why=str(error)[:300])) from None
        except (RedisError, OSError) as error:
            raise unreachable(self.connection, error) from None
        entry, known = answer
        return Receipt(facts={"stream": stream, "entry": entry.decode()}, duplicate=bool(known))


class KafkaBroker(Broker):
    """Topics of Kafka. The producer is idempotent and waits for all in-sync replicas; a consumer
    can tell a repeated attempt by the header `message-id`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._producer: Any = None
        self._lock = asyncio.Lock()

    async def check(self) -> str:
        producer = await self._ready()
        nodes = producer.client.cluster.brokers()
        return _("cluster answers; {count} brokers", count=len(nodes))

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                await producer.stop()

    async def publish(self, message: Publication) -> Receipt:
        from aiokafka.errors import KafkaError

        target = cast(KafkaTarget, message.target)
        producer = await self._ready()
        headers = {**message.headers, "message-id": message.id}
        headers["content-type"] = message.content_type
        try:
            record = await producer.send_and_wait(
                target.topic,
                message.body,
                key=(target.key or message.id).encode(),
                headers=[(name, value.encode()) for name, value in headers.items()],
            )
        except KafkaError as error:
            if not error.retriable:
                await self.close()
            raise unreachable(self.connection, error) from None
        facts = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        return Receipt(facts=facts)

    async def _ready(self) -> Any:
        from aiokafka import AIOKafkaProducer

        async with self._lock:
            if self._producer is not None:
                return self._producer
            connection = self.connection
            secure = connection.url.startswith("kafkas://")
            servers = connection.url.partition("://")[2].strip("/").rpartition("@")[2]
            options: dict[str, Any] = {"security_protocol": "SSL" if secure else "PLAINTEXT"}
            if secure:
                options["ssl_context"] = ssl.create_default_context()
            if connection.sasl_mechanism:
                options |= {
                    "security_protocol": "SASL_SSL" if secure else "SASL_PLAINTEXT",
                    "sasl_mechanism": connection.sasl_mechanism,
                    "sasl_plain_username": connection.username,
                    "sasl_plain_password": connection.password,
                }
            producer = AIOKafkaProducer(
                bootstrap_servers=servers.split(","),
                client_id="chimes",
                acks="all",
                enable_idempotence=True,
                request_timeout_ms=int(_SECONDS * 1000),
                **options,
            )
            try:
                await producer.start()
            except Exception as error:
                with contextlib.suppress(Exception):
                    await producer.stop()
                raise unreachable(connection, error) from None
            self._producer = producer
            return producer
