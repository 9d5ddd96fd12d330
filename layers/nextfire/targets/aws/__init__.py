"""Calls of AWS APIs."""
