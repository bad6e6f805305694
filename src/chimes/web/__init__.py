"""HTTP server: native API, compatibility APIs and dashboard."""
