"""A Django project in one file whose orders are booked exactly once.

The order and the mark that the run was performed are in one transaction of Django's database.

    CHIMES_SIGNING_SECRET=whsec_… python with_django.py 8000
"""

import os
import sys
import time

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.urls import path

from chimes.receiver import Call, DjangoStore, Receiver

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "orders.db",
            "OPTIONS": {"timeout": 60, "transaction_mode": "IMMEDIATE"},
        }
    },
)
django.setup()
receiver = Receiver([os.environ["CHIMES_SIGNING_SECRET"]], store=DjangoStore())


def book_order(call: Call) -> dict[str, object]:
    print(f"booking for run {call.run_id}, attempt {call.attempt}", flush=True)
    # A model in a real project: any query of this thread is in the transaction.
    with call.connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s, %s)", (call.run_id, call.attempt))
    time.sleep(float(os.environ.get("WORK_SECONDS", "0")))  # stands for slow work
    return {"booked": call.json()["order"]}


urlpatterns = [path("orders", receiver.django(book_order))]
application = get_wsgi_application()

if __name__ == "__main__":
    from django.db import connection

    with connection.cursor() as setup:
        setup.execute("CREATE TABLE IF NOT EXISTS orders (run_id TEXT, attempt INTEGER)")
    connection.close()
    port = f"127.0.0.1:{sys.argv[1]}"
    execute_from_command_line(["manage", "runserver", "--noreload", "--skip-checks", port])
