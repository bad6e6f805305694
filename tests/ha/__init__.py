"""High availability: Chimes on three PostgreSQL servers under Patroni.

The servers run in network namespaces that the test makes, so that a network can fail for real.

python -m tests.ha --mode sync --fault kill      one run; prints its counts as JSON
"""
