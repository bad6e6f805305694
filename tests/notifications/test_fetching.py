"""Files of letters: little memory, one deadline, and a link for what does not fit (I14)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from chimes.model.egress import EgressRules
from chimes.model.notification import Artifact
from chimes.model.recipient import Channel
from chimes.notifications.attachments import PLACES, Fetcher
from chimes.notifications.base import Sent
from chimes.notifications.email import Email, Server, sender_of
from tests.notifications.bot_api import served
from tests.notifications.letters import a_letter, a_recipient, an_ended_run
from tests.notifications.smtp_server import smtp_server

TO = a_recipient(Channel.EMAIL)
SENDER = sender_of("chimes@example.org")


class Pipeline:
    """Where artifacts lie: `/6` has six bytes, `/never` never comes."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        name = request.match_info["name"]
        if name == "never":
            await asyncio.Event().wait()
        return web.Response(body=b"x" * int(name))


@asynccontextmanager
async def pipeline() -> AsyncIterator[tuple[str, Pipeline]]:
    made = Pipeline()
    app = web.Application()
    app.router.add_get("/{name}", made.answer)
    async with served(app) as url:
        yield url, made


@asynccontextmanager
async def fetcher_at(url: str, **given: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(
        egress=EgressRules(open_mode=False), user_agent="test", agent_url=url, **given
    )
    await fetcher.open()
    try:
        yield fetcher
    finally:
        await fetcher.close()


def artifact(name: str) -> Artifact:
    return Artifact(name=name, url=name)


async def test_the_files_of_a_letter_share_one_size() -> None:
    async with pipeline() as (url, _), fetcher_at(url, most_bytes=10) as fetcher:
        async with fetcher.fetching(3) as fetching:
            found = [await fetching.fetch(artifact(name)) for name in ("6", "5", "4")]
        async with fetcher.fetching(1) as fetching:
            assert await fetching.fetch(artifact("10")) is not None
    assert [file and len(file.content) for file in found] == [6, None, 4]


async def test_the_files_of_a_letter_share_one_deadline() -> None:
    loop = asyncio.get_running_loop()
    async with pipeline() as (url, made), fetcher_at(url, seconds=0.3) as fetcher:
        began = loop.time()
        async with fetcher.fetching(3) as fetching:
            found = [await fetching.fetch(artifact("never")) for _ in range(3)]
        assert loop.time() - began < 0.8
    assert found == [None] * 3
    assert len(made.asked) == 1


# A place is held over the fetch AND the sending; who gets none in time sends links
async def test_few_letters_hold_files_at_once() -> None:
    files = [{"name": "report", "url": "6"}]
    async with pipeline() as (url, made), smtp_server() as smtp:
        smtp.answers["END"] = ""
        fetcher = Fetcher(
            egress=EgressRules(open_mode=False), user_agent="test", agent_url=url, seconds=0.3
        )
        server = Server(host="127.0.0.1", port=smtp.port, tls=False)
        email = Email(server=server, sender=SENDER, fetcher=fetcher, seconds=2.5)
        await email.open()
        letters = [a_letter(an_ended_run(artifacts=files), TO) for _ in range(PLACES + 3)]
        await asyncio.gather(*(email.send(each) for each in letters))
        assert len(made.asked) == PLACES
        attached = [len(list(mail.message.iter_attachments())) for mail in smtp.mails]
        assert sorted(attached) == [0] * 3 + [1] * PLACES
        del smtp.answers["END"]
        # The places are free again.
        assert isinstance(await email.send(letters[0]), Sent)
        assert len(made.asked) == PLACES + 1
        await email.close()


@pytest.mark.parametrize("key", ["", "the-key"])
async def test_a_pipeline_with_a_login_in_its_address_gives_its_files(key: str) -> None:
    async with pipeline() as (url, made):
        with_login = url.replace("http://", "http://ada:s%40cret@")
        async with (
            fetcher_at(with_login, agent_key=key) as fetcher,
            fetcher.fetching(2) as fetching,
        ):
            assert await fetching.fetch(artifact("6")) is not None
            assert await fetching.fetch(Artifact(name="whole", url=f"{url}/6")) is not None
    basic = "Basic " + base64.b64encode(b"ada:s@cret").decode()
    wanted = f"Bearer {key}" if key else basic
    assert [request.headers["Authorization"] for request in made.asked] == [wanted] * 2
