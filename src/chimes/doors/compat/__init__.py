"""Doors that speak the API of an older system. They translate and do nothing else."""
