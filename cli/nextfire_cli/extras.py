"""Packages that only some commands need, and the extras that install them."""

from __future__ import annotations

from nextfire_cli.errors import CliError

_EXTRAS = {
    "boto3": "aws",
    "botocore": "aws",
    "aws_lambda_powertools": "worker",
    "orjson": "worker",
    "standardwebhooks": "worker",
    "urllib3": "worker",
    "cryptography": "signatures",
    "waitress": "local",
}


def missing_package(error: ModuleNotFoundError) -> CliError | None:
    """The error for a user whose installation lacks a package of an extra; None for others."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return CliError(
        f"This command needs the package {package}, which is not installed.",
        f"Install it: pip install 'nextfire[{extra}]'",
    )
