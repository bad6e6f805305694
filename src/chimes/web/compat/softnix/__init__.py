"""Softnix compatibility API: scheduled prompts under /schedules."""
