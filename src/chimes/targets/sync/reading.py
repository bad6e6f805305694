"""`sources:` of `chimes.yaml`, as frozen values (R4.19)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from chimes.errors import ConfigError, InvalidInput, InvalidTrigger
from chimes.model.source import (
    HIGH,
    LONGEST_SYNC_TIMEOUT,
    SYNC_TIMEOUT,
    Collection,
    Source,
    Sources,
)
from chimes.model.target_rules import check_source_name
from chimes.redaction import is_secret_field
from chimes.targets.sync.drivers import DRIVERS
from chimes.targets.sync.sections import Section, kind_of
from chimes.triggers import Trigger
from chimes.triggers.decode import ensure_fires
from chimes.triggers.expression import trigger_from_text
from chimes.triggers.once import Once
from chimes.wording import say

SOURCE_KEYS = ("driver", "config", "collections")
COLLECTION_KEYS = ("name", "schedule", "priority", "timeout")
#: Names of schedules and concurrency keys are made of both.
LONGEST_PAIR = 180
HIGHEST_CLASS = 1000


def read_sources(raw: object, directory: str, now: datetime) -> Sources:
    """Raises ConfigError. `now`: a schedule that has no moment after it is refused."""
    if raw is None:
        return Sources(directory=directory)
    section = Section(raw, "sources")
    found = {name: _source(section, name, now) for name in section}
    return Sources(found, directory)


def _source(sources: Section, name: str, now: datetime) -> Source:
    _check_name(name, "source", sources.at(name))
    section = Section(sources.plain[name], sources.at(name), known=SOURCE_KEYS)

    def driver_of(key: str) -> str | None:
        return section.choice(key, DRIVERS)

    driver = section.need("driver", driver_of)
    config = section.section("config") or Section({}, section.at("config"))
    DRIVERS[driver](config)
    return Source(
        id=name,
        driver=driver,
        config=config.plain,
        collections=tuple(_collections(section, name, now)),
    )


def _collections(section: Section, source: str, now: datetime) -> Iterable[Collection]:
    raw = section.plain.get("collections")
    path = section.at("collections")
    if not isinstance(raw, list) or not raw:
        raise ConfigError(
            say(
                "{path}: expected a list of collections, such as [{{name: orders}}], got {given}",
                path=path,
                given=say("an empty list") if raw == [] else kind_of(raw),
            ),
            key=path,
        )
    seen: dict[str, int] = {}
    for index, each in enumerate(raw):
        at = f"{path}[{index}]"
        # As the original had it, a bare name is enough.
        given = {"name": each} if isinstance(each, str) else each
        collection = _collection(Section(given, at, known=COLLECTION_KEYS), now)
        if collection.name in seen:
            raise ConfigError(
                say(
                    "{at}.name: {name!r} is the name of {path}[{index}] already",
                    at=at,
                    name=collection.name,
                    path=path,
                    index=seen[collection.name],
                ),
                key=f"{at}.name",
            )
        if len(source) + len(collection.name) > LONGEST_PAIR:
            raise ConfigError(
                say(
                    "{at}.name: source and collection together have at most {most} characters",
                    at=at,
                    most=LONGEST_PAIR,
                ),
                key=f"{at}.name",
            )
        seen[collection.name] = index
        yield collection


def _collection(section: Section, now: datetime) -> Collection:
    name = section.need("name", section.text)
    _check_name(name, "collection", section.at("name"))
    timeout = section.duration("timeout", least=timedelta(seconds=1), most=LONGEST_SYNC_TIMEOUT)
    return Collection(
        name=name,
        trigger=_trigger(section, now),
        priority=section.number("priority", least=1, most=HIGHEST_CLASS) or HIGH,
        timeout=timeout or SYNC_TIMEOUT,
    )


def _trigger(section: Section, now: datetime) -> Trigger | None:
    """C2, C2b: 5 fields, descriptors, 6 fields, 7 of Quartz, `@every`."""
    text = section.text("schedule")
    if text is None:
        return None
    try:
        trigger = trigger_from_text(text, None)
        if isinstance(trigger, Once):
            raise InvalidTrigger(say("a collection is synchronised again and again, not once"))
        ensure_fires(trigger, now)
    except InvalidTrigger as error:
        raise section.because("schedule", error) from None
    return trigger


def _check_name(name: str, what: str, path: str) -> None:
    try:
        check_source_name(name, what)
    except InvalidInput as error:
        raise ConfigError(
            say("{where}: {problem}", where=path, problem=error.message), key=path
        ) from None


def secrets_of(sources: Sources) -> tuple[str, ...]:
    """Values of the drivers' configurations that must not appear in a log."""
    found: list[str] = []
    for source in sources.by_id.values():
        found.extend(secrets_in(source.config))
    return tuple(found)


def secrets_in(value: object, *, secret: bool = False) -> Iterable[str]:
    """Texts below names that tell of a secret, at any depth. Of `Bearer abc` the last word is
    one by itself."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from secrets_in(inner, secret=secret or is_secret_field(str(name)))
        case list() | tuple():
            for inner in value:
                yield from secrets_in(inner, secret=secret)
        case str() if secret and value:
            yield value
            if " " in value.strip():
                yield value.split()[-1]
