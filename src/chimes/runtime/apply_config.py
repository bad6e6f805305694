"""`chimes apply` without a server: what a file says, straight into the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, store_location
from chimes.errors import ChimesError, ConfigError, InvalidInput, NotFound, StoreError
from chimes.i18n import _
from chimes.log import configure_logging
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.node import Node
from chimes.model.policy import RunDefaults
from chimes.model.schedule import Schedule
from chimes.model.sync import SYNC_NAMESPACE, Sources, task_name, task_policy
from chimes.model.target import SyncTarget
from chimes.runtime.composition import Services, build_services, build_store
from chimes.sdk.declare import (
    Declaration,
    Mode,
    ResolvedDeclaration,
    apply_declaration,
    new_schedule,
)
from chimes.sdk.reconcile import ScheduleReconciler
from chimes.services.nodes import SourceRegistry, ReloadResult, SourceChange, Word
from chimes.targets.sync.config import read_sources, secrets_of
from chimes.targets.sync.function_check import check_callables

# @@ Schedules of the collections that a file has: written where they differ, removed where the
# file no longer has them (R4.19).

#: As the audit names what a file asks for.
FILE_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="config"), interface="config")
_PAGE = 500


class PairDefaults(Mapping[str, RunDefaults]):
    """How the tasks of each pair are carried out, by `SyncTarget.key`."""

    def __init__(self, known: SourceRegistry) -> None:
        self._known = known

    def __getitem__(self, key: str) -> RunDefaults:
        for target, collection in self._known.now.pairs():
            if target.key == key:
                policy = task_policy(target, timeout=collection.timeout)
                return RunDefaults(policy=policy, priority=collection.priority)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (target.key for target, _unused in self._known.now.pairs())

    def __len__(self) -> int:
        return sum(1 for _unused in self._known.now.pairs())


class SourceSchedules:
    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings
        self._reconciler = ScheduleReconciler(services, FILE_ACTOR, SYNC_NAMESPACE)

    def check(self, sources: Sources, before: Sources, now: datetime) -> None:
        """Raises ConfigError for a collection that the service would not take. What has not changed
        since `before` was taken once."""
        old = dict(before.pairs())
        changed = {task_name(target) for target, each in sources.pairs() if old.get(target) != each}
        for name, resolved in self._wanted(sources).items():
            if name in changed:
                try:
                    new = new_schedule(resolved, ScheduleId(""), SYNC_NAMESPACE, now)
                    self._services.schedules.prepare(FILE_ACTOR, new, now)
                except InvalidInput as error:
                    raise ConfigError(
                        _("collection {name}: {problem}", name=name, problem=error.message),
                        key=name,
                    ) from None

    async def plan(self, sources: Sources, own_node: str = "") -> list[SourceChange]:
        """What `write` would do. `own_node`: what this node offers itself keeps nothing."""
        stored = await self._stored()
        wanted = self._wanted(sources)
        changes = [
            SourceChange(name, self._word(resolved, stored.get(name)))
            for name, resolved in wanted.items()
        ]
        others = [node for node in await self._alive() if node.id != own_node]
        own = {target for target, _unused in sources.pairs()}
        for name, schedule in stored.items():
            if name not in wanted and isinstance(schedule.target, SyncTarget):
                kept = schedule.target not in own and any(
                    _has(node, schedule.target, alone=schedule.target.source not in sources.by_id)
                    for node in others
                )
                changes.append(SourceChange(name, "kept" if kept else "deleted"))
        return sorted(changes, key=lambda change: change.name)

    async def write(self, sources: Sources, own_node: str = "") -> list[SourceChange]:
        """By name, also if several nodes do it at once: of one name there is one schedule. The
        same definition is not touched, so it keeps its next slot."""
        changes = await self.plan(sources, own_node)
        await self._carry_out(changes, sources)
        return changes

    async def clear_up(self, sources: Sources, own_node: str = "") -> None:
        """What has changed since `write` because nodes came or went. Those with other files are
        let have their way: only pairs that nobody has lose their schedules, only those that
        somebody has get them, and none is changed; otherwise two nodes would do and undo for
        ever."""
        changes = await self.plan(sources, own_node)
        own = {task_name(target): target.key for target, _unused in sources.pairs()}
        named = {key for node in await self._alive() for key in node.defaults}
        due = [
            change
            for change in changes
            if (change.what == "deleted" and change.name not in own)
            or (change.what == "created" and own[change.name] in named)
        ]
        await self._carry_out(due, sources)

    async def _carry_out(self, changes: list[SourceChange], sources: Sources) -> None:
        wanted = self._wanted(sources)
        for change in changes:
            if change.what in ("created", "updated"):
                try:
                    await self._reconciler.upsert(wanted[change.name])
                except InvalidInput as error:
                    raise InvalidInput(
                        _(
                            "collection {name}: {problem}",
                            name=change.name,
                            problem=error.message,
                        ),
                        field=error.field,
                        code=error.code,
                        hint=error.hint,
                    ) from error
            elif change.what == "deleted":
                found = await self._reconciler.find(change.name)
                if found is not None:
                    with contextlib.suppress(NotFound):
                        await self._services.schedules.delete(FILE_ACTOR, found.id)

    def _word(self, resolved: ResolvedDeclaration, stored: Schedule | None) -> Word:
        if stored is None:
            return "created"
        return "unchanged" if apply_declaration(resolved, stored) == stored else "updated"

    def _wanted(self, sources: Sources) -> dict[str, ResolvedDeclaration]:
        found: dict[str, ResolvedDeclaration] = {}
        for target, collection in sources.pairs():
            if collection.trigger is None:
                continue
            declared = Declaration(
                name=task_name(target), trigger=collection.trigger, target=target, mode=Mode.DB
            )
            found[declared.name] = ResolvedDeclaration(
                declared=declared,
                policy=task_policy(
                    target,
                    timeout=collection.timeout,
                    misfire_grace=self._settings.misfire_grace,
                ),
                priority=collection.priority,
                default_timezone=self._settings.default_timezone,
            )
        return found

    async def _stored(self) -> dict[str, Schedule]:
        """Those that a file asked for; whoever else uses the namespace is left alone."""
        found: dict[str, Schedule] = {}
        query = ScheduleQuery(namespace=SYNC_NAMESPACE, limit=_PAGE)
        while True:
            page = await self._services.schedules.find(FILE_ACTOR, query)
            for each in page.items:
                if isinstance(each.target, SyncTarget) and each.name == task_name(each.target):
                    found.setdefault(each.name, each)
            if page.next is None:
                return found
            query = replace(query, after=page.next)

    async def _alive(self) -> list[Node]:
        store = self._services.store
        now = await store.now()
        return [node for node in await store.nodes() if node.lease_until > now]


def _has(node: Node, target: SyncTarget, *, alone: bool) -> bool:
    """Whether it has the pair in its file. `alone`: nobody here knows the source, so that whoever
    offers it decides about all of it."""
    return target.key in node.defaults or (alone and target.requirement in node.capabilities)


# @@ The sources of a node's file: read at the start, and again when somebody asks for it.

logger = logging.getLogger("chimes.runtime")
#: Seconds between two tries while the store is away.
PAUSE = 1.0


def sources_in(raw: object, file: Path | None, clock: Clock) -> Sources:
    """Raises ConfigError that names the file and where in it the mistake stands."""
    directory = Path() if file is None else file.parent
    try:
        return read_sources(raw, str(directory.resolve()), clock.now())
    except ConfigError as error:
        raise ConfigError(
            _("{where}: {problem}", where=file, problem=error.message), **error.details
        ) from None


class SourceFile:
    """What a node does with the sources of its file. Tasks that run go on with what they were
    started with, whatever is read meanwhile."""

    def __init__(self, loaded: LoadedSettings, clock: Clock) -> None:
        """Raises ConfigError."""
        self._loaded = loaded
        self._clock = clock
        file = "" if loaded.file is None else str(loaded.file.resolve())
        self.known = SourceRegistry(sources_in(loaded.sources, loaded.file, clock), file=file)
        self.known.reloaded_by(self._reloaded)
        #: A file that says nothing about sources takes none away.
        self._ours = loaded.sources is not None
        self._schedules: SourceSchedules | None = None
        self._announce: Callable[[], Awaitable[None]] | None = None
        self._own_node: Callable[[], str] = str
        self._one_at_a_time = asyncio.Lock()
        #: Set while the store does not have what the file says.
        self._unwritten = asyncio.Event()

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each setting of this node came from."""
        return self._loaded.origins

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self._loaded.secrets, *secrets_of(self.known.now))

    @property
    def warnings(self) -> tuple[str, ...]:
        """S63: a file with secrets of sources is as much to be guarded as one with the node's."""
        file = self._loaded.file
        if file is None or not secrets_of(self.known.now):
            return ()
        from chimes.config.file import readable_by_others

        return tuple(text for text in readable_by_others(file) if text not in self._loaded.warnings)

    def attach(
        self,
        schedules: SourceSchedules,
        *,
        announce: Callable[[], Awaitable[None]],
        own_node: Callable[[], str],
    ) -> None:
        """The node's way to the store and to the others."""
        self._schedules = schedules
        self._announce = announce
        self._own_node = own_node

    async def begin(self) -> None:
        """Before the first slot can come. Raises ConfigError for a function that is not there."""
        settings = self._loaded.settings
        if "worker" in settings.roles:
            await self._check(self.known.now)
        await self._write()

    async def reload(self, *, dry_run: bool = False) -> list[SourceChange]:
        """Raises ConfigError, and leaves everything as it is, for a file that is not valid."""
        file = self._loaded.file
        if file is None:
            raise ConfigError(_("there is no configuration file to read again"))
        # With YAML, which a node without a file does not need.
        from chimes.config.file import read_file

        async with self._one_at_a_time:
            content = await asyncio.to_thread(read_file, file)
            sources = sources_in(content.sources, file, self._clock)
            await self._check(sources)
            self._check_schedules(sources)
            if dry_run:
                return await self._plan(sources)
            self._ours = self._ours or content.sources is not None
            self.known.put(sources)
            settings = self._loaded.settings
            configure_logging(settings.log_level, settings.log_format, secrets=self.secrets)
            self._unwritten.set()
            changes = await self._write()
            if self._announce is not None:
                await self._announce()
            return changes

    async def _reloaded(self, dry_run: bool) -> ReloadResult:
        changes = await self.reload(dry_run=dry_run)
        return ReloadResult(file=self.known.file, changes=tuple(changes))

    async def reload_and_tell(self) -> None:
        """SIGHUP: nobody waits for an answer, so the log has it (F73)."""
        try:
            changes = await self.reload()
        except ConfigError as error:
            logger.error(
                "the configuration file is not valid; the old one stays in force",
                extra={"error": error.message},
            )
        except Exception as error:
            # A store that is away, for example: `keep_up` goes on with it.
            logger.error("the sources could not be read again", extra={"error": str(error)})
        else:
            found = Counter(change.what for change in changes)
            logger.info("the sources were read again", extra={"schedules": dict(found)})

    async def keep_up(self) -> None:
        """Writes what the store did not take, as soon as it does. Schedules that were left because
        another node had their collection are removed when that node is gone, and those that
        somebody removed although a node has theirs are made again."""
        lease = self._loaded.settings.lease.total_seconds()
        refusal = ""
        while True:
            if not refusal:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._unwritten.wait(), lease)
            await asyncio.sleep(lease if refusal else PAUSE)
            refused = ""
            try:
                async with self._one_at_a_time:
                    await self._catch_up()
            except StoreError:
                logger.debug("the store cannot say which schedules there are")
            except ChimesError as error:
                refused = error.message
                if refused != refusal:
                    logger.error(
                        "the schedules of the sources are refused", extra={"error": refused}
                    )
            refusal = refused

    async def _catch_up(self) -> None:
        if self._unwritten.is_set():
            await self._write()
        elif self._schedules is not None and self.writes:
            await self._schedules.clear_up(self.known.now, self._own_node())

    @property
    def writes(self) -> bool:
        """Whether this node looks after schedules at all."""
        return self._ours and bool({"scheduler", "api"} & {*self._loaded.settings.roles})

    async def _check(self, sources: Sources) -> None:
        try:
            await check_callables(sources)
        except ConfigError as error:
            raise ConfigError(
                _("{where}: {problem}", where=self._loaded.file, problem=error.message),
                **error.details,
            ) from None

    def _check_schedules(self, sources: Sources) -> None:
        """Before anything of a new file is in force: half of one is nobody's wish (F73)."""
        if self._schedules is not None and self.writes:
            try:
                self._schedules.check(sources, self.known.now, self._clock.now())
            except ConfigError as error:
                raise ConfigError(
                    _("{where}: {problem}", where=self._loaded.file, problem=error.message),
                    **error.details,
                ) from None

    async def _plan(self, sources: Sources) -> list[SourceChange]:
        if self._schedules is None or not self.writes:
            return []
        return await self._schedules.plan(sources, self._own_node())

    async def _write(self) -> list[SourceChange]:
        changes: list[SourceChange] = []
        if self._schedules is not None and self.writes:
            changes = await self._schedules.write(self.known.now, self._own_node())
        self._unwritten.clear()
        return changes


