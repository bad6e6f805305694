"""Shared by the rows of the benchmark: servers, processes, tables of Chimes, the report."""
