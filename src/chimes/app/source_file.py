"""The sources of a node's file: read at the start, and again when somebody asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from chimes.app.source_schedules import SourceSchedules
from chimes.clock import Clock
from chimes.config import LoadedSettings
from chimes.errors import ChimesError, ConfigError, StoreError
from chimes.log import configure_logging
from chimes.model.source import Sources
from chimes.service.sources import KnownSources, Reloaded, SourceChange
from chimes.targets.sync.checking import check_callables
from chimes.targets.sync.reading import read_sources, secrets_of
from chimes.wording import say

logger = logging.getLogger("chimes.app")
#: Seconds between two tries while the store is away.
PAUSE = 1.0


def sources_in(raw: object, file: Path | None, clock: Clock) -> Sources:
    """Raises ConfigError that names the file and where in it the mistake stands."""
    directory = Path() if file is None else file.parent
    try:
        return read_sources(raw, str(directory.resolve()), clock.now())
    except ConfigError as error:
        raise ConfigError(
            say("{where}: {problem}", where=file, problem=error.message), **error.details
        ) from None


class SourceFile:
    """What a node does with the sources of its file. Tasks that run go on with what they were
    started with, whatever is read meanwhile."""

    def __init__(self, loaded: LoadedSettings, clock: Clock) -> None:
        """Raises ConfigError."""
        self._loaded = loaded
        self._clock = clock
        file = "" if loaded.file is None else str(loaded.file.resolve())
        self.known = KnownSources(sources_in(loaded.sources, loaded.file, clock), file=file)
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
            raise ConfigError(say("there is no configuration file to read again"))
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

    async def _reloaded(self, dry_run: bool) -> Reloaded:
        changes = await self.reload(dry_run=dry_run)
        return Reloaded(file=self.known.file, changes=tuple(changes))

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
                say("{where}: {problem}", where=self._loaded.file, problem=error.message),
                **error.details,
            ) from None

    def _check_schedules(self, sources: Sources) -> None:
        """Before anything of a new file is in force: half of one is nobody's wish (F73)."""
        if self._schedules is not None and self.writes:
            try:
                self._schedules.check(sources, self.known.now, self._clock.now())
            except ConfigError as error:
                raise ConfigError(
                    say("{where}: {problem}", where=self._loaded.file, problem=error.message),
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
