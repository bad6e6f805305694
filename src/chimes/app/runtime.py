"""What an opened application works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.app.composition import Services
from chimes.app.handles import Endings
from chimes.clock import Clock
from chimes.config import Settings, StoreLocation
from chimes.model.access import Actor, Owner, OwnerType

#: As the audit names what an application does by itself.
APP_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="app"), door="sdk")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    settings: Settings
    location: StoreLocation
    clock: Clock
    services: Services
    actor: Actor = APP_ACTOR
    #: Where each setting came from.
    origins: Mapping[str, str] = field(default_factory=dict)
    endings: Endings = field(default_factory=Endings)
