"""The Ksana door: timed HTTP callbacks as jobs under /jobs (R3.30–R3.38)."""
