"""Pipelines: jobs and their edges that are declared, compared and applied together."""
