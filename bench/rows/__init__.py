"""One module per row of the table; `measure(bench)` returns its lines."""
