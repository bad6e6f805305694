"""Settings, how they are loaded, and the location of the store."""

from chimes.config.loader import FILE_NAME, LoadedSettings, load_settings
from chimes.config.location import (
    StoreLocation,
    masked_store_url,
    resolve_store_url,
    store_location,
)
from chimes.config.settings import ROLES, Settings

__all__ = [
    "FILE_NAME",
    "ROLES",
    "LoadedSettings",
    "Settings",
    "StoreLocation",
    "load_settings",
    "masked_store_url",
    "resolve_store_url",
    "store_location",
]
