"""Clients of the SDK that tests share: creating one takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import boto3  # noqa: TID251 — its clients are shared

REGION: Literal["eu-central-1"] = "eu-central-1"
new_client = boto3.client
_clients: dict[tuple[str, str], Any] = {}
_SHARED = {"config", "region_name"}
"""Clients with other options are new ones."""


def of_moto(service: str, *args: Any, **options: Any) -> Any:
    """A client shared by all tests on moto. Each `Config` is a new object, so its options are the
    key.
    """
    if args or "config" not in options or options.keys() - _SHARED:
        return new_client(service, *args, **options)  # type: ignore[call-overload]
    key = f"{service} {options.get('region_name')}", _given(options)
    if key not in _clients:
        _clients[key] = new_client(service, **options)  # type: ignore[call-overload]
    return _clients[key]


@cache
def _session() -> Any:
    """The session of all clients of servers. The account is the access key."""
    return boto3.Session("of each test", "testing", region_name=REGION)


def of_server(address: str, account: str) -> Callable[..., Any]:
    """As `of_moto`, for *account* of the server at *address*; only for the services that most tests
    call, and unless a test has set another endpoint.
    """
    _session().get_credentials().access_key = account

    def client(service: Any, **options: Any) -> Any:
        elsewhere = os.environ["AWS_ENDPOINT_URL"] != address  # noqa: TID251 — as the SDK does
        if elsewhere or service not in {"dynamodb", "sqs"} or options.keys() - _SHARED:
            return new_client(service, **options)
        key = f"{service} {address} {options.get('region_name')}", _given(options)
        if key not in _clients:
            _clients[key] = _session().client(service, endpoint_url=address, **options)
        return _clients[key]

    return client


def _given(options: dict[str, Any]) -> str:
    """The options in the `Config` of *options*, as text."""
    config = options.get("config")
    return repr(config and vars(config)["_user_provided_options"])
