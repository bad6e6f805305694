"""Server-side SVG charts: pure functions from values to SVG and an equivalent table.

Only classes, no style attributes, which the Content-Security-Policy forbids; colours are in
`app.css`.
"""
