"""Attachments: size and time budget, permits, links for files that do not fit."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from chimes.egress import EgressRules
from chimes.model.notification import Artifact
from chimes.model.recipient import Channel
from chimes.notifications.attachments import CAPACITY, AttachmentFetcher
from chimes.notifications.base import Sent
from chimes.notifications.email import Email, Server, parse_sender
from tests.notifications.attempts import a_recipient, an_attempt, an_ended_run
from tests.notifications.bot_api import serve_app
from tests.notifications.smtp_server import smtp_server

TO = a_recipient(Channel.EMAIL)
SENDER = parse_sender("chimes@example.org")


class Pipeline:
    """Serves artifacts: `/6` has six bytes, `/never` never responds."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        name = request.match_info["name"]
        if name == "never":
            await asyncio.Event().wait()
        return web.Response(body=b"x" * int(name))


@asynccontextmanager
async def pipeline() -> AsyncIterator[tuple[str, Pipeline]]:
    made = Pipeline()
    app = web.Application()
    app.router.add_get("/{name}", made.answer)
    async with serve_app(app) as url:
        yield url, made


@asynccontextmanager
async def fetcher_at(url: str, **given: Any) -> AsyncIterator[AttachmentFetcher]:
    fetcher = AttachmentFetcher(
        egress=EgressRules(open_mode=False), user_agent="test", agent_url=url, **given
    )
    await fetcher.open()
    try:
        yield fetcher
    finally:
        await fetcher.close()


def artifact(name: str) -> Artifact:
    return Artifact(name=name, url=name)


async def test_files_share_one_size_limit() -> None:
    async with pipeline() as (url, _), fetcher_at(url, max_bytes=10) as fetcher:
        async with fetcher.budget(3) as budget:
            found = [await budget.fetch(artifact(name)) for name in ("6", "5", "4")]
        async with fetcher.budget(1) as budget:
            assert await budget.fetch(artifact("10")) is not None
    assert [file and len(file.content) for file in found] == [6, None, 4]


async def test_files_share_one_deadline() -> None:
    loop = asyncio.get_running_loop()
    async with pipeline() as (url, made), fetcher_at(url, seconds=2) as fetcher:
        began = loop.time()
        async with fetcher.budget(3) as budget:
            found = [await budget.fetch(artifact("never")) for _ in range(3)]
        assert loop.time() - began < 5, "three deadlines would be 6 s"
    assert found == [None] * 3
    assert len(made.requests) == 1


# A permit is held from the fetch to the end of the sending; without one, files become links.
async def test_concurrent_attempts_with_files_are_limited() -> None:
    files = [{"name": "report", "url": "6"}]
    async with pipeline() as (url, made), smtp_server() as smtp:
        smtp.answers["END"] = ""
        fetcher = AttachmentFetcher(
            egress=EgressRules(open_mode=False), user_agent="test", agent_url=url, seconds=1
        )
        server = Server(host="127.0.0.1", port=smtp.port, tls=False)
        email = Email(server=server, sender=SENDER, fetcher=fetcher, seconds=6)
        await email.open()
        letters = [an_attempt(an_ended_run(artifacts=files), TO) for _ in range(CAPACITY + 3)]
        await asyncio.gather(*(email.send(each) for each in letters))
        assert len(made.requests) == CAPACITY
        attached = [len(list(mail.message.iter_attachments())) for mail in smtp.mails]
        assert sorted(attached) == [0] * 3 + [1] * CAPACITY
        del smtp.answers["END"]
        # The permits are free again.
        assert isinstance(await email.send(letters[0]), Sent)
        assert len(made.requests) == CAPACITY + 1
        await email.close()


@pytest.mark.parametrize("key", ["", "the-key"])
async def test_credentials_in_the_pipeline_url_are_sent(key: str) -> None:
    async with pipeline() as (url, made):
        with_login = url.replace("http://", "http://ada:s%40cret@")
        async with (
            fetcher_at(with_login, agent_key=key) as fetcher,
            fetcher.budget(2) as budget,
        ):
            assert await budget.fetch(artifact("6")) is not None
            assert await budget.fetch(Artifact(name="whole", url=f"{url}/6")) is not None
    basic = "Basic " + base64.b64encode(b"ada:s@cret").decode()
    wanted = f"Bearer {key}" if key else basic
    assert [request.headers["Authorization"] for request in made.requests] == [wanted] * 2
