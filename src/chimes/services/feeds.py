"""Feeds of coming fires: create, list, revoke, and read with the token of the address."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.language import describe
from chimes.model.access import Actor, Owner, Role
from chimes.model.audit import AuditEntry, entry
from chimes.model.feed import FEEDS_CHECKPOINT, MAX_FEEDS, Feed, feed_calendar
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.model.validation import check_text
from chimes.services.access import CALCULATIONS
from chimes.services.documents import Document, DocumentStore
from chimes.services.forecast import ForecastService
from chimes.services.schedules.service import ScheduleService
from chimes.services.system import may_control
from chimes.store.codec.values import codec_of
from chimes.store.port import Store

_codec = codec_of(Feed)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFeed:
    feed: Feed
    #: Shown once, never stored.
    token: str


def _check_may_change(actor: Actor, owner: Owner) -> None:
    own = owner == actor.owner and may_control(actor)
    if actor.is_agent or not (own or actor.may_write(owner)):
        raise NotAllowed()


class FeedService:
    def __init__(self, store: Store, schedules: ScheduleService) -> None:
        self._store = store
        self._schedules = schedules
        self._document = DocumentStore(store, FEEDS_CHECKPOINT)

    async def create(
        self,
        actor: Actor,
        *,
        label: str = "",
        schedule: str | None = None,
        of: Owner | None = None,
    ) -> NewFeed:
        """`label`, `schedule` or `of` (an owner): exactly one of them. The feed shows what the
        actor may see."""
        if [bool(label), schedule is not None, of is not None].count(True) != 1:
            raise InvalidInput(
                _("give exactly one of label, schedule and owner"), field="label", code="missing"
            )
        # A feed outlives the key that made it.
        _check_may_change(actor, actor.owner)
        check_text(label, "label")
        if schedule is not None:
            await self._schedules.get(actor, ScheduleId(schedule))
        if of is not None and not actor.may_see(of):
            raise NotAllowed()
        now = await self._store.now()
        token = secrets.token_urlsafe(32)
        feed = Feed(
            id=uuid.uuid4().hex[:12],
            owner=actor.owner,
            sees_everything=actor.sees_everything,
            label=label.strip(),
            schedule=None if schedule is None else ScheduleId(schedule),
            of=of,
            digest=_digest(token),
            created_at=now,
            created_by=actor.name,
        )
        audit = entry(
            actor,
            "create_feed",
            "feed",
            feed.id,
            at=now,
            owner=actor.owner,
            changes={"feed": [None, feed.title]},
        )

        def add(document: Document) -> tuple[Document, AuditEntry]:
            feeds = feeds_from(document)
            if sum(each.owner == actor.owner for each in feeds) >= MAX_FEEDS:
                raise Conflict(
                    _(
                        "{owner} has {most} feeds: revoke one first",
                        owner=actor.owner,
                        most=MAX_FEEDS,
                    ),
                    code="too_many_feeds",
                )
            return _to_document([*feeds, feed]), audit

        await self._document.change(add)
        return NewFeed(feed=feed, token=token)

    async def find(self, actor: Actor) -> tuple[Feed, ...]:
        """The feeds of the actor's owner; of all owners for those who see everything."""
        feeds = feeds_from(await self._document.read())
        return tuple(each for each in feeds if actor.may_see(each.owner))

    async def revoke(self, actor: Actor, feed_id: str) -> None:
        """Its address is 404 from now on. Raises NotFound."""
        now = await self._store.now()

        def remove(document: Document) -> tuple[Document, AuditEntry]:
            feeds = feeds_from(document)
            feed = next((each for each in feeds if each.id == feed_id), None)
            if feed is None or not actor.may_see(feed.owner):
                raise NotFound(_("feed {id} not found", id=feed_id))
            _check_may_change(actor, feed.owner)
            audit = entry(
                actor,
                "revoke_feed",
                "feed",
                feed.id,
                at=now,
                owner=feed.owner,
                changes={"feed": [feed.title, None]},
            )
            return _to_document([each for each in feeds if each is not feed]), audit

        await self._document.change(remove)

    async def read(self, token: str, span: timedelta, *, link: str = "", lang: str = "en") -> str:
        """The calendar of the feed with this token. Raises NotFound."""
        digest = _digest(token)
        feeds = feeds_from(await self._document.read())
        feed = next((each for each in feeds if hmac.compare_digest(each.digest, digest)), None)
        if feed is None:
            raise NotFound(_("not found"))
        role = Role.ADMIN if feed.sees_everything else Role.MEMBER
        reader = Actor(owner=feed.owner, role=role)
        now = await self._store.now()
        shown = [
            each for each in await self._schedules.list_visible(reader) if _belongs(feed, each)
        ]
        forecasts = ForecastService(self._store, self._schedules)
        durations = await forecasts.list_durations(reader, shown)
        title = shown[0].name if feed.schedule and shown else feed.title
        return await CALCULATIONS.run(
            lambda: feed_calendar(
                title,
                shown,
                {each.id: describe(each.trigger, lang) for each in shown},
                durations,
                now,
                now + span,
                link=link,
            )
        )


def _belongs(feed: Feed, schedule: Schedule) -> bool:
    if feed.schedule is not None:
        return schedule.id == feed.schedule
    if feed.of is not None:
        return schedule.owner == feed.of
    name, equals, value = feed.label.partition("=")
    if name not in schedule.labels:
        return False
    return not equals or schedule.labels[name] == value


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def feeds_from(document: object) -> tuple[Feed, ...]:
    """Entries that cannot be read are left out."""
    rows = document.get("feeds") if isinstance(document, dict) else None
    found = []
    for row in rows if isinstance(rows, list) else ():
        try:
            found.append(_codec.decode(row))
        except (InvalidInput, ValueError, TypeError, KeyError):
            continue
    return tuple(found)


def _to_document(feeds: list[Feed]) -> Document:
    return {"feeds": [dict(_codec.encode(each)) for each in feeds]} if feeds else {}
