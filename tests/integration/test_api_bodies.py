"""Bodies that are not JSON, and failures that are not the caller's: the API's answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.api import services as api
from nextfire.settings import ApiSettings
from tests.crons import LONG
from tests.integration.api_answers import CRON, assert_problem, json_values
from tests.integration.deployment import TENANT, Deployment, Proxy, http_event, identity


class TestBodies:
    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "{",
            "null",
            "[]",
            '"text"',
            "7",
            '{"payload": NaN}',
            '{"payload": -Infinity}',
            '{"payload": {"a": [{"b": 1, "b": 1}]}}',
            "{'type': 'CRON'}",
            '{"a": 1} {"b": 2}',
            "[" * 100_000,
            '{"payload":' * 20_000,
            '{"payload": ' + "9" * 5000 + "}",
            b"\xff\xfe{}",
            b'{"name": "\xc3\x28"}',
        ],
        ids=lambda text: repr(text)[:24],
    )
    @pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs"), ("PATCH", "/v1/jobs/a")])
    def test_malformed_body(
        self, system: Deployment, method: str, path: str, text: str | bytes | None
    ) -> None:
        system.register(jobId="a")

        assert_problem(system.call(method, path, text=text), 400)

    def test_body_that_is_not_base64(self, system: Deployment) -> None:
        event = http_event("POST", "/v1/jobs", "é!", authorizer=identity(TENANT), encoded=True)

        assert_problem(system.answer(event), 400)

    @pytest.mark.parametrize(
        "text",
        ['{"payload": 1e400}', '{"payload": {"a": [-1e400]}}', '{"labels": {"\\ud800": ""}}'],
    )
    def test_values_that_json_cannot_carry(self, system: Deployment, text: str) -> None:
        system.register(jobId="a")

        created = system.call("POST", "/v1/jobs", text=json.dumps(CRON)[:-1] + ", " + text[1:])
        changed = system.call("PATCH", "/v1/jobs/a", text=text)

        assert {created.status, changed.status} <= {400, 422}, (created, changed)
        assert_problem(created, created.status)
        assert_problem(changed, changed.status)

    def test_body_too_deep_to_be_read_is_reported_in_our_words(self, system: Deployment) -> None:
        detail = system.call("POST", "/v1/jobs", text="[" * 100_000).document["detail"]

        assert detail == "The body is nested too deeply: the maximum is 32 levels."

    def test_half_a_surrogate_pair_is_named(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"payload": "\ud800"})

        assert "surrogate" in answer.fault["remedy"]

    def test_body_nested_too_deep(self, system: Deployment) -> None:
        payload: object = 1
        for _ in range(40):
            payload = [payload]

        assert_problem(system.call("POST", "/v1/jobs", CRON | {"payload": payload}), 422)

    def test_body_that_is_too_large(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"x": "y" * 256 * 1024})

        assert_problem(answer, 422, field="body")
        assert len(json.dumps(answer.document)) < 2000, "the rejection repeats the body"

    def test_payload_at_the_limit_is_taken(self, system: Deployment) -> None:
        payload = "x" * (64 * 1024 - 2)

        assert system.call("POST", "/v1/jobs", CRON | {"payload": payload}).status == 201

    def test_store_that_does_not_answer(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.register(jobId="a")
        proxy = Proxy(system.database)

        def throttle(_real: object, _request: object) -> None:
            raise system.database.exceptions.ProvisionedThroughputExceededException(
                {"Error": {"Code": "ProvisionedThroughputExceededException"}}, "GetItem"
            )

        proxy.instead["get_item"] = throttle
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()

        answer = system.call("GET", "/v1/jobs/a")

        assert_problem(answer, 503)
        assert answer.headers["retry-after"] == "1"

    def test_defect_is_reported_without_its_details(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise RuntimeError("password: hunter2")

        api.own_services.cache_clear()
        monkeypatch.setattr(ApiSettings, "read", fail)

        answer = system.call("GET", "/v1/jobs/a")

        assert_problem(answer, 500)
        assert "hunter2" not in json.dumps(answer.document)


plausible = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ONCE", "DELAY", "CRON"]) | json_values,
        "schedule": st.sampled_from(["* * * * *", "PT5S", "2030-01-01T00:00"])
        | st.text(alphabet="0123456789*/,-#LPTSHMDW:Z+", max_size=24)
        | st.datetimes().map(str)
        | json_values,
        "target": st.just({"handler": "hello"})
        | st.fixed_dictionaries(
            {},
            optional={
                "handler": st.just("hello") | json_values,
                "script": st.text(),
                "env": st.dictionaries(
                    st.text(max_size=5),
                    st.dictionaries(st.sampled_from(["secret", "parameter", "key"]), json_values)
                    | json_values,
                ),
            },
        )
        | json_values,
    },
    optional={
        "timezone": st.sampled_from(["Europe/Berlin", "Asia/Tokyo"]) | json_values,
        "payload": json_values,
        "retryPolicy": st.dictionaries(
            st.sampled_from(
                ["maxAttempts", "backoff", "initialDelayMs", "maxDelayMs", "jitter", "retryOn"]
            ),
            st.dictionaries(st.sampled_from(["states", "exitCodes"]), json_values) | json_values,
        )
        | json_values,
        "timeoutSec": json_values,
        "priority": json_values,
        "misfire": st.dictionaries(st.sampled_from(["policy", "relevancyWindowSec"]), json_values)
        | json_values,
        "overlap": st.sampled_from(["ALLOW", "QUEUE", "SKIP", "REPLACE"]) | json_values,
        "labels": st.dictionaries(st.text(max_size=5), st.text(max_size=5)) | json_values,
        "name": json_values,
        "jobId": json_values,
    },
)


@settings(
    max_examples=250 if LONG else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=plausible | json_values)
def test_no_body_is_our_fault(system: Deployment, body: object) -> None:
    created = system.call("POST", "/v1/jobs", body)
    system.call("POST", "/v1/jobs", CRON | {"jobId": "patched"})
    changed = system.call("PATCH", "/v1/jobs/patched", body)

    assert created.status in {201, 400, 409, 422}, created
    assert changed.status in {200, 400, 422}, changed
    if created.status == 201:
        # An accepted job can be read, by its id and in the listing.
        job_id = created.document["jobId"]
        assert system.shown(job_id) == created.document
    assert system.call("GET", "/v1/jobs").status == 200