def checked_file(loaded: LoadedSettings) -> SourceFile:
    """Raises ConfigError for a file that no node would take."""
    file = SourceFile(loaded, SystemClock())
    asyncio.run(check_callables(file.known.now))
    return file


async def apply_to_store(
    loaded: LoadedSettings, file: SourceFile, *, dry_run: bool
) -> tuple[list[SourceChange], list[str]]:
    """What became of the schedules, and the ids of nodes that are alive."""
    clock = SystemClock()
    store = build_store(store_location(loaded.settings), clock)
    await store.open()
    try:
        services = await build_services(
            loaded.settings,
            store,
            clock,
            offers=lambda: PairDefaults(file.known),
            sources=file.known,
        )
        schedules = SourceSchedules(services, loaded.settings)
        sources = file.known.now
        changes = await (schedules.plan(sources) if dry_run else schedules.write(sources))
        now = await store.now()
        alive = [str(node.id) for node in await store.nodes() if node.lease_until > now]
        return changes, alive
    finally:
        await store.close()


def told_to_read_again(node_ids: Iterable[str]) -> list[str]:
    """Sends SIGHUP to those nodes that are processes of this machine and of this user; which."""
    told: list[str] = []
    for node_id in node_ids:
        host, _unused, rest = node_id.rpartition("-")[0].rpartition("-")
        if host == socket.gethostname() and rest.isdecimal() and _is_ours(int(rest)):
            os.kill(int(rest), signal.SIGHUP)
            told.append(node_id)
    return told


def _is_ours(pid: int) -> bool:
    """Numbers of processes are used again: only what looks like a node is sent anything."""
    place = Path(f"/proc/{pid}")
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
        owner = place.stat().st_uid
    except OSError:
        return False
    served = any(word in (b"serve", b"worker") for word in words)
    return owner == os.geteuid() and served and any(b"chimes" in word for word in words)
