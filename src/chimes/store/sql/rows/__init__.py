"""Model values as rows of `tables` and back."""
