"""Sign-in, preferences and Telegram links of the signed-in user."""
