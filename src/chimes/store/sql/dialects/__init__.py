"""What differs between the databases: one module each."""
