"""Policies and targets over the API: bounds, defaults, and what they name in the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api_answers import assert_problem
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


class TestPolicies:
    @pytest.mark.parametrize(
        ("policy", "field", "value"),
        [
            ({"maxAttempts": 0}, "retryPolicy.maxAttempts", "0"),
            ({"maxAttempts": -1}, "retryPolicy.maxAttempts", "-1"),
            ({"maxAttempts": 101}, "retryPolicy.maxAttempts", "101"),
            ({"maxAttempts": None}, "retryPolicy.maxAttempts", "null"),
            ({"maxAttempts": "unlimited"}, "retryPolicy.maxAttempts", "'unlimited'"),
            ({"initialDelayMs": 10**12}, "retryPolicy.initialDelayMs", "1000000000000"),
            ({"maxDelayMs": -1}, "retryPolicy.maxDelayMs", "-1"),
            ({"jitter": "HALF"}, "retryPolicy.jitter", "'HALF'"),
            ({"retryOn": {"states": ["SUCCEEDED"]}}, "retryPolicy.retryOn.states.0", "'SUCCEEDED'"),
            ({"retryOn": {"exitCodes": []}}, "retryPolicy.retryOn.exitCodes", "[]"),
            ({"retryOn": {"exitCodes": [256]}}, "retryPolicy.retryOn.exitCodes.0", "256"),
        ],
    )
    def test_policy_that_never_ends_or_says_nothing(
        self, system: Deployment, policy: dict[str, Any], field: str, value: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert_problem(answer, 422, field=field)
        assert answer.fault["value"] == value
        assert "For example" in answer.fault["remedy"]

    def test_delays_that_add_up_to_years(self, system: Deployment) -> None:
        policy = {"maxAttempts": 100, "initialDelayMs": 5_000_000_000, "backoff": "FIXED"}

        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert_problem(answer, 422, field="retryPolicy")
        assert answer.fault["problem"] == "the delays add up to 5729 days, more than 1830"
        assert answer.fault["remedy"] == "Lower maxAttempts, initialDelayMs or maxDelayMs."

    def test_whole_policy_comes_back(self, system: Deployment) -> None:
        policy = {
            "maxAttempts": 100,
            "backoff": "LINEAR",
            "initialDelayMs": 86_400_000,
            "maxDelayMs": 86_400_000,
            "jitter": "FULL",
            "retryOn": {"states": ["FAILED", "WORKER_LOST"], "exitCodes": [75, -9]},
        }

        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert answer.status == 201, answer.document
        assert answer.document["retryPolicy"] == policy

    @pytest.mark.parametrize(
        ("env", "field", "problem"),
        [
            ({"HOME": "/"}, "target.env", "HOME is set by the executor"),
            ({"NEXTFIRE_X": "/"}, "target.env", "NEXTFIRE_X is set by the executor"),
            ({"1 a": "x"}, "target.env", "not the name of a variable"),
            ({"A": 7}, "target.env.A", "neither a string nor a reference"),
            ({"A": None}, "target.env.A", "neither a string nor a reference"),
            ({"A": {"secret": "../x"}}, "target.env.A.secret", "not a reference"),
            ({"A": {"parameter": "/x"}}, "target.env.A.parameter", "not a reference"),
            ({"A": {"secret": "x", "more": 1}}, "target.env.A.more", "unknown field"),
            ({"A": "x" * 4097}, "target.env.A", "at most 4096"),
            ({f"A{n}": "x" * 4096 for n in range(5)}, "target.env", "more than 16384"),
            ({f"A{n}": "x" for n in range(65)}, "target.env", "more than 64"),
            ([], "target.env", "should be an object"),
        ],
    )
    def test_environment(self, system: Deployment, env: object, field: str, problem: str) -> None:
        target = {"handler": "hello", "env": env}

        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert_problem(answer, 422, field=field)
        assert problem in answer.fault["problem"]

    def test_references_come_back_as_they_are(self, system: Deployment) -> None:
        env = {
            "LEVEL": "debug",
            "KEY": {"secret": "billing/key", "key": "api"},
            "URL": {"parameter": "billing/url"},
        }
        target = {"pool": "default", "handler": "app.zip", "env": env}

        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert answer.status == 201, answer.document
        assert answer.document["target"] == target

    def test_a_variable_is_patched_whole(self, system: Deployment) -> None:
        env = {"KEY": {"secret": "a", "key": "b"}, "OLD": "x", "KEPT": "y"}
        job = system.register(target={"handler": "hello", "env": env})
        change = {"KEY": {"parameter": "p"}, "OLD": None, "NEW": "z"}

        answer = system.call("PATCH", f"/v1/jobs/{job.key.job_id}", {"target": {"env": change}})

        assert answer.document["target"]["env"] == {
            "KEY": {"parameter": "p"},
            "KEPT": "y",
            "NEW": "z",
        }

    @pytest.mark.parametrize(
        ("target", "field"),
        [
            *(({"handler": name}, "target.handler")
              for name in ("../x", "a/b", "..", ".", "s3://b/x", "", "a" * 129, "a\n")),
            *(({"script": url}, "target.script")
              for url in ("s3://scripts/other/x.py", "s3://theirs/x.py", "/etc/passwd",
                          f"s3://scripts/{TENANT}/../{OTHER_TENANT}/x.py",
                          f"s3://scripts/{TENANT}/")),
            ({}, "target"),
            ({"handler": "a", "script": "s3://scripts/x"}, "target"),
        ],
    )  # fmt: skip
    def test_script_outside_the_tenants_prefix(
        self, system: Deployment, target: dict[str, str], field: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert_problem(answer, 422, field=field)
        assert "Value error" not in answer.document["detail"]

    def test_timeout_above_the_pools(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"timeoutSec": 841})

        assert_problem(answer, 422, field="timeoutSec")
        assert answer.fault["problem"] == "longer than pool 'default' allows"
        assert "Use at most 840" in answer.fault["remedy"]
