"""Applies the sources of a configuration file: schedules of their collections, reload, `apply`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, store_location
from chimes.errors import ChimesError, ConfigError, InvalidInput, NotFound, StoreError
from chimes.i18n import _
from chimes.log import configure_logging
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.node import Node
from chimes.model.policy import RunDefaults
from chimes.model.schedule import Schedule
from chimes.model.sync import SYNC_NAMESPACE, Sources, collection_policy, task_name
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
from chimes.services.system import ChangeKind, ReloadResult, SourceChange, SourceRegistry
from chimes.targets.sync.config import read_sources, secrets_of
from chimes.targets.sync.function_check import check_callables

#: The actor of changes from a configuration file, in the audit log.
FILE_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="config"), interface="config")
_PAGE = 500


class PairCapabilities(Mapping[str, RunDefaults]):
    """Run defaults of each source and collection, by `SyncTarget.key`."""

    def __init__(self, known: SourceRegistry) -> None:
        self._known = known

    def __getitem__(self, key: str) -> RunDefaults:
        for target, collection in self._known.now.pairs():
            if target.key == key:
                policy = collection_policy(target, collection)
                return RunDefaults(policy=policy, priority=collection.priority)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (target.key for target, _ in self._known.now.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self._known.now.pairs())


class SourceSchedules:
    """Schedules of the collections in a file: written where they differ, deleted where the file no
    longer has them."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings
        self._reconciler = ScheduleReconciler(services, FILE_ACTOR, SYNC_NAMESPACE)

    def check(self, sources: Sources, before: Sources, now: datetime) -> None:
        """Raises ConfigError for an invalid collection that was added or changed since `before`."""
        old = dict(before.pairs())
        changed = {task_name(target) for target, each in sources.pairs() if old.get(target) != each}
        for name, resolved in self._declarations(sources).items():
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
        """What `write` would do. A schedule that is not in the file is kept if a node other than
        `own_node` has its collection."""
        stored = await self._stored()
        wanted = self._declarations(sources)
        changes = [
            SourceChange(name, self._change_kind(resolved, stored.get(name)))
            for name, resolved in wanted.items()
        ]
        others = [node for node in await self._alive() if node.id != own_node]
        own = {target for target, _ in sources.pairs()}
        for name, schedule in stored.items():
            if name not in wanted and isinstance(schedule.target, SyncTarget):
                kept = schedule.target not in own and any(
                    _serves(
                        node,
                        schedule.target,
                        whole_source=schedule.target.source not in sources.by_id,
                    )
                    for node in others
                )
                changes.append(SourceChange(name, "kept" if kept else "deleted"))
        return sorted(changes, key=lambda change: change.name)

    async def write(self, sources: Sources, own_node: str = "") -> list[SourceChange]:
        """Upserts by name, so that several nodes may do it at once. An equal schedule is not
        touched and keeps its next slot."""
        changes = await self.plan(sources, own_node)
        await self._apply(changes, sources)
        return changes

    async def follow_nodes(self, sources: Sources, own_node: str = "") -> None:
        """Applies changes since `write` because nodes joined or left: deletes schedules that no
        node serves, and creates missing ones that a node serves. It updates none, because nodes
        with different files would overwrite each other forever."""
        changes = await self.plan(sources, own_node)
        own = {task_name(target): target.key for target, _ in sources.pairs()}
        named = {key for node in await self._alive() for key in node.defaults}
        due = [
            change
            for change in changes
            if (change.what == "deleted" and change.name not in own)
            or (change.what == "created" and own[change.name] in named)
        ]
        await self._apply(due, sources)

    async def _apply(self, changes: list[SourceChange], sources: Sources) -> None:
        wanted = self._declarations(sources)
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

    def _change_kind(self, resolved: ResolvedDeclaration, stored: Schedule | None) -> ChangeKind:
        if stored is None:
            return "created"
        return "unchanged" if apply_declaration(resolved, stored) == stored else "updated"

    def _declarations(self, sources: Sources) -> dict[str, ResolvedDeclaration]:
        found: dict[str, ResolvedDeclaration] = {}
        for target, collection in sources.pairs():
            if collection.trigger is None:
                continue
            declared = Declaration(
                name=task_name(target), trigger=collection.trigger, target=target, mode=Mode.DB
            )
            found[declared.name] = ResolvedDeclaration(
                declared=declared,
                policy=collection_policy(target, collection, self._settings.misfire_grace),
                priority=collection.priority,
                default_timezone=self._settings.default_timezone,
            )
        return found

    async def _stored(self) -> dict[str, Schedule]:
        """Schedules created from a file; others of the namespace are ignored."""
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


def _serves(node: Node, target: SyncTarget, *, whole_source: bool) -> bool:
    """Whether the node has the collection in its file. `whole_source`: this file does not have the
    source, so a node that has it decides about all its collections."""
    return target.key in node.defaults or (whole_source and target.requirement in node.capabilities)


logger = logging.getLogger("chimes.runtime")
#: Seconds between two tries while the store is unavailable.
RETRY_PAUSE = 1.0


