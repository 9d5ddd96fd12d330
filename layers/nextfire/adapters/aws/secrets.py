"""Resolves jobs' references to secrets in Secrets Manager and parameters in Parameter Store."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.adapters.secret_values import invalid_secret, usable_text
from nextfire.domain.errors import NotFoundError
from nextfire.domain.places import tenant_place
from nextfire.domain.references import Reference, SecretReference

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

_MAX_AGE = 60  # seconds; part of the contract of `Secrets`
_CACHED = 256
_WAIT_FOR_TURN = 3  # seconds

_TO_BE_DELETED = "InvalidRequestException"
"""The secret is scheduled for deletion."""
_ABSENT = {"ResourceNotFoundException", _TO_BE_DELETED, "ParameterNotFound"}
_REFUSED = {
    "AccessDeniedException": "this pool may not read it",
    "DecryptionFailure": "this pool may not decrypt it",
    "InvalidKeyId": "this pool may not decrypt it",
    "InvalidParameterException": "the name is invalid",
    "ValidationException": "the name is invalid",
}


class AwsSecrets:
    """`Secrets`: ``nextfire/pools/<pool>/<tenant>/<secret>`` and
    ``/nextfire/pools/<pool>/<tenant>/<parameter>``.

    Powertools' providers fetch and cache the values. They use the wall clock and never drop expired
    values, so the whole cache is replaced once a minute, by a monotonic clock.
    """

    def __init__(self, secrets: SecretsManagerClient, parameters: SSMClient, *, pool: str) -> None:
        self._clients = secrets, parameters
        self._pool = pool
        self._lock = threading.Lock()  # guards `_cache`; never held during AWS calls
        self._cache: _Cache | None = None

    def resolve(
        self,
        tenant: str,
        reference: Reference,
        *,
        again: bool = False,
    ) -> str:
        noun = reference.noun
        name = f"nextfire/{tenant_place(self._pool, tenant)}{reference.name}"
        if noun == "parameter":
            name = f"/{name}"
        try:
            with translated(f"resolve {noun}"):
                value = self._latest(name).value(name, reference, again=again)
        except refused() as error:
            code = error_code(error)
            if code in _ABSENT:
                raise NotFoundError(noun, name, _remedy(code, name, reference)) from error
            if code in _REFUSED:
                raise invalid_secret(noun, name, _REFUSED[code]) from error
            raise
        return usable_text(value, reference, name)

    def _latest(self, name: str) -> _Cache:
        """The current cache, with a lock for *name*. Threads that use an older one continue."""
        with self._lock:
            cache = self._cache
            if (
                cache is None
                or monotonic() - cache.since >= _MAX_AGE
                or len(cache.turns) >= _CACHED
            ):
                cache = self._cache = _Cache(*self._clients)
            cache.turns.setdefault(name, threading.Lock())
            return cache


class _Cache:
    """The values of one minute. `turns`: locks by name, held by the thread that fetches it."""

    def __init__(self, secrets: SecretsManagerClient, parameters: SSMClient) -> None:
        self.since = monotonic()
        self.turns: dict[str, threading.Lock] = {}
        # Powertools' providers import boto3, which takes a second. Most runs use no secret.
        from aws_lambda_powertools.utilities.parameters import (  # noqa: PLC0415
            GetParameterError,
            SecretsProvider,
            SSMProvider,
        )

        self._failed = GetParameterError
        self._secrets = SecretsProvider(boto3_client=secrets)
        self._parameters = SSMProvider(boto3_client=parameters)

    def value(self, name: str, reference: Reference, *, again: bool) -> object:
        turn = self.turns[name]
        # If the fetching thread gets no response, the others do not queue behind it.
        ours = turn.acquire(timeout=_WAIT_FOR_TURN)
        try:
            if isinstance(reference, SecretReference):
                return self._secrets.get(name, max_age=_MAX_AGE, force_fetch=again)
            return self._parameters.get(name, max_age=_MAX_AGE, decrypt=True, force_fetch=again)
        except self._failed as error:
            # Powertools' error holds only text; the SDK's error is its cause.
            raise (error.__cause__ or error.__context__ or error) from None
        finally:
            if ours:
                turn.release()


def _remedy(code: str, name: str, reference: Reference) -> str:
    """The command that creates a secret or parameter, on AWS and on the local stack."""
    local = "(on a local stack: nextfire secrets put"
    if not isinstance(reference, SecretReference):
        return (
            f"Create the parameter: aws ssm put-parameter --name {name} --type SecureString"
            f" --value file://FILE {local} --parameter {reference.name})"
        )
    if code == _TO_BE_DELETED:
        return (
            f"It is to be deleted. Restore it: aws secretsmanager restore-secret --secret-id {name}"
        )
    return (
        f"Create the secret: aws secretsmanager create-secret --name {name}"
        f" --secret-string file://FILE {local} {reference.name})"
    )
