"""Errors of the command: those of the client, and their exit codes. `main` prints them."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from nextfire.client import ApiError, ClientError, UnreachableError
from nextfire.client.errors import InvalidValueError, MissingError, problem_document
from nextfire.domain.errors import NextfireError

CliError = ClientError
"""A problem and its remedy."""

FAILED, USAGE, NOT_FOUND, FORBIDDEN, CONFLICT, UNAVAILABLE = 1, 2, 3, 4, 5, 6
EXIT_CODES = {
    0: "done",
    FAILED: "failed",
    USAGE: "wrong usage, or a value that is not allowed",
    NOT_FOUND: "not found",
    FORBIDDEN: "credentials refused by the API, or not permitted",
    CONFLICT: "the state of the resource does not allow it, or it has changed",
    UNAVAILABLE: "no response, too many requests, or the API failed: try again later",
}
"""The exit codes of the command, and their meaning. Typer itself exits with 2."""
_BY_STATUS: dict[int, int] = {
    HTTPStatus.BAD_REQUEST: USAGE,
    HTTPStatus.UNPROCESSABLE_ENTITY: USAGE,
    HTTPStatus.UNAUTHORIZED: FORBIDDEN,
    HTTPStatus.FORBIDDEN: FORBIDDEN,
    HTTPStatus.NOT_FOUND: NOT_FOUND,
    HTTPStatus.CONFLICT: CONFLICT,
    HTTPStatus.PRECONDITION_FAILED: CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS: UNAVAILABLE,
}


def exit_code(error: BaseException | None) -> int:
    """Return the exit code for *error*, or for the error of the API that caused it."""
    while error is not None:
        if isinstance(error, UnreachableError):
            return UNAVAILABLE
        if isinstance(error, MissingError):
            return NOT_FOUND
        if isinstance(error, InvalidValueError):
            return USAGE
        if isinstance(error, ApiError):
            is_defect = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            return _BY_STATUS.get(error.status, UNAVAILABLE if is_defect else FAILED)
        error = error.__cause__
    return FAILED


@contextmanager
def reported(kind: type[CliError] = CliError) -> Iterator[None]:
    """Raise errors of the domain as *kind*."""
    try:
        yield
    except NextfireError as error:
        raise kind(str(error)) from error


__all__ = ["ApiError", "CliError", "MissingError", "exit_code", "problem_document", "reported"]
