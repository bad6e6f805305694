"""Programs that the benchmark starts as separate processes."""
