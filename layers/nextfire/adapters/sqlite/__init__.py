"""Ports on one SQLite database file, for a stack on one machine."""
