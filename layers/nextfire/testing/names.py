"""Checks the names that a test gives. A name with a typo would never match anything."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime

from pydantic import ValidationError

from nextfire.domain.references import SecretReference
from nextfire.testing.memory.stores import Stores

_ACTION = re.compile(r"[a-z][a-z0-9-]{0,63}:[A-Z][A-Za-z0-9]{0,127}")


def check_script(method: str, name: str, scripts: Collection[str]) -> None:
    """Check that *name*, given to *method*, is one of *scripts*.

    Raises:
        ValueError: It is not.
    """
    if name not in scripts:
        known = ", ".join(sorted(scripts)) or "none"
        raise ValueError(
            f"{method}: the test has no script {name!r}. Scripts: {known}. Give the name of a "
            "script (target.handler of the job), and provide it before: "
            f'stack.script("{name}", lambda run: None).'
        )


def check_url(url: str) -> None:
    """Check that *url* is the start of a URL.

    Raises:
        ValueError: It is not.
    """
    if not url.startswith(("https://", "http://")):
        raise ValueError(
            f"http: {url!r} is not the start of a URL: write "
            'stack.http("https://api.example.com/", lambda call: 200).'
        )


def check_action(action: str) -> None:
    """Check that *action* is a service and an operation, as in `target.aws`.

    Raises:
        ValueError: It is not.
    """
    if not _ACTION.fullmatch(action):
        raise ValueError(
            f"aws: {action!r} is not SERVICE:Action: write "
            'stack.aws("sqs:SendMessage", lambda given: {}).'
        )


def check_secret(name: str) -> None:
    """Check that a job can refer to *name*, or *name* before ``#``.

    Raises:
        ValueError: It cannot.
    """
    secret, hash_sign, key = name.partition("#")
    try:
        SecretReference(secret=secret, key=key if hash_sign else None)
    except ValidationError as error:
        raise ValueError(
            f"secret: a job cannot refer to {name!r}: use letters, digits and _+=@.- in a name, "
            '"/" between its parts, and "#" before a key, such as "billing/api-key" or '
            '"database#password".'
        ) from error


def check_call(call: str, stores: Stores) -> None:
    """Check that *call* is a store of *stores* and one of its methods.

    Raises:
        ValueError: It is not.
    """
    store, _, method = call.partition(".")
    if not callable(getattr(getattr(stores, store, None), method, None)):
        known = ", ".join(sorted(vars(stores)))
        raise ValueError(  # noqa: TRY004 - not about a type
            f"No call {call!r}: write due.put, for example. Stores: {known}."
        )


def instant(given: datetime | str) -> datetime:
    """*given* in UTC.

    Raises:
        ValueError: It is not an instant, or has no offset.
    """
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"{given!r} is not an instant: write 2027-01-01T00:00:00Z.") from error
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no offset: write {at.isoformat()}Z for UTC.")
    return at.astimezone(UTC)
