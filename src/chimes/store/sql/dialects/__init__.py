"""SQL that differs between databases, one module per database."""
