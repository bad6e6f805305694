"""Programs that the benchmark starts as processes of their own."""