@contextlib.contextmanager
def _located(file: Path | None) -> Iterator[None]:
    """Adds the file to a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            _("{where}: {problem}", where=file, problem=error.message), **error.details
        ) from None


def parse_sources(raw: object, file: Path | None, clock: Clock) -> Sources:
    """Raises ConfigError with the file and the position of the error."""
    directory = Path() if file is None else file.parent
    with _located(file):
        return read_sources(raw, str(directory.resolve()), clock.now())


class SourceFile:
    """The sources of a node's configuration file, read at the start and at each reload. Running
    tasks continue with the configuration they started with."""

    def __init__(self, loaded: LoadedSettings, clock: Clock) -> None:
        """Raises ConfigError."""
        self._loaded = loaded
        self._clock = clock
        file = "" if loaded.file is None else str(loaded.file.resolve())
        self.known = SourceRegistry(parse_sources(loaded.sources, loaded.file, clock), file=file)
        self.known.reloaded_by(self._reloaded)
        #: A file without a `sources` section deletes no schedules.
        self._has_sources = loaded.sources is not None
        self._schedules: SourceSchedules | None = None
        self._announce: Callable[[], Awaitable[None]] | None = None
        self._own_node: Callable[[], str] = str
        self._lock = asyncio.Lock()
        #: Set while the schedules in the store are behind the file.
        self._unwritten = asyncio.Event()

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin of each setting of this node."""
        return self._loaded.origins

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self._loaded.secrets, *secrets_of(self.known.now))

    @property
    def warnings(self) -> tuple[str, ...]:
        """About a file with secrets of sources that other users can read."""
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
        """Connects the file with the running node."""
        self._schedules = schedules
        self._announce = announce
        self._own_node = own_node

    async def begin(self) -> None:
        """Called before the first slot can be due. Raises ConfigError for a missing function."""
        settings = self._loaded.settings
        if "worker" in settings.roles:
            await self._check(self.known.now)
        await self._write()

    async def reload(self, *, dry_run: bool = False) -> list[SourceChange]:
        """Raises ConfigError for an invalid file, and then changes nothing."""
        file = self._loaded.file
        if file is None:
            raise ConfigError(_("there is no configuration file to reload"))
        # Imports YAML, which a node without a file does not need.
        from chimes.config.file import read_file

        async with self._lock:
            content = await asyncio.to_thread(read_file, file)
            sources = parse_sources(content.sources, file, self._clock)
            await self._check(sources)
            self._check_schedules(sources)
            if dry_run:
                return await self._plan(sources)
            self._has_sources = self._has_sources or content.sources is not None
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

    async def reload_on_signal(self) -> None:
        """For SIGHUP: logs the result."""
        try:
            changes = await self.reload()
        except ConfigError as error:
            logger.error(
                "the configuration file is invalid; the previous configuration stays active",
                extra={"error": error.message},
            )
        except Exception as error:
            # For example an unavailable store: `reconcile` retries.
            logger.error("the sources could not be reloaded", extra={"error": str(error)})
        else:
            found = Counter(change.what for change in changes)
            logger.info("the sources were reloaded", extra={"schedules": dict(found)})

    async def reconcile(self) -> None:
        """Writes the schedules as soon as the store is available again, and follows nodes that
        join or leave."""
        lease = self._loaded.settings.lease.total_seconds()
        refusal = ""
        while True:
            if not refusal:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(lease):
                        await self._unwritten.wait()
            await asyncio.sleep(lease if refusal else RETRY_PAUSE)
            refused = ""
            try:
                async with self._lock:
                    await self._catch_up()
            except StoreError:
                logger.debug("cannot read the schedules from the store")
            except ChimesError as error:
                refused = error.message
                if refused != refusal:
                    logger.error(
                        "the schedules of the sources were rejected", extra={"error": refused}
                    )
            refusal = refused

    async def _catch_up(self) -> None:
        if self._unwritten.is_set():
            await self._write()
        elif self._schedules is not None and self.writes:
            await self._schedules.follow_nodes(self.known.now, self._own_node())

    @property
    def writes(self) -> bool:
        """Whether this node writes the schedules of its file."""
        return self._has_sources and bool({"scheduler", "api"} & {*self._loaded.settings.roles})

    async def _check(self, sources: Sources) -> None:
        with _located(self._loaded.file):
            await check_callables(sources)

    def _check_schedules(self, sources: Sources) -> None:
        """Before anything of a new file is active: a file is applied as a whole or not at all."""
        if self._schedules is not None and self.writes:
            with _located(self._loaded.file):
                self._schedules.check(sources, self.known.now, self._clock.now())

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


def load_checked_file(loaded: LoadedSettings) -> SourceFile:
    """Raises ConfigError for a file that a node would reject."""
    file = SourceFile(loaded, SystemClock())
    asyncio.run(check_callables(file.known.now))
    return file


async def apply_to_store(
    loaded: LoadedSettings, file: SourceFile, *, dry_run: bool
) -> tuple[list[SourceChange], list[str]]:
    """The changes of the schedules, and the ids of live nodes."""
    clock = SystemClock()
    store = build_store(store_location(loaded.settings), clock)
    await store.open()
    try:
        services = await build_services(
            loaded.settings,
            store,
            clock,
            capabilities=lambda: PairCapabilities(file.known),
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


def signal_reload(node_ids: Iterable[str]) -> list[str]:
    """Sends SIGHUP to the nodes that are processes of this machine and user; returns their ids."""
    signaled: list[str] = []
    for node_id in node_ids:
        host, _, pid = node_id.rpartition("-")[0].rpartition("-")
        if host == socket.gethostname() and pid.isdecimal() and _is_own_node(int(pid)):
            os.kill(int(pid), signal.SIGHUP)
            signaled.append(node_id)
    return signaled


def _is_own_node(pid: int) -> bool:
    """Process ids are reused: only a process that looks like a node gets the signal."""
    place = Path(f"/proc/{pid}")
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
        owner = place.stat().st_uid
    except OSError:
        return False
    served = any(word in (b"serve", b"worker") for word in words)
    return owner == os.geteuid() and served and any(b"chimes" in word for word in words)
