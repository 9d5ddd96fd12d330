"""No request costs much more CPU than another request of its size. Each is measured as a ratio to
a plain request of the same route, for all routes in the API's own description.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from functions.api import services
from functions.api.bounds import MAX_UNKNOWN_FIELDS
from functions.api.handler import handler as api_handler
from nextfire.domain.definition import MAX_LABELS
from nextfire.domain.instants import parse_instant
from nextfire.domain.target import MAX_ENV
from tests.crons import LONG
from tests.fakes import Clock
from tests.integration.deployment import Context, Deployment, http_event, identity
from tests.security.costly_bodies import (
    PARTS,
    SIZE,
    Operation,
    Place,
    body_of,
    entries,
    fields,
    hostile_bodies,
    hostile_values,
    items,
    job,
    name_of,
    operations,
    put,
    with_body,
)

MOST = 40.0
"""Multiple of the CPU of a plain body of that size. A body of 8-byte objects takes half of it
because Python creates an object for each. A document with 20,000 errors took more than 100.
"""
MOST_PER_REJECTION = 10.0
"""The same for a body that has more entries than the API reads."""
TRIES = 6
_PARAMETER = 4000
_EVENT = 6 * 1024 * 1024
"""The largest event of a Lambda function."""


class Api:
    """Sends requests and measures the CPU time of the answers."""

    def __init__(self, system: Deployment) -> None:
        assert system.call("GET", "/v1/health").status == 200

    def ask(
        self, operation: Operation, body: str | None = None, **more: dict[str, str]
    ) -> tuple[float, dict[str, Any]]:
        method, path, _ = operation
        for name in ("jobId", "job_id"):
            path = path.replace(f"{{{name}}}", "some-job")
        path = path.replace("{", "").replace("}", "")
        event = http_event(
            method, path, body, query=more.get("query"), authorizer=identity("123456789012")
        )
        event["headers"] |= more.get("headers", {})
        began = time.process_time()
        answer = api_handler(event, Context())
        return time.process_time() - began, answer

    def cost(self, operation: Operation, body: str | None = None, **more: dict[str, str]) -> float:
        took, answer = self.ask(operation, body, **more)
        assert answer["statusCode"] < 500, (name_of(operation), (body or "")[:200], answer["body"])
        return took


@pytest.fixture
def api(system: Deployment) -> Api:
    return Api(system)


def check(
    plain: Callable[[], float], attack: Callable[[], float], what: str, most: float = MOST
) -> float:
    """Repeat the measurement until the ratio is within bounds: load can only make it larger."""
    lowest, least = float("inf"), float("inf")
    for _ in range(TRIES):
        lowest, least = min(lowest, plain()), min(least, attack())
        if least <= most * lowest:
            return least / lowest
    raise AssertionError(
        f"{what}: {least / lowest:.0f} times the CPU of a plain one ({least:.3f} s)"
    )


PLAIN = json.dumps({"unknown": ["x" * 10] * (SIZE // 14)})


def attacks(operation: Operation) -> Iterator[tuple[str, str]]:
    """Hostile bodies, each with the place of the hostile value."""
    yield from (("body", body) for body in hostile_bodies())
    example = body_of(operation)[1][0]
    for place in fields(operation):
        for value in hostile_values(SIZE):
            yield ".".join(place), put(example, place, value)


@pytest.mark.skipif(not LONG, reason="takes minutes: make test-long")
@pytest.mark.parametrize("operation", with_body(), ids=name_of)
def test_no_body_costs_much_more_than_a_plain_one_of_its_size(
    api: Api, operation: Operation
) -> None:
    api.cost(operation, PLAIN)  # warms up the process
    baseline = min(api.cost(operation, PLAIN) for _ in range(3))
    worst = (0.0, "")

    for place, body in attacks(operation):
        took = api.cost(operation, body)
        if took > MOST * baseline:
            took = (
                baseline
                * check(
                    lambda: api.cost(operation, PLAIN),
                    lambda body=body: api.cost(operation, body),  # type: ignore[misc]
                    f"{name_of(operation)}, {place}: {body[:60]}… {body[-20:]}",
                )
            )
        worst = max(worst, (took / baseline, f"{place}: {body[:60]}"))

    print(f"{name_of(operation)}: {worst[0]:.1f} times, {worst[1]}")  # noqa: T201 — shown by `-rP`


TOO_MUCH: dict[str, Place] = {
    "variables": ("target", "env"),
    "labels": ("labels",),
    "states": ("retryPolicy", "retryOn", "states"),
    "fields": (),
}


@pytest.mark.parametrize("place", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("operation", ["createJob", "putJob", "changeJob"])
def test_what_is_too_much_is_refused_before_it_is_read(
    system: Deployment, api: Api, operation: str, place: Place
) -> None:
    system.register(jobId="some-job")
    [found] = [each for each in operations() if name_of(each) == operation]
    value = entries(lambda n: f"a{n}", "1", SIZE)
    if place[-1:] == ("states",):
        value = items('"x"', SIZE)
    body = put(job(), place, value) if place else value

    ratio = check(
        lambda: api.cost(found, PLAIN),
        lambda: api.cost(found, body),
        f"{operation}: {'.'.join(place)}",
        MOST_PER_REJECTION,
    )
    print(f"{operation}, {'.'.join(place)}: {ratio:.1f} times")  # noqa: T201 — shown by `-rP`


FULL: dict[str, dict[str, Any]] = {
    "variables": job(target={"handler": "x", "env": {f"a{n}": {} for n in range(MAX_ENV)}}),
    "names of variables": job(target={"handler": "x", "env": dict.fromkeys(map(str, range(64)))}),
    "labels": job(labels={f"a{n}": 1 for n in range(MAX_LABELS)}),
    "unknown fields": job(**{f"typ{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)}),
    "all": job(
        target={"handler": "x", "env": {f"a{n}": {} for n in range(MAX_ENV)}},
        labels={f"a{n}": 1 for n in range(MAX_LABELS)},
        **{f"typ{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)},
    ),
}


@pytest.mark.parametrize("kind", FULL)
def test_a_batch_of_jobs_with_all_possible_errors_costs_little_more(api: Api, kind: str) -> None:
    [batch] = [each for each in operations() if each[1] == "/v1/jobs:batch"]
    body = json.dumps({"jobs": [FULL[kind]] * 100})
    plain = json.dumps({"jobs": [{"unknown": "x" * (len(body) // 100)}] * 100})

    print(kind, check(lambda: api.cost(batch, plain), lambda: api.cost(batch, body), kind))  # noqa: T201 — shown by `-rP`


@pytest.mark.parametrize("operation", operations(), ids=name_of)
def test_no_parameter_costs_much_more_than_none(api: Api, operation: Operation) -> None:
    body = json.dumps(body_of(operation)[1][0]) if "requestBody" in operation[2] else None
    described = [each for each in operation[2].get("parameters", []) if "name" in each]
    names = [each["name"] for each in described if each.get("in") == "query"]
    headers = ["If-Match", "If-None-Match", "Idempotency-Key"]
    hostile: list[dict[str, dict[str, str]]] = [{"query": {f"a{n}": "b" for n in range(1000)}}]
    for part in (*PARTS, "a:b,", '"a", ', "A"):
        text = part * (_PARAMETER // len(part))
        hostile += [{"query": {name: text}} for name in names]
        hostile += [{"headers": {name: text + text}} for name in headers]
    api.cost(operation, body)

    for attack in hostile:
        check(
            lambda: max(api.cost(operation, body), 0.002),
            lambda attack=attack: api.cost(operation, body, **attack),  # type: ignore[misc]
            f"{name_of(operation)}, {str(attack)[:80]}",
        )


def test_a_body_beyond_the_request_rate_is_not_read(
    system: Deployment, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"requestsPerSecond": 1, "requestBurst": 1}
    system.configure(monkeypatch, quotas=json.dumps({"default": one}))
    monkeypatch.setattr(services, "clock", Clock(parse_instant("2026-05-24T10:00:30Z")))
    [create] = [each for each in operations() if name_of(each) == "createJob"]
    body = items("[]", _EVENT)
    while api.ask(create, "{}")[1]["statusCode"] != 429:
        pass

    check(
        lambda: max(api.cost(create, "{}"), 0.002),
        lambda: api.cost(create, body),
        "createJob",
        MOST_PER_REJECTION,
    )
