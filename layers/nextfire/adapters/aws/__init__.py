"""Clients of AWS services, their errors, and small services."""
