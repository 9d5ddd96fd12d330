"""Errors of the command: those of the client. `main` prints them and exits with 1."""

from nextfire.client import ApiError, ClientError

CliError = ClientError
"""A problem and its remedy."""

__all__ = ["ApiError", "CliError"]
