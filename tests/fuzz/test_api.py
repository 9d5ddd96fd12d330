"""The API with generated requests: from its description, along links, and raw."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import unquote

import pytest
import requests
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import JobKey
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.builders import claim_run
from tests.fuzz import items
from tests.fuzz.beginning import bring_back, held_by
from tests.fuzz.cases import EXAMPLES, SHARE, fuzzed, kept
from tests.fuzz.checks import check_kept
from tests.fuzz.damage import odd_texts
from tests.fuzz.openapi import JOBS, openapi
from tests.fuzz.requests import answer_to, check_request, event_of
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment, message_for

Case: TypeAlias = schemathesis.Case[Any]
LONGEST = 8  # steps along links


@pytest.fixture
def ids(system: Deployment) -> dict[str, list[str]]:
    """Existing ids: jobs and executions in every state that the API distinguishes."""
    system.call("POST", "/v1/jobs", JOBS[0] | {"jobId": "theirs"}, tenant=OTHER_TENANT)
    for job_id in ("living", "paused", "deleted"):
        system.register(jobId=job_id)
    system.call("POST", "/v1/jobs/paused/pause")
    system.call("DELETE", "/v1/jobs/deleted")
    job = system.job("living")
    first = job.next_after(job.effective_from)
    assert first is not None
    at = [first + n * timedelta(minutes=1) for n in range(4)]
    messages = [message_for(job, each) for each in at]
    system.runs.cancel(messages[0], reason="enough", now=at[0])
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    for message, dies in ((messages[1], False), (messages[2], True)):
        run = claim_run(system.runs, message, at[0], lease_until=at[3]).run
        if dies:
            system.runs.advance(run, run.ended(RunState.DEAD, failed, at[1]))
    executions = [message.key.execution_id for message in messages]
    return {"jobId": ["living", "paused"], "executionId": executions}


@pytest.mark.usefixtures("system")
def test_corpus_requests_cause_no_server_error() -> None:
    for case in kept("request"):
        check_kept(case, check_request)


def answered(case: Case) -> schemathesis.Response:
    """The handler's answer to *case*, as a response of schemathesis."""
    body = None
    if isinstance(case.body, bytes):
        body = base64.b64encode(case.body).decode()
    elif not isinstance(case.body, schemathesis.core.NotSet):
        body = json.dumps(case.body)
    event = event_of(
        case.method.upper(),
        unquote(case.formatted_path),
        body=body,
        encoded=isinstance(case.body, bytes),
        query={name: _text(value) for name, value in (case.query or {}).items()},
    )
    answer = answer_to(event)
    return schemathesis.Response(
        status_code=answer["statusCode"],
        headers={name.lower(): [value] for name, value in answer["headers"].items()},
        content=answer["body"].encode(),
        request=requests.Request(case.method, f"https://api{case.formatted_path}").prepare(),
        elapsed=0.0,
        verify=False,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def checked(case: Case, response: schemathesis.Response) -> None:
    case.validate_response(
        response,
        checks=[not_a_server_error, content_type_conformance, response_schema_conformance],
    )


def test_every_route_answers_whatever_its_description_allows(ids: dict[str, list[str]]) -> None:
    schema = schemathesis.openapi.from_dict(openapi(ids))
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @fuzzed(SHARE)
        @given(operation.as_strategy())
        def answers(case: Case) -> None:
            checked(case, answered(case))

        answers()


def test_created_resources_can_be_followed_along_links(
    system: Deployment, ids: dict[str, list[str]]
) -> None:
    schema = schemathesis.openapi.from_dict(openapi(ids))
    held = held_by(system)

    class Links(schema.as_state_machine()):  # type: ignore[misc] # made at run time
        def setup(self) -> None:
            bring_back(system, held)

        def call(self, case: Case, **_: Any) -> schemathesis.Response:
            response = answered(case)
            created = case.operation.definition.raw["operationId"] == "createJob"
            if created and response.status_code == 201:
                made = json.loads(response.content)
                answer = answer_to(event_of("GET", f"/v1/jobs/{made['jobId']}"))
                assert json.loads(answer["body"]).items() >= made.items()
            return response

        def validate_response(self, response: schemathesis.Response, case: Case, **_: Any) -> None:
            checked(case, response)

    count = max(EXAMPLES // SHARE // LONGEST, 2)
    Links.run(settings=settings(fuzzed(), max_examples=count, stateful_step_count=LONGEST))


# Raw

METHODS = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "get", "BREW", ""]
segments = st.one_of(
    st.sampled_from(
        [
            *("v1", "v2", "api", "jobs", "living", "paused", "executions", "pause", "pools", ".."),
            *("default", "redrive", "logs", "upcoming", "preview", "schedules", "health", ""),
            *("%2F", "%", "%zz", "\x00", "💥", "a" * 5000, "living.20260524T120000000Z-k3x9m2ab"),
        ]
    ),
    items.texts,
)
paths = st.lists(segments, max_size=6).map(lambda each: "/" + "/".join(each))
known = st.sampled_from(
    [
        *("/v1/jobs", "/v1/jobs/living", "/v1/jobs/living/pause", "/v1/schedules/preview"),
        *("/v1/jobs:batch", "/v1/jobs:pause", "/v1/jobs:", "/v1/jobs:cancel"),
        *("/v1/executions", "/v1/pools/default/redrive", "/api/v1/jobs", "/v1/jobs/living/resume"),
    ]
)
hostile = st.sampled_from(
    [
        *("NaN", '{"a":NaN}', '{"a":1e999}', "[" * 100_000, '{"a":' * 100_000, '{"a":1,"a":2}'),
        *('"' + "x" * 300_000 + '"', "9" * 5000, '{"payload":' + "9" * 5000 + "}", "\ufeff{}"),
        *("null", "[]", "0", '""', "{}", "{'a':1}", '{"\\u0000":"\\ud800"}', '{"jobId":"\\ud800"}'),
        *('{"type":"CRON","schedule":"* * * * *","target":{"handler":"\\udfff"}}',),
        *('{"type":"CRON","schedule":"* * * * *","target":{"handler":"a"},"name":"\\ud800"}',),
        *('{"type":"CRON","schedule":"* * * * *","target":{"handler":"a"},"payload":"\\ud800"}',),
        *('{"type":"DELAY","schedule":"PT1H","target":{"handler":"a"},"labels":{"\\ud800":""}}',),
        *('{"reason":"\\ud800"}', '{"cursor":"\\ud800"}', '{"limit":1e400}', '{"limit":true}'),
    ]
)


@st.composite
def raw(draw: st.DrawFn) -> dict[str, Any]:
    body: Any = draw(
        st.none()
        | hostile
        | odd_texts
        | st.binary(max_size=40)
        | st.sampled_from(JOBS).flatmap(
            lambda job: items.payloads.map(lambda more: json.dumps(job | {"payload": more}))
        )
    )
    encoded = isinstance(body, bytes)
    if isinstance(body, bytes):
        body = base64.b64encode(body).decode()
    elif body is not None and draw(st.integers(0, 9)) == 0:
        encoded = True  # text that is not Base64
    query = st.dictionaries(
        st.sampled_from(["limit", "cursor", "state", "count", "attempt", "from", "to", "pool"])
        | items.texts,
        odd_texts | st.sampled_from(["1", "DEAD", "\u00b2", "\uff11", "0x1", "-1", "1_0"]),
        max_size=3,
    )
    headers = st.dictionaries(
        st.sampled_from(["content-type", "content-length", "host", "accept", "cookie", "x"]),
        odd_texts,
        max_size=2,
    )
    return {
        "method": draw(st.sampled_from(METHODS)),
        "path": draw(known | paths),
        "body": body,
        "encoded": encoded,
        "query": draw(query),
        "headers": draw(headers),
        "raw_query": draw(items.texts),
    }


@fuzzed()
@given(raw())
def test_no_request_causes_a_server_error(system: Deployment, case: dict[str, Any]) -> None:
    job = system.jobs.get(JobKey(TENANT, "living"))
    if job is None or job.state is JobState.CANCELLED:
        system.register(jobId="living")
    check_request(case)
