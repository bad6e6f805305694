"""Driver `http_json`: pulls a paged JSON API; inside the process of a task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from urllib.parse import quote

import aiohttp
from yarl import URL

from chimes.clock import SystemClock
from chimes.model.egress import EgressRules
from chimes.redaction import masked_url
from chimes.targets.http_callback.connector import GuardedConnector
from chimes.targets.http_callback.resolver import EgressDenied
from chimes.targets.http_callback.response import wait_asked
from chimes.targets.sync.egress_wire import rules_from_plain
from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.http_config import HttpJsonConfig, read_http_json
from chimes.targets.sync.http_paging import (
    Page,
    Position,
    first_page,
    higher,
    page_after,
    records_in,
    value_at,
)
from chimes.targets.sync.http_sinks import Sink, sink_for
from chimes.targets.sync.sections import Section
from chimes.targets.sync.tether import Tether
from chimes.targets.sync.wire import Request
from chimes.triggers.duration import format_duration_go
from chimes.wording import joined, say

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(minutes=1)
LONGEST_ASKED = timedelta(hours=1)
_PIECE = 64 * 1024


def synchronise(request: Request, tether: Tether) -> Mapping[str, object]:
    config = read_http_json(Section(request.config, "config"))
    with closing(sink_for(config.output, request)) as sink:
        return asyncio.run(_Pull(config, request, tether, sink).run())


class _Again(Exception):
    """Worth another try."""

    def __init__(self, why: str, asked: timedelta | None = None) -> None:
        super().__init__(why)
        self.asked = asked


class _Pull:
    def __init__(
        self, config: HttpJsonConfig, request: Request, tether: Tether, sink: Sink
    ) -> None:
        self._config = config
        self._request = request
        self._tether = tether
        self._sink = sink
        kept = request.kept
        self._since = kept.get("cursor") if isinstance(kept, dict) else None
        self._base = self._first_url()
        self._clock = SystemClock()

    async def run(self) -> Mapping[str, object]:
        """The cursor is kept when all pages are written: they need not come in its order."""
        config = self._config
        cursor: object = self._since
        pages = records = 0
        seen: set[URL] = set()
        position: Position | None = first_page(config.pagination)
        async with _session(rules_from_plain(self._request.rules)) as session:
            while position is not None:
                url = self._url_of(position)
                if url in seen:
                    raise DriverFailure(
                        "endless_pages", say("page {number} was there already", number=pages + 1)
                    )
                if pages >= config.max_pages:
                    raise DriverFailure(
                        "endless_pages",
                        say(
                            "there are more than {most} pages (max_pages)",
                            most=config.max_pages,
                        ),
                    )
                seen.add(url)
                page = await self._page(session, url, pages + 1)
                self._sink.add(page.records)
                pages, records = pages + 1, records + len(page.records)
                if config.cursor is not None:
                    for each in page.records:
                        cursor = higher(cursor, value_at(each, config.cursor.field))
                position = page_after(config.pagination, position, page)
        self._sink.commit()
        if config.cursor is not None and cursor is not None:
            self._tether.keep({"cursor": cursor})
        self._tether.log(
            "info", say("{records} records of {pages} pages", records=records, pages=pages)
        )
        return {"records": records, "pages": pages}

    def _first_url(self) -> URL:
        config = self._config
        since = self._since
        if since is None and config.cursor is not None:
            since = config.cursor.start
        places = {
            "source": self._request.source,
            "collection": self._request.collection,
            "cursor": "" if since is None else str(since),
        }
        text = config.url
        for name, value in places.items():
            text = text.replace(f"{{{name}}}", quote(value, safe=""))
        params = dict(config.params)
        if config.cursor is not None and config.cursor.parameter and since is not None:
            params[config.cursor.parameter] = str(since)
        return URL(text, encoded=True).update_query(params)

    def _url_of(self, position: Position) -> URL:
        if not position.link:
            return self._base.update_query(position.params)
        url = self._base.join(URL(position.link))
        if url.origin() != self._base.origin():
            # The headers are meant for the one, not for whom it names.
            raise DriverFailure(
                "bad_answer", say("the next page is on another host: {host}", host=url.host)
            )
        return url

    async def _page(self, session: aiohttp.ClientSession, url: URL, number: int) -> Page:
        wait = FIRST_WAIT
        for left in range(self._config.retries, -1, -1):
            try:
                async with asyncio.timeout(self._config.timeout.total_seconds()):
                    return await self._fetched(session, url)
            except EgressDenied as denied:
                raise DriverFailure("egress_denied", denied.args[0]) from None
            except TimeoutError:
                again = _Again(
                    say("no answer within {time}", time=format_duration_go(self._config.timeout))
                )
            except (aiohttp.ClientError, OSError) as error:
                again = _Again(joined(": ", (type(error).__name__, str(error))))
            except _Again as failure:
                again = failure
            if not left:
                break
            pause = max(wait, min(again.asked or wait, LONGEST_ASKED))
            self._tether.log(
                "warning",
                say(
                    "page {number}: {problem}; again in {time}",
                    number=number,
                    problem=again.args[0],
                    time=format_duration_go(pause),
                ),
            )
            await asyncio.sleep(pause.total_seconds())
            wait = min(2 * wait, LONGEST_WAIT)
        raise DriverFailure(
            "no_answer",
            say("{problem}: {url}", problem=again.args[0], url=masked_url(str(url))),
        )

    async def _fetched(self, session: aiohttp.ClientSession, url: URL) -> Page:
        headers = {"Accept": "application/json", **self._config.headers}
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            status = response.status
            if status in (408, 429) or status >= 500:
                asked = wait_asked(response.headers.get("Retry-After"), self._clock.now())
                raise _Again(say("answered {status}", status=status), asked)
            if not 200 <= status < 300:
                shown = masked_url(str(url))
                raise DriverFailure(
                    "bad_status",
                    say(
                        "{url} answered {status}: redirects are not followed",
                        url=shown,
                        status=status,
                    )
                    if status < 400
                    else say("{url} answered {status}: that is final", url=shown, status=status),
                )
            body = await self._body(response)
            link = response.links.get("next")
            return Page(
                records=records_in(body, self._config.records),
                body=body,
                link=str(link["url"]) if link else "",
            )

    async def _body(self, response: aiohttp.ClientResponse) -> object:
        received = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            received += piece
            if len(received) > self._config.max_page_bytes:
                raise DriverFailure(
                    "answer_too_large",
                    say(
                        "a page has over {most} bytes (max_page_bytes)",
                        most=self._config.max_page_bytes,
                    ),
                )
        try:
            return json.loads(received)
        except (ValueError, RecursionError) as error:
            raise DriverFailure(
                "bad_answer", say("the answer is no JSON: {error}", error=str(error))
            ) from None


def _session(rules: EgressRules) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=GuardedConnector(rules=rules, limit=1),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
    )
