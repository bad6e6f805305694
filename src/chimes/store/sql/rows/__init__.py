"""Model values as table rows and back."""
