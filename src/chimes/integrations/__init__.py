"""Chimes in applications of web frameworks: FastAPI, Django, Flask. Each module needs its
framework, and none is imported by the rest of Chimes."""
