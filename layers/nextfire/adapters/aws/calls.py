"""SDK clients and web identity tokens of the pool's job role, for calls that jobs make."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cache
from typing import Any

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from nextfire.targets.role import Credentials, RoleCredentials

_CONNECT_TIMEOUT = 5.0  # seconds
_TOKEN_LIFE = 300  # seconds
_CACHED = 64
_TIMEOUT_STEP = 10.0


class RoleClients:
    """`Clients`: SDK clients with credentials of *role*. Thread-safe.

    A client takes 20 ms of CPU to make, so the latest are cached, by credentials too.
    """

    def __init__(self, role: RoleCredentials | None, region: str | None) -> None:
        self._role, self._region = role, region
        self._lock = threading.Lock()
        self._clients: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def client(
        self, job: JobKey, masker: Masker, service: str, region: str | None, timeout: float
    ) -> Any:
        if self._role is None:
            raise InvalidInputError(
                "target.aws", service, "the pool has no job role", "Set jobRole of the pool."
            )
        role = self._role.credentials(job, masker)
        steps = max(1, int(timeout / _TIMEOUT_STEP + 0.999))
        key = (service, region, steps, role.access_key, role.token)
        with self._lock:
            client = self._clients.pop(key, None) or _new_client(
                service, region or self._region, role, steps * _TIMEOUT_STEP
            )
            self._clients[key] = client
            if len(self._clients) > _CACHED:
                self._clients.popitem(last=False)
            return client


class RoleIdentity:
    """`WebIdentity`: tokens that AWS STS signs for the role."""

    def __init__(self, clients: RoleClients) -> None:
        self._clients = clients

    def token(self, job: JobKey, audience: str, masker: Masker) -> str:
        client = self._clients.client(job, masker, "sts", None, 10)
        try:
            with translated("get web identity token"):
                answer = client.get_web_identity_token(
                    Audience=[audience], DurationSeconds=_TOKEN_LIFE, SigningAlgorithm="ES384"
                )
        except refused() as error:
            raise InvalidInputError(
                "target.http.auth.type",
                "oidc",
                f"the job role gets no web identity token ({error_code(error)})",
                "Enable outbound web identity federation in the account, and allow the role "
                "sts:GetWebIdentityToken.",
            ) from error
        token = str(answer["WebIdentityToken"])
        masker.add(token)
        return token


def _new_client(service: str, region: str | None, role: Credentials, timeout: float) -> Any:
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        connect_timeout=min(_CONNECT_TIMEOUT, timeout),
        read_timeout=timeout,
        retries={"total_max_attempts": 1, "mode": "standard"},  # each retry is an attempt on record
    )
    return _session().create_client(
        service,
        region_name=region,
        aws_access_key_id=role.access_key,
        aws_secret_access_key=role.secret_key,
        aws_session_token=role.token,
        config=config,
    )


@cache
def _session() -> Any:
    """One for all clients: each session reads the descriptions of its services again, which take
    20 MB for ec2. It has no credentials: clients get their own.
    """
    # Imported when the first call is made: it takes a second.
    from botocore.session import Session  # noqa: PLC0415

    return Session()
