"""What jobs refer to: secrets in Secrets Manager, parameters in the SSM Parameter Store."""

from __future__ import annotations

import json
import threading
from time import monotonic
from typing import TYPE_CHECKING

from nextfire.adapters.aws_errors import error_code, refused, translated
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.job import ParameterReference, SecretReference
from nextfire.domain.places import tenant_place

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

_MAX_AGE = 60  # s, what `Secrets` promises
_CACHED = 256
_PATIENCE = 3  # s

_ABSENT = frozenset(
    {
        "ResourceNotFoundException",
        "InvalidRequestException",  # a secret that is about to be deleted
        "ParameterNotFound",
    }
)
_REFUSED = {
    "AccessDeniedException": "this pool may not read it",
    "DecryptionFailure": "this pool may not decrypt it",
    "InvalidKeyId": "this pool may not decrypt it",
    "InvalidParameterException": "it cannot have this name",
    "ValidationException": "it cannot have this name",
}


class AwsSecrets:
    """`Secrets`: ``nextfire/pools/<pool>/<tenant>/<secret>`` and
    ``/nextfire/pools/<pool>/<tenant>/<parameter>``.

    Powertools' providers fetch and keep the values. They go by the wall clock and keep what has
    expired, so all is forgotten once a minute, by a clock that is never set.
    """

    def __init__(self, secrets: SecretsManagerClient, parameters: SSMClient, *, pool: str) -> None:
        self._clients = secrets, parameters
        self._pool = pool
        self._lock = threading.Lock()  # of `_kept`; never held while AWS is asked
        self._kept: _Kept | None = None

    def resolve(self, tenant: str, reference: SecretReference | ParameterReference) -> str:
        noun, name = _named(tenant_place(self._pool, tenant), reference)
        try:
            with translated(f"resolve {noun}"):
                value = self._latest(name).value(name, reference)
        except refused() as error:
            code = error_code(error)
            if code in _ABSENT:
                raise NotFoundError(noun, name, f"Create the {noun}.") from error
            if code in _REFUSED:
                raise _invalid(noun, name, _REFUSED[code]) from error
            raise
        if isinstance(reference, SecretReference) and reference.key is not None:
            value = _member(value, reference.key, name)
        if not isinstance(value, str) or not _fits_environment(value):
            raise _invalid(noun, name, "its value is not a text")
        return value

    def _latest(self, name: str) -> _Kept:
        """What is kept at present, with a place for *name*. Whoever reads an older one goes on."""
        with self._lock:
            kept = self._kept
            if kept is None or monotonic() - kept.since >= _MAX_AGE or len(kept.turns) >= _CACHED:
                kept = self._kept = _Kept(*self._clients)
            kept.turns.setdefault(name, threading.Lock())
            return kept


class _Kept:
    """The values of a minute. `turns`: by name, held by the one of several that fetches it."""

    def __init__(self, secrets: SecretsManagerClient, parameters: SSMClient) -> None:
        self.since = monotonic()
        self.turns: dict[str, threading.Lock] = {}
        # Powertools' providers import boto3, which takes a second: most runs refer to no secret.
        from aws_lambda_powertools.utilities.parameters import (  # noqa: PLC0415
            GetParameterError,
            SecretsProvider,
            SSMProvider,
        )

        self._failed = GetParameterError
        self._secrets = SecretsProvider(boto3_client=secrets)
        self._parameters = SSMProvider(boto3_client=parameters)

    def value(self, name: str, reference: SecretReference | ParameterReference) -> object:
        turn = self.turns[name]
        # Where that one gets no answer, the others do not queue up behind it.
        ours = turn.acquire(timeout=_PATIENCE)
        try:
            if isinstance(reference, SecretReference):
                return self._secrets.get(name, max_age=_MAX_AGE)
            return self._parameters.get(name, max_age=_MAX_AGE, decrypt=True)
        except self._failed as error:
            # It says what went wrong in words only; the SDK's own error stands behind it.
            raise (error.__cause__ or error.__context__ or error) from None
        finally:
            if ours:
                turn.release()


def _named(place: str, reference: SecretReference | ParameterReference) -> tuple[str, str]:
    if isinstance(reference, SecretReference):
        return "secret", f"nextfire/{place}{reference.secret}"
    return "parameter", f"/nextfire/{place}{reference.parameter}"


def _member(value: object, key: str, name: str) -> object:
    """The value under *key*, numbers as they are written."""
    try:
        document = json.loads(str(value), parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        document = None  # the error holds the value, so it goes no further
    if not isinstance(document, dict):
        raise _invalid("secret", name, "it is not a JSON object, so it has no keys")
    if key not in document:
        raise _invalid("secret", name, f"it has no key {key!r}")
    member = document[key]
    return json.dumps(member) if isinstance(member, bool) else member


def _fits_environment(value: str) -> bool:
    try:
        return b"\x00" not in value.encode()
    except UnicodeEncodeError:
        return False


def _invalid(noun: str, name: str, problem: str) -> InvalidInputError:
    return InvalidInputError(noun, name, problem, "Mend it, or the job's target.env.")
