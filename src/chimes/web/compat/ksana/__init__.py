"""Ksana compatibility API: timed HTTP callbacks under /jobs."""
