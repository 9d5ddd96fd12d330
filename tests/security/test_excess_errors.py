"""Requests with too many entries: what is accepted, and how the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.api.body import MAX_NESTED
from functions.api.bounds import MAX_UNKNOWN_FIELDS
from nextfire.domain.definition import MAX_LABELS
from nextfire.domain.document import MAX_PAYLOAD_BYTES
from nextfire.domain.target import MAX_ENV
from tests.integration.deployment import Deployment
from tests.security.costly_bodies import job


@pytest.mark.parametrize(
    ("changes", "field", "most"),
    [
        ({"target": {"handler": "x", "env": {f"a{n}": "" for n in range(65)}}}, "target.env", 64),
        ({"labels": {f"a{n}": "" for n in range(33)}}, "labels", 32),
        (
            {"retryPolicy": {"retryOn": {"exitCodes": [1] * 65}}},
            "retryPolicy.retryOn.exitCodes",
            64,
        ),
        ({"retryPolicy": {"retryOn": {"states": ["FAILED"] * 4}}}, "retryPolicy.retryOn.states", 3),
    ],
)
def test_excess_is_reported_with_its_count_its_limit_and_a_remedy(
    system: Deployment, changes: dict[str, Any], field: str, most: int
) -> None:
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/jobs/a")):
        refused = system.call(method, path, job(**changes))

        assert refused.status == 422
        assert refused.fault == {
            "field": field,
            "value": f"'{most + 1} entries'",
            "problem": f"more than {most} entries",
            "remedy": f"Send at most {most}.",
        }


def test_values_at_their_limits_are_accepted(system: Deployment) -> None:
    full = job(
        target={"handler": "x", "env": {f"a{n}": "" for n in range(MAX_ENV)}},
        labels={f"a{n}": "" for n in range(MAX_LABELS)},
    )

    assert system.call("POST", "/v1/jobs", full).status == 201


def test_unknown_fields_are_named_up_to_a_number(system: Deployment) -> None:
    few = system.call("POST", "/v1/jobs", job(**{f"a{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)}))
    many = system.call("POST", "/v1/jobs", job(**{f"a{n}": 1 for n in range(100)}))

    assert len(few.document["errors"]) == 20
    assert many.fault["field"] == "body"


def test_arrays_and_objects_are_counted_but_not_those_in_texts(system: Deployment) -> None:
    refused = system.call("POST", "/v1/jobs", text='{"x": [' + "[]," * 40_000 + "[]]}")
    read = system.call("POST", "/v1/jobs", text='{"x": "' + '\\"[]{' * 40_000 + '"}')

    assert refused.fault["problem"] == f"more than {MAX_NESTED} arrays and objects"
    assert "x" in {fault["field"] for fault in read.document["errors"]}


def test_a_payload_of_arrays_alone_is_accepted(system: Deployment) -> None:
    payload = "[" + ",".join(["[" * 20 + "]" * 20] * (MAX_PAYLOAD_BYTES // 41 - 1)) + "]"
    text = json.dumps(job(payload="here")).replace('"here"', payload)

    assert system.call("POST", "/v1/jobs", text=text).status == 201


def test_excessive_queries_are_refused(system: Deployment) -> None:
    labels = ",".join(f"a{n}:b" for n in range(MAX_LABELS + 1))

    assert "33 labels" in system.call("GET", "/v1/jobs", query={"label": labels}).fault["value"]
    long = system.call("GET", "/v1/jobs", query={"name": "x" * 4097})
    assert long.fault["problem"] == "longer than 4096 characters"
    tags = system.call("DELETE", "/v1/jobs/a", headers={"If-Match": '"a", ' * 1000})
    assert tags.fault["field"] == "If-Match"
