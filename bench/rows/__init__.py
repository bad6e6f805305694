"""One module for each row of the table: `measure(bench)` gives its lines."""
