"""Chimes in a Django project: runs are part of Django's transactions.

python manage.py chimes store init      # first: the shop and Chimes share a database
python manage.py migrate
python manage.py chimes worker          # in a terminal of its own
python manage.py runserver
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
