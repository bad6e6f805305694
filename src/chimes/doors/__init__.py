"""Ways in: each door translates between its own words and the services."""
