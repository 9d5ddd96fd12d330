"""Runs each script in its own processes, confined."""
