"""The authorizer: says to the gateway whose a request is, by the API key that it carries.

The gateway answers 401 by itself where there is no `Authorization`, and 403 where this says no; it
goes by what was said for half a minute.
"""

from __future__ import annotations

import gc

# Imported objects stay: collecting garbage during the imports is a tenth of the start's CPU.
gc.disable()

# ruff: noqa: E402
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws import SystemClock, dynamodb
from nextfire.adapters.key_store import DynamoDbKeyStore
from nextfire.domain.errors import UndecodableError
from nextfire.domain.keys import ApiKey, Scope, implied
from nextfire.settings import AuthorizerSettings
from nextfire.usecases.manage_keys import CheckKey, RecordKeyUse

gc.freeze()
gc.enable()

logger = Logger(service="authorizer")
clock = SystemClock()


class _Services:
    """What each request needs, built with the first of a process."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        keys = DynamoDbKeyStore(dynamodb(), table=settings.keys_table)
        self.check = CheckKey(keys)
        self.note = RecordKeyUse(keys, executor=ThreadPoolExecutor(1))


@cache
def services() -> _Services:
    return _Services(AuthorizerSettings.read())


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Judge the key of one request (payload format 2.0).

    Args:
        event: The gateway's; its `identitySource` holds the header `Authorization`.
        context: Lambda's; unused.

    Returns:
        The simple response: ``isAuthorized``, and with True in ``context`` the ``tenant``, the
        ``keyId`` and the ``scopes``, separated by spaces; of a restricted key ``restricted``, JSON.

    Raises:
        UnavailableError: Nothing is known of the key. The gateway answers 500, and keeps nothing.
    """
    now = clock.now()
    [authorization, *_] = event.get("identitySource") or [""]
    try:
        verdict = services().check.check(authorization, now)
    except UndecodableError as error:
        # It opens nothing, and asking again would not help.
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
        logger.warning("the use of a key was not noted", key=verdict.claimed, problem=trouble)
    logger.debug("let through", key=verdict.claimed, request_id=request.get("requestId"))
    return {"isAuthorized": True, "context": _identity(key)}


def _identity(key: ApiKey) -> dict[str, str]:
    """What the API is told of *key*. The gateway keeps it for 30 s by the key alone, whatever the
    source address, so the API itself checks the address of each request.

    A restricted key has its scopes inside `restricted`: an API of an older version, which does not
    know restrictions, finds no scopes and refuses.
    """
    included = implied(key.scopes)
    scopes = " ".join(scope for scope in Scope if scope in included)
    who = {"tenant": key.tenant, "keyId": key.key_id}
    if not key.restriction:
        return {**who, "scopes": scopes}
    cidrs, labels = key.restriction.cidrs, dict(key.restriction.labels)
    restricted = json.dumps({"scopes": scopes, "cidrs": cidrs, "labels": labels})
    return {**who, "scopes": "", "restricted": restricted}
