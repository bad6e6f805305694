"""Pictures drawn by the server: pure functions from values to SVG and its table.

Classes only, no style attributes: the page's policy allows none. Colours are in `app.css`.
"""
