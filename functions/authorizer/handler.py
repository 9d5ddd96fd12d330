"""The Lambda authorizer of the API gateway: authenticates requests by their API key.

The gateway itself returns 401 if the header `Authorization` is missing, and 403 if this function
rejects the request. It caches each result for 30 s.
"""

from __future__ import annotations

import gc

# Garbage collection during the imports takes a tenth of the startup CPU, and imports live on.
gc.disable()

# ruff: noqa: E402
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.errors import UndecodableError
from nextfire.domain.keys import ApiKey, Scope, implied
from nextfire.settings import AuthorizerSettings
from nextfire.usecases.manage_keys import CheckKey, RecordKeyUse
from nextfire.wiring.authorizer import key_store

gc.freeze()
gc.enable()

logger = Logger(service="authorizer")
clock = SystemClock()


class _Services:
    """The use cases, built for the first request of a process."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        keys = key_store(settings)
        self.check = CheckKey(keys)
        self.note = RecordKeyUse(keys, executor=ThreadPoolExecutor(1))


@cache
def services() -> _Services:
    return _Services(AuthorizerSettings.read())


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Check the key of one request (payload format 2.0).

    Args:
        event: The gateway's event; `identitySource` holds the header `Authorization`.
        context: The Lambda context; unused.

    Returns:
        The simple response: ``isAuthorized``; if true, also ``context`` with ``tenant``, ``keyId``
        and ``scopes`` (separated by spaces), and ``restricted`` (JSON) for a restricted key.

    Raises:
        UnavailableError: The key could not be read. The gateway returns 500, and caches nothing.
    """
    now = clock.now()
    [authorization, *_] = event.get("identitySource") or [""]
    try:
        verdict = services().check.check(authorization, now)
    except UndecodableError as error:
        # The key grants no access, and a retry would not help.
        logger.error("stored key does not decode", problem=str(error))  # noqa: TRY400 — a trace says no more
        return {"isAuthorized": False}
    request = event.get("requestContext", {})
    if verdict.key is None:
        logger.info(
            "refused",
            reason=verdict.reason,
            key=verdict.claimed,
            source_ip=request.get("http", {}).get("sourceIp"),
            request_id=request.get("requestId"),
        )
        return {"isAuthorized": False}
    key = verdict.key
    if trouble := services().note.note(key, now):
        logger.warning("last use of a key not recorded", key=verdict.claimed, problem=trouble)
    logger.debug("let through", key=verdict.claimed, request_id=request.get("requestId"))
    return {"isAuthorized": True, "context": _identity(key)}


def _identity(key: ApiKey) -> dict[str, str]:
    """The authorizer context of *key*, which the API receives.

    The gateway caches it for 30 s by key only, regardless of the source address. So the API itself
    checks the source address of each request.

    A restricted key has its scopes inside `restricted`: an API of an older version, which does not
    know restrictions, finds no scopes and rejects the request.
    """
    included = implied(key.scopes)
    scopes = " ".join(scope for scope in Scope if scope in included)
    who = {"tenant": key.tenant, "keyId": key.key_id}
    if not key.restriction:
        return {**who, "scopes": scopes}
    cidrs, labels = key.restriction.cidrs, dict(key.restriction.labels)
    restricted = json.dumps({"scopes": scopes, "cidrs": cidrs, "labels": labels})
    return {**who, "scopes": "", "restricted": restricted}
