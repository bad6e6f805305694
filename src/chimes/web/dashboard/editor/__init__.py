"""Schedule editor: form, preview, test run and save."""
