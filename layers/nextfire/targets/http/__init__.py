"""HTTP callbacks."""
