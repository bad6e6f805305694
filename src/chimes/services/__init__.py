"""Use cases: authorisation, quotas, validation and audit."""
