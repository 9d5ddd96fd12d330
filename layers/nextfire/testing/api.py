"""The API of a stack: the product's own routes, called in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import count
from math import ceil
from typing import Any

import httpx2

from functions.api.access import without_access
from functions.api.app import app
from functions.api.areas import include_for
from functions.api.request_record import noting
from functions.api.services import Services, serving
from functions.embedded.gateway_event import GatewayRequest, event_of, response_of
from nextfire.client import Client
from nextfire.domain.quotas import TenantQuotas
from nextfire.settings import ApiSettings, DeployedPool
from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.keys import MemoryKeyStore
from nextfire.testing.memory.overview import MemoryRunOverview
from nextfire.testing.memory.requests import MemoryBucketStore
from nextfire.testing.memory.scripts import MemoryScriptShelf
from nextfire.testing.memory.stores import Stores
from nextfire.wiring.api import ApiPorts

TENANT = "default"
BUCKET = "scripts"
_CALLER = {"lambda": {"tenant": TENANT, "keyId": "0" * 16, "scopes": "admin upload"}}
_NAMED: dict[str, Any] = {
    f"{name}_table": name
    for name in ("jobs", "due", "runs", "control", "keys", "requests", "endpoints")
}
"""Settings without a meaning here."""
_turn = threading.Lock()
"""The resolver answers one request at a time, as in a function; clients may call from threads."""


def client(
    stores: Stores,
    through: Any,
    clock: Clock,
    pools: Mapping[str, str],
    *,
    max_timeout: timedelta,
    quotas: TenantQuotas,
    advance: Callable[[timedelta], object],
) -> Client:
    """A client of the API on *stores*. *through*: wraps a port, given it and its name; *pools*:
    what each runs, ``scripts`` or ``calls``; *advance*: lets time of *clock* pass.
    """

    def sleep(seconds: float) -> None:
        advance(timedelta(milliseconds=ceil(seconds * 1000)))

    settings = ApiSettings.model_construct(
        **_NAMED,
        scripts_bucket=BUCKET,
        outputs_bucket="outputs",
        pools={
            name: DeployedPool(
                queue_url=name, max_timeout=max_timeout, targets=targets, has_job_role=True
            )
            for name, targets in pools.items()
        },
        write_shards=1,
        read_shards=1,
        quotas=quotas,
    )
    ports = ApiPorts(
        jobs=through(stores.jobs, "jobs"),
        runs=through(stores.runs, "runs"),
        due=through(stores.due, "due"),
        control=through(stores.control, "control"),
        keys=MemoryKeyStore(),
        requests=through(stores.requests, "requests"),
        buckets=MemoryBucketStore(),
        endpoints=through(stores.endpoints, "endpoints"),
        files=through(stores.files, "files"),
        shelf=MemoryScriptShelf(clock),
        note_change=lambda *_: None,
        overview=MemoryRunOverview(stores.runs),
        joins=through(stores.joins, "joins"),
    )
    transport = _InProcess(Services(settings, ports, clock), clock)
    return Client(
        "https://nextfire.test",
        auth=httpx2.Auth(),
        transport=transport,
        retries=0,
        sleep=sleep,
        monotonic=lambda: clock.now().timestamp(),
    )


class _InProcess(httpx2.BaseTransport):
    """Answers requests by the API's resolver, as its handler does."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services, self._clock = services, clock
        self._numbers = count(1)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        target = request.url.raw_path.decode()
        given = GatewayRequest(
            request.method, target, request.headers.multi_items(), request.read(), "127.0.0.1"
        )
        request_id = f"request-{next(self._numbers)}"
        event = event_of(given, now=self._clock.now(), request_id=request_id)
        event["requestContext"]["authorizer"] = _CALLER
        include_for(event["rawPath"])
        with _turn, serving(self._services), noting(), without_access():
            answer = app.resolve(event, None)  # type: ignore[arg-type] # no route reads the context
        found = response_of(answer, request_id)
        return httpx2.Response(
            found.status, headers=[*found.headers], content=found.body, request=request
        )
