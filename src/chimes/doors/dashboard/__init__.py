"""The dashboard: pages in /ui, made by the server. See door.py."""
