"""What the rows of the benchmark share: servers, processes, tables of Chimes, the report."""
