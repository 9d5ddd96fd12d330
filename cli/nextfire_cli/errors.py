"""What the command says when it cannot go on; `main` prints it and exits with 1. It is what the
client says, and what the command says beside that is of the same kind.
"""

from nextfire.client import ApiError, ClientError

CliError = ClientError
"""What is wrong, and what to do about it."""

__all__ = ["ApiError", "CliError"]
