"""What the API checks of placeholders for the runs of parents before it stores a job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.api_answers import assert_problem
from tests.integration.deployment import LIMIT, Answer, Deployment


@pytest.fixture(autouse=True)
def pools(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of scripts and one of calls."""
    base = {"queueUrl": system.queue_url, "maxTimeout": LIMIT}
    found = {"default": base, "calls": base | {"targets": "calls"}}
    system.configure(monkeypatch, pools=json.dumps(found))


def create(system: Deployment, target: dict[str, Any], **fields: Any) -> Answer:
    return system.call("POST", "/v1/jobs", {"type": "MANUAL", "target": target, **fields})


def http(rows: str) -> dict[str, Any]:
    return {"pool": "calls", "http": {"url": "https://api.example.com/hooks", "body": {"n": rows}}}


@pytest.mark.parametrize(
    ("which", "placeholder", "status"),
    [
        ("same", "{{upstream.extract.result.rows}}", 201),
        ("all", "{{upstream.extract.runs.0.result.rows}}", 201),
        ("all", "{{upstream.extract.runs}}", 201),
        ("all", "{{upstream.extract.result.rows}}", 422),
        ("same", "{{upstream.extract.runs}}", 422),
    ],
)
def test_placeholders_name_what_a_parent_has(
    system: Deployment, which: str, placeholder: str, status: int
) -> None:
    hourly: dict[str, Any] = {"type": "CRON", "schedule": "0 * * * *"}
    create(system, {"handler": "h"}, jobId="extract", **hourly)

    after = [{"job": "extract", "which": which}]
    made = create(system, http(placeholder), **hourly, after=after)

    assert made.status == status, made.document


def test_a_parent_that_the_template_names_is_not_removed(system: Deployment) -> None:
    for name in ("extract", "clean"):
        create(system, {"handler": "h"}, jobId=name)
    target = http("{{upstream.extract.result.rows}}")
    after = [{"job": "extract"}, {"job": "clean"}]
    made = create(system, target, jobId="send", type="AFTER", after=after)
    assert made.status == 201, made.document

    changed = system.call("PATCH", "/v1/jobs/send", {"after": [{"job": "clean"}]})

    assert_problem(changed, 422, field="target.http.body")
    assert "upstream has clean" in str(changed.document)
