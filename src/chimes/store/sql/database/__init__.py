"""Database connections and transactions: SQLite, PostgreSQL, MariaDB."""
