"""Dashboard: server-rendered pages under /ui."""
