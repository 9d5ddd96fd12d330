"""Hostile input to the routes of runs causes no server error."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextfire.domain.ids import run_id
from nextfire.domain.job import Job
from tests.crons import LONG
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem, json_values
from tests.integration.api_runs import UNKNOWN, dead, ended, get, started
from tests.integration.deployment import OTHER_TENANT, Deployment, message_for

ROUTES = [
    ("GET", "/v1/executions/{}"),
    ("GET", "/v1/executions/{}/logs"),
    ("POST", "/v1/executions/{}/cancel"),
    ("POST", "/v1/executions/{}/redrive"),
    ("POST", "/v1/executions/{}/replay"),
]


OF_SEQUENCES = [
    ("GET", "/v1/executions/{}/chain", None),
    ("POST", "/v1/executions/{}/chain/cancel", None),
    ("POST", "/v1/executions/{}/chain/redrive", {"from": "child"}),
]


texts = st.text(max_size=30) | st.from_regex(r"-?[0-9]{1,40}(-[0-9]{1,9}){0,2}", fullmatch=True)
queries = st.dictionaries(
    st.sampled_from(["state", "from", "to", "pool", "cursor", "limit", "attempt"]), texts
)
bodies = (
    st.dictionaries(
        st.sampled_from(["reason", "from", "to", "limit", "cursor"]), texts | json_values
    )
    | json_values
)


class TestHostileInput:
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize(
        "execution_id", ["x", "a.b", "..", "a.20260524T100000000Z-K3X9M2AB", "é", "a" * 3000, "%00"]
    )
    def test_bad_ids(self, system: Deployment, method: str, path: str, execution_id: str) -> None:
        answer = system.call(method, path.format(execution_id))

        assert answer.status in {404, 422}, answer.document

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize("execution_id", [UNKNOWN, "a.20261399T100000000Z-k3x9m2ab"])
    def test_unknown_ids(
        self, system: Deployment, method: str, path: str, execution_id: str
    ) -> None:
        assert_problem(system.call(method, path.format(execution_id)), 404)

    @pytest.mark.parametrize("job_id", ["a", "child"])
    @pytest.mark.parametrize(
        ("method", "path", "body"), [*((*route, None) for route in ROUTES), *OF_SEQUENCES]
    )
    def test_instants_that_no_run_has(
        self, system: Deployment, job: Job, method: str, path: str, body: object, job_id: str
    ) -> None:
        child = {"type": "AFTER", "schedule": None, "after": [{"job": job.key.job_id}]}
        uid = {"a": job.uid, "child": system.register(jobId="child", **child).uid}[job_id]

        for at in ("00000000T000000000", "20260229T000000000", "00010101T000000000",
                   "19691231T235959999", "21000101T000000000", "99991231T235959999"):  # fmt: skip
            asked = path.format(f"{job_id}.{at}Z-{uid}")
            assert_problem(system.call(method, asked, body), 404)

    @pytest.mark.parametrize("text", ["[]", "7", '"x"', "null", "{", '{"reason": NaN}', "[[[["])
    @pytest.mark.parametrize(
        "path",
        [*(path.format(UNKNOWN) for method, path in ROUTES if method == "POST"),
         "/v1/pools/default/redrive"],
    )  # fmt: skip
    def test_bad_bodies(self, system: Deployment, text: str, path: str) -> None:
        answer = system.call("POST", path, text=text)

        assert_problem(answer, 400)
        assert (
            "For example" in answer.document["detail"] or "for example" in answer.document["detail"]
        )

    @pytest.mark.parametrize(
        "path",
        [*(path.format(UNKNOWN) for method, path in ROUTES if method == "POST"),
         "/v1/pools/default/redrive"],
    )  # fmt: skip
    def test_unknown_fields(self, system: Deployment, path: str) -> None:
        assert_problem(system.call("POST", path, {"force": True}), 422, field="force")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [*((method, path, 404) for method, path in ROUTES)],
    )
    def test_walls_between_tenants(
        self, system: Deployment, job: Job, method: str, path: str, status: int
    ) -> None:
        run = ended(system, started(system, job, job.created_at), stdout="secret")

        answer = system.call(method, path.format(run.key.execution_id), tenant=OTHER_TENANT)

        assert_problem(answer, status)
        assert system.run(message_for(job, job.created_at)) == run

    def test_the_dead_of_others_are_not_listed_nor_redriven(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)
        other = dead(system, job, clock, 6)
        query = {"state": "DEAD", "limit": "1"}
        cursor = system.call("GET", "/v1/executions", query=query).document["cursor"]

        for more in ({}, {"cursor": cursor}):
            listed = system.call("GET", "/v1/executions", query=query | more, tenant=OTHER_TENANT)
            assert listed.document == {"items": []}
            done = system.call("POST", "/v1/pools/default/redrive", more, tenant=OTHER_TENANT)
            assert done.document == {"redriven": [], "skipped": [], "more": False}
        assert {get(system, each.key)["state"] for each in (run, other)} == {"DEAD"}


@settings(
    max_examples=100 if LONG else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(query=queries, body=bodies, execution_id=texts)
def test_no_request_causes_a_server_error(
    system: Deployment, job: Job, query: dict[str, str], body: object, execution_id: str
) -> None:
    known = run_id(job.uid, job.created_at)
    for each in (f"a.{known}", quote(execution_id) or "x"):
        for method, path in ROUTES:
            answer = system.call(method, path.format(each), body, query=query)
            assert answer.status < 500, (method, path, answer.document)
    for query_ in (query, query | {"state": "DEAD"}):
        assert system.call("GET", "/v1/executions", query=query_).status in {200, 422}
    assert system.call("POST", "/v1/pools/default/redrive", body).status in {200, 400, 422}
