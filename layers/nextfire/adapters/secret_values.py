"""What a job may use of the value of a secret or parameter, wherever it is stored."""

from __future__ import annotations

import json

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.references import Reference, SecretReference


def usable_text(value: object, reference: Reference, name: str) -> str:
    """Return the text of *value*, or of the key that *reference* names. Numbers keep their
    notation.

    Raises:
        InvalidInputError: *value* is not text, or does not have the key. The error has the
            *name* of the secret or parameter where it is stored, and never the value.
    """
    if isinstance(reference, SecretReference) and reference.key is not None:
        value = _member(value, reference.key, name)
    if not isinstance(value, str) or not _fits_environment(value):
        raise invalid_secret(reference.noun, name, "its value is not text")
    return value


def invalid_secret(noun: str, name: str, problem: str) -> InvalidInputError:
    """The error for a secret or parameter that a job cannot use."""
    return InvalidInputError(noun, name, problem, f"Fix the {noun}, or the job's target.env.")


def _member(value: object, key: str, name: str) -> object:
    """The value of *key* in a JSON object."""
    try:
        document = json.loads(str(value), parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        document = None  # the error contains the secret, so it is not raised further
    if not isinstance(document, dict):
        raise invalid_secret("secret", name, "it is not a JSON object, so it has no keys")
    if key not in document:
        raise invalid_secret("secret", name, f"it has no key {key!r}")
    member = document[key]
    return json.dumps(member) if isinstance(member, bool) else member


def _fits_environment(value: str) -> bool:
    try:
        return b"\x00" not in value.encode()
    except UnicodeEncodeError:
        return False
