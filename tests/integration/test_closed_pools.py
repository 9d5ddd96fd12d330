"""A pool that is closed: for other tenants it does not exist, and runs nothing of theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nextfire.domain.run import RunState
from tests.integration.deployment import CALLS, OTHER_TENANT, TENANT, Deployment
from tests.integration.executor.conftest import send

URL = "https://example.com/hook"
UPLOAD = {"handler": "x", "size": 1, "sha256": "0" * 64}
HOST = "example.com"


def close(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, *names: str, tenant: str = OTHER_TENANT
) -> None:
    """Close the pools *names* to others than *tenant*: `default` runs scripts, `CALLS` calls."""
    pool: dict[str, Any] = {"queueUrl": system.queue_url, "maxTimeout": "PT14M"}
    pools = {"default": pool, CALLS: pool | {"targets": "calls"}, "open": pool}
    pools |= {name: pools[name] | {"tenants": [tenant]} for name in names}
    system.configure(monkeypatch, pools=json.dumps(pools), tenants=json.dumps([tenant]))


def job(pool: str) -> dict[str, Any]:
    target = {"http": {"url": URL}} if pool == CALLS else {"handler": "x"}
    return {"type": "CRON", "schedule": "* * * * *", "target": {"pool": pool} | target}


@pytest.mark.parametrize("pool", ["default", CALLS])
def test_another_tenant_can_neither_store_a_job_nor_upload(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    close(system, monkeypatch, "default", CALLS)

    for path, field, body in (
        ("/v1/jobs", "target.pool", job(pool)),
        ("/v1/scripts/uploads", "pool", UPLOAD | {"pool": pool}),
    ):
        answer = system.call("POST", path, body)
        assert answer.status == 422, answer.document
        assert answer.fault["field"] == field
        assert "closed to your tenant" in answer.fault["problem"]
        assert answer.fault["remedy"] == "Available: open."
        assert OTHER_TENANT not in json.dumps(answer.document)


def test_a_job_cannot_be_moved_into_it(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    close(system, monkeypatch, "default")
    system.register(jobId="a", target={"pool": "open", "handler": "x"})

    answer = system.call("PATCH", "/v1/jobs/a", {"target": {"pool": "default", "handler": "x"}})

    assert answer.status == 422, answer.document
    assert answer.fault["field"] == "target.pool"


def test_its_tenants_use_it(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    close(system, monkeypatch, "default", CALLS, tenant=TENANT)

    for pool in ("default", CALLS):
        assert system.call("POST", "/v1/jobs", job(pool)).status == 201
    assert system.call("POST", "/v1/scripts/uploads", UPLOAD).status == 201
    system.upload("print('ran')")
    message = send(system, system.register())
    assert system.execute(system.receive()) == set()
    assert system.run(message).state is RunState.SUCCEEDED


def test_a_job_from_before_starts_nothing_there(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.upload("print('ran')")
    earlier = system.register(jobId="a")
    close(system, monkeypatch, "default")
    message = send(system, earlier)

    assert system.execute(system.receive()) == set()

    run = system.run(message)
    assert (run.state, run.attempt, run.stdout) == (RunState.DEAD, 1, None)
    assert f"the pool 'default' is closed to tenant '{TENANT}'" in (run.reason or "")
    past = {"from": "2026-05-01T00:00:00Z", "to": "2026-05-01T00:02:00Z"}
    for path, body in (
        ("/v1/jobs/a/run", {}),
        ("/v1/jobs/a/backfill", past),
        (f"/v1/executions/{message.key.execution_id}/redrive", {}),
    ):
        answer = system.call("POST", path, body)
        assert answer.status == 409, answer.document
        assert "closed to your tenant" in answer.document["detail"]
        assert "Available: open, webhooks." in answer.document["detail"]
    assert system.call("POST", "/v1/jobs/a/pause").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/scripts/default/x/versions"),
        ("GET", f"/v1/endpoints/{CALLS}/{HOST}"),
        ("POST", f"/v1/endpoints/{CALLS}/{HOST}/pause"),
        ("POST", "/v1/pools/default/redrive"),
    ],
)
def test_its_routes_do_not_find_it(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    close(system, monkeypatch, "default", CALLS)

    answer = system.call(method, path)

    assert answer.status == 404, answer.document
    assert "Available: open." in answer.document["detail"]


def test_a_tenant_without_any_pool_is_told_so(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(system, monkeypatch, "default", CALLS, "open")

    assert system.call("GET", "/v1/endpoints").document["items"] == []
    answer = system.call("POST", "/v1/jobs", job("default"))
    assert answer.fault["remedy"] == "No pool is open to your tenant: ask the operator."
