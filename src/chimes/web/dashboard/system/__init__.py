"""System pages: nodes, audit, access, channels, settings, about."""
