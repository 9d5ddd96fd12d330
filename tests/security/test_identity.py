"""Attacks on the limit of requests and on the identities of AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from functions.api import services as api
from functions.api.identity import identify
from nextfire.domain.errors import UnavailableError
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.keys import Scope
from tests.fakes import Clock
from tests.integration.deployment import Deployment, Proxy
from tests.security.callers import ELSEWHERE, JOB, KEY_ID, Caller, admin, key_of

pytestmark = pytest.mark.usefixtures("clock")


class TestRequestLimits:
    """tests/unit/test_limit_requests.py tests the limit across several processes."""

    @pytest.fixture
    def limited(self, system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
        limits = {"requestsPerSecond": 4, "keyRequestsPerSecond": 2, "keyRequestBurst": 3}
        system.configure(monkeypatch, quotas=json.dumps({"tenants": {"acme": limits}}))
        return system

    def key(self, key_id: str = KEY_ID, tenant: str = "acme") -> dict[str, Any]:
        return {"lambda": {"tenant": tenant, "keyId": key_id, "scopes": "admin"}}

    def test_a_key_cannot_ask_without_end(self, limited: Deployment, clock: Clock) -> None:
        who = self.key()
        assert [limited.call("GET", "/v1/jobs", authorizer=who).status for _ in range(3)] == [
            200
        ] * 3

        refused = limited.call("POST", "/v1/jobs", JOB, authorizer=who)
        assert (refused.status, refused.document["quota"]) == (429, "keyRequestsPerSecond")
        assert refused.headers["retry-after"] == "1"
        assert refused.document["title"] == "Quota used up"
        other = self.key(tenant="other")
        assert limited.call("GET", "/v1/jobs", authorizer=other).status == 200
        clock.advance(seconds=1)
        assert limited.call("GET", "/v1/jobs", authorizer=who).status == 200

    def test_many_keys_of_a_tenant_share_its_limit(self, limited: Deployment) -> None:
        answers = [
            limited.call("GET", "/v1/jobs", authorizer=self.key(f"{number:016x}"))
            for number in range(10)
        ]
        assert [each.status for each in answers] == [200] * 8 + [429] * 2
        assert answers[-1].document["quota"] == "requestsPerSecond"

    def test_what_is_shed_asks_no_store(
        self, limited: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database = Proxy(limited.database)
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: database)
        monkeypatch.setattr("nextfire.wiring.api.dynamodb_fail_fast", lambda: database)
        api.own_services.cache_clear()
        who = self.key()
        while limited.call("GET", "/v1/jobs", authorizer=who).status == 200:
            pass
        before = len(database.calls)

        for path in ("/v1/jobs", "/v1/quotas", "/v1/nothing", "/v1/scripts"):
            assert limited.call("GET", path, authorizer=who).status == 429
        body = {"jobs": [JOB] * 100}
        again = {"Idempotency-Key": "k"}
        answer = limited.call("POST", "/v1/jobs:batch", body, authorizer=who, headers=again)
        assert answer.status == 429
        assert len(database.calls) == before

    def test_a_table_that_is_throttled_refuses_no_one(
        self, limited: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def throttle(*_: object) -> None:
            raise UnavailableError("throttled")

        database = Proxy(limited.database)
        database.instead = {"update_item": throttle}
        monkeypatch.setattr("nextfire.wiring.api.dynamodb_fail_fast", lambda: database)
        api.own_services.cache_clear()
        who = self.key()

        # This process alone still enforces the key's burst of 3.
        got = [limited.call("GET", "/v1/jobs", authorizer=who).status for _ in range(5)]
        assert got == [200, 200, 200, 429, 429]
        assert len(database.calls) == 1

    def test_a_stolen_key_used_from_elsewhere_uses_up_nothing(self, limited: Deployment) -> None:
        made = key_of(admin(limited), "read", cidrs=["203.0.113.0/24"])
        caller = Caller(limited, made["key"])
        for _ in range(20):
            assert caller.call("GET", "/v1/jobs", source=ELSEWHERE).status == 403

        assert caller.call("GET", "/v1/jobs").status == 200

    def test_a_session_name_makes_no_new_bucket(self, limited: Deployment) -> None:
        def session(name: str) -> dict[str, Any]:
            arn = f"arn:aws:sts::123456789012:assumed-role/ci/{name}"
            return {"iam": {"accountId": "acme", "userArn": arn, "callerId": "A:s"}}

        got = [
            limited.call("GET", "/v1/jobs", authorizer=session(f"s{number}")).status
            for number in range(5)
        ]
        assert got == [200, 200, 200, 429, 429]


class TestRoles:
    """`auth=iam`: the role determines the tenant, never the name of the session."""

    RULES = (
        {"role": "team-etl-*", "tenant": "etl", "scopes": ["run"]},
        {"role": "arn:aws:iam::123456789012:role/ops", "tenant": "ops"},
        {"role": "arn:aws:iam::123456789012:user/ci/*", "tenant": "ci", "scopes": ["upload"]},
    )

    @pytest.fixture
    def ruled(self, system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
        system.configure(monkeypatch, auth="iam", iam_rules=json.dumps(self.RULES))
        return system

    def signed(self, arn: str, account: str = "123456789012") -> dict[str, Any]:
        return {"iam": {"accountId": account, "userArn": arn, "callerId": "AROA:s", "userId": "s"}}

    @pytest.mark.parametrize(
        ("arn", "tenant", "scopes"),
        [
            ("arn:aws:sts::123456789012:assumed-role/team-etl-a/me", "etl", {"read", "run"}),
            ("arn:aws:sts::123456789012:assumed-role/ops/me@example.com", "ops", set(Scope)),
            ("arn:aws:iam::123456789012:user/ci/build", "ci", {"read", "upload"}),
        ],
    )
    def test_a_role_has_the_tenant_of_its_rule(
        self, arn: str, tenant: str, scopes: set[str]
    ) -> None:
        rules = [IamRule.model_validate(rule) for rule in self.RULES]
        found = identify(self.signed(arn), iam_rules=rules)
        assert (found.tenant, set(found.scopes)) == (tenant, scopes)

    @pytest.mark.parametrize(
        "arn",
        [
            # The caller chooses the name of a session, and that of federated credentials.
            "arn:aws:sts::123456789012:assumed-role/guest/team-etl-a",
            "arn:aws:sts::123456789012:assumed-role/guest/ops",
            "arn:aws:sts::123456789012:assumed-role/guest/assumed-role/ops/x",
            "arn:aws:sts::123456789012:federated-user/ops",
            "arn:aws:sts::123456789012:federated-user/team-etl-a",
            "arn:aws:sts::210987654321:assumed-role/ops/me",
            "arn:aws:sts::123456789012:assumed-role/ops-guest/me",
            "arn:aws:sts::123456789012:assumed-role/my-team-etl-a/me",
            "arn:aws:iam::123456789012:user/guest/ci/build",
            "arn:aws:iam::123456789012:user/ci/a/b",
            "arn:aws:iam::123456789012:user/team-etl-a",
            "arn:aws:iam::123456789012:root",
            "arn:aws:sts::123456789012:assumed-role/ops/me\n",
            "",
        ],
    )
    def test_no_other_name_has_it(self, ruled: Deployment, arn: str) -> None:
        answer = ruled.call("GET", "/v1/jobs", authorizer=self.signed(arn))
        assert (answer.status, "No rule" in answer.document["detail"]) == (403, True)

    def test_scopes_of_a_rule_are_enforced(self, ruled: Deployment) -> None:
        etl = self.signed("arn:aws:sts::123456789012:assumed-role/team-etl-a/me")
        upload = {"handler": "hello", "size": 1, "sha256": "0" * 64}
        assert ruled.call("POST", "/v1/scripts/uploads", upload, authorizer=etl).status == 403
        made = ruled.call("POST", "/v1/jobs", JOB, authorizer=etl)
        assert made.status == 201
        ops = self.signed("arn:aws:sts::123456789012:assumed-role/ops/me")
        path = f"/v1/jobs/{made.document['jobId']}"
        assert ruled.call("GET", path, authorizer=ops).status == 404

    def test_without_rules_the_tenant_is_the_account(self, system: Deployment) -> None:
        who = self.signed("arn:aws:sts::123456789012:assumed-role/any/me")
        assert identify(who).tenant == "123456789012"
        assert system.call("GET", "/v1/jobs", authorizer=who).status == 200

    @pytest.mark.parametrize(
        "role",
        [
            "", "a/b", "arn:aws:iam::123456789012:role/path/name", "arn:aws:iam::*:role/ops",
            "arn:aws:sts::123456789012:assumed-role/ops/session", "ops\n",
        ],
    )  # fmt: skip
    def test_a_rule_that_would_never_match_is_refused(self, role: str) -> None:
        with pytest.raises(ValidationError, match="For example"):
            IamRule(role=role, tenant="acme")
