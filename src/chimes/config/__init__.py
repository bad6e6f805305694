"""Settings: every knob, where it is read from, and where the store is."""

from chimes.config.loading import FILE_NAME, LoadedSettings, load_settings
from chimes.config.location import StoreLocation, resolve_store_url, store_location
from chimes.config.settings import ROLES, Settings

__all__ = [
    "FILE_NAME",
    "ROLES",
    "LoadedSettings",
    "Settings",
    "StoreLocation",
    "load_settings",
    "resolve_store_url",
    "store_location",
]
