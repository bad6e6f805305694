"""The way of a chat to its owner, as people can take it: a link, and the same as a picture."""

from __future__ import annotations

from markupsafe import Markup


def deep_link(username: str, code: str) -> str:
    """Opens the bot and sends it the code; empty while nobody knows what the bot is called."""
    return f"https://t.me/{username}?start={code}" if username else ""


def qr_code(text: str, title: str) -> Markup:
    """As SVG that brings no style of its own: dark on light in every theme, for cameras."""
    import segno

    svg = segno.make(text, error="m", micro=False).svg_inline(
        scale=4, border=4, svgclass="qr", omitsize=True, title=title, lineclass=None
    )
    # Written by the library, which escapes the title; the text itself is only squares.
    return Markup(svg)  # noqa: S704
