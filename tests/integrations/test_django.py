"""The Django app: management command, transactions, admin."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from tests.integrations.conftest import Project, free_port

ADMIN = """
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.create_superuser("ann"))
page = client.get("/admin/")
assert "Schedules and runs" in page.content.decode(), page.content
link = client.get("/admin/chimes/dashboard/")
print(link.status_code, link["Location"])
"""


def check_shop(shop: Project) -> None:
    shop.run("manage.py", "chimes", "store", "init")
    shop.run("manage.py", "migrate", "--verbosity", "0")
    shop.run("manage.py", "makemigrations", "--check", "--dry-run")
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    shop.start("manage.py", "chimes", "worker")
    shop.start("manage.py", "runserver", "--noreload", str(port))
    assert shop.wait_for(f"{base}/orders/").json() == {"orders": []}
    made = httpx2.get(f"{base}/orders/7", timeout=60)
    assert made.status_code == 202, shop.output[-3000:]
    found = httpx2.get(f"{base}/runs/{made.json()['run']}", timeout=90)
    assert found.json() == {"result": "1 order confirmed"}, shop.output[-3000:]
    failed = httpx2.get(f"{base}/orders/8?fail=1", timeout=60)
    assert failed.status_code == 402, failed.text
    lost = httpx2.get(f"{base}/runs/{failed.json()['run']}", timeout=60)
    assert lost.status_code == 500
    assert "NotFound" in lost.text
    assert httpx2.get(f"{base}/orders/").json() == {"orders": [{"number": 7, "confirmed": True}]}
    assert shop.run("-c", ADMIN).split() == ["302", "http://127.0.0.1:7100/ui/"]


@pytest.mark.long
def test_the_example_project(project: Callable[[str], Project]) -> None:
    shop = project("django_shop")
    shop.environment["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    check_shop(shop)


@pytest.mark.long
def test_the_example_project_on_postgresql(
    project: Callable[[str], Project], postgres_url: str
) -> None:
    shop = project("django_shop")
    shop.environment["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    shop.environment["SHOP_STORE"] = postgres_url
    check_shop(shop)
