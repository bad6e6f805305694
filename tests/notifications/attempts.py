"""Builders of delivery attempts, messages and recipients."""

from __future__ import annotations

from typing import Any

from chimes.model import replace
from chimes.model.ids import DeliveryId
from chimes.model.notification import Delivery, plan_deliveries
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import Run, RunStatus
from chimes.model.target import AgentTarget
from chimes.notifications.base import DeliveryAttempt, Progress
from chimes.notifications.message import NotificationMessage, build_message
from tests.builders import NOW, a_run, a_schedule, with_definition

CHAT = "4242"
ARTIFACTS = "artifacts"


def a_recipient(channel: Channel = Channel.TELEGRAM, **given: Any) -> Recipient:
    to = {
        Channel.TELEGRAM: CHAT,
        Channel.WEBHOOK: "http://127.0.0.1:1/hook",
        Channel.EMAIL: "ada@example.com",
        Channel.SLACK: "https://hooks.slack.com/services/T/B/X",
        Channel.APPRISE: "ntfy://topic",
        Channel.INBOX: "",
    }[channel]
    return Recipient(**({"channel": channel, "to": to} | given))


def an_ended_run(text: str = "all is well", **given: Any) -> Run:
    """A run of an agent on a schedule, with its answer."""
    values: dict[str, Any] = {
        "status": RunStatus.SUCCEEDED,
        "target": AgentTarget(prompt="say something"),
        "result": {"text": text, "artifacts": given.pop(ARTIFACTS, [])},
    }
    return a_run(a_schedule(name="Morning report"), **(values | given))


def a_delivery_of(run: Run, recipient: Recipient, notify_on: NotifyOn | None = None) -> Delivery:
    run = with_definition(run, policy=Policy(delivery=(recipient,)))
    (made,) = plan_deliveries(run, None, NOW)
    return made if notify_on is None else replace(made, notify_on=notify_on)


def a_message(run: Run, recipient: Recipient | None = None, **given: Any) -> NotificationMessage:
    values: dict[str, Any] = {"language": "en", "zone": "Asia/Bangkok"}
    delivery = a_delivery_of(run, recipient or a_recipient(), given.pop("notify_on", None))
    return build_message(delivery, run, **(values | given))


def an_attempt(
    run: Run | None = None, recipient: Recipient | None = None, *, done: int = 0, **given: Any
) -> DeliveryAttempt:
    run = run or an_ended_run()
    recipient = recipient or a_recipient()
    delivery = a_delivery_of(run, recipient)
    return DeliveryAttempt(
        delivery_id=DeliveryId(delivery.id),
        recipient=recipient,
        owner=run.owner,
        message=a_message(run, recipient, **given),
        now=NOW,
        progress=Progress(done),
    )
