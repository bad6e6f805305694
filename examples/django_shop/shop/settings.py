"""Settings. SHOP_STORE is the database of the shop and of Chimes: the same, so that an order and
its run are one commit."""

import os
from pathlib import Path
from urllib.parse import urlsplit

STORE = os.environ.get("SHOP_STORE") or f"sqlite:///{Path.cwd() / 'shop.db'}"

if STORE.startswith("postgresql://"):
    place = urlsplit(STORE)
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": place.path.lstrip("/"),
            "HOST": place.hostname,
            "PORT": place.port or 5432,
            "USER": place.username,
            "PASSWORD": place.password or "",
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": STORE.removeprefix("sqlite:///"),
            # Chimes writes to the same file: wait for it instead of failing.
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        }
    }

SECRET_KEY = "only-for-this-example"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "chimes.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

CHIMES_APP = "shop.tasks:app"
CHIMES_DASHBOARD_URL = "http://127.0.0.1:7100/ui/"
