"""Attacks on the authentication and authorization of the API: each test shows that one fails."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from functions.api import services as api
from functions.api.app import app
from functions.api.areas import include_all
from functions.api.identity import identify
from functions.api.resolver_parts import routes_of
from functions.authorizer import handler as authorizer
from nextfire.adapters.dynamodb.items import from_item
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.key_text import SCANNER, fault_of, parse, write_key
from nextfire.domain.keys import Scope, digest_of, mint
from tests.builders import NOON
from tests.fakes import Clock
from tests.integration.deployment import Answer, Context, Deployment, Proxy, http_event
from tests.integration.test_api_isolation import OPERATIONS, OWNED, SHARED

if TYPE_CHECKING:
    pass

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "identity.md"
KEY_ID = "00000000000000aa"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
ETL = {"team": "etl"}
JOB = {"type": "MANUAL", "target": {"handler": "hello"}}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOON)
    monkeypatch.setattr(api, "clock", clock)
    monkeypatch.setattr(authorizer, "clock", clock)
    authorizer.services.cache_clear()
    return clock


OLD_FORM = re.compile(r"nf\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")
"""Keys as accepted by an authorizer of a version before the prefix; it rejects all others."""


class Caller:
    """Calls the API as its gateway does: the authorizer's verdict is cached by key only, and each
    request has its own source address.
    """

    def __init__(self, system: Deployment, key: str) -> None:
        self._system = system
        verdict = authorizer.handler({"identitySource": [f"Bearer {key}"]}, Context())
        self.context = verdict.get("context")
        self.let_in: bool = verdict["isAuthorized"]

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        source: str = HERE,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        assert self.let_in
        text = None if body is None else json.dumps(body)
        event = http_event(method, path, text, query=query, authorizer={"lambda": self.context})
        event["requestContext"]["http"]["sourceIp"] = source
        event["headers"] |= headers or {}
        return self._system.answer(event)


def admin(system: Deployment) -> Caller:
    store = DynamoDbKeyStore(system.database, table=system.keys_table)
    made = mint("acme", key_id=KEY_ID, secret=bytes(32), name="a", scopes=[Scope.ADMIN], now=NOON)
    store.create(made.key)
    return Caller(system, made.text)


def key_of(by: Caller, *scopes: str, **more: object) -> dict[str, Any]:
    answer = by.call("POST", "/v1/keys", {"name": "n", "scopes": scopes or ["read"], **more})
    assert answer.status == 201, answer.document
    return answer.document


class TestText:
    def test_the_documented_expression_is_ours(self) -> None:
        assert SCANNER in PAGE.read_text()

    def test_the_expression_finds_each_new_key(self) -> None:
        for number in range(200):
            secret = (number * 0x9E3779B97F4A7C15 % 2**256).to_bytes(32)
            tenant = ("a", "acme-corp_1", "123456789012", "Z" * 64)[number % 4]
            text = mint(
                tenant, key_id=KEY_ID, secret=secret, name="n", scopes=[Scope.READ], now=NOON
            ).text
            for where in ("{}", "KEY={}\n", '"{}",', "Bearer {}", "https://x/?k={}&a=b", "'{}'"):
                found = re.findall(SCANNER, where.format(text))
                assert found == [text]

    @pytest.mark.parametrize(
        "text",
        [
            "nfk_", "nfk_acme", "nfk_acme.py", "nfk_TENANT.ID.SECRET", f"nfk_acme.{KEY_ID}",
            f"nfk_acme.{KEY_ID}.{'A' * 48}", f"nfk_acme.{KEY_ID}.{'A' * 50}",
            f"xnfk_acme.{KEY_ID}.{'A' * 49}", f"nf.acme.{KEY_ID}.{'A' * 43}",
            f"nfk_acme.{KEY_ID.upper()}.{'A' * 49}", f"nfk_acme.{KEY_ID}-{'A' * 49}",
            "ghp_" + "A" * 36, "0" * 64, f"nfk_acme.{KEY_ID}.{'e3b0c442' * 4}",
        ],
    )  # fmt: skip
    def test_the_expression_finds_nothing_else(self, text: str) -> None:
        assert re.search(SCANNER, text) is None

    def test_any_one_mistyped_character_is_recognised_without_a_read(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del system
        text = write_key("acme", KEY_ID, "0123456789" * 4 + "abc")
        monkeypatch.setattr(authorizer.services().check, "_keys", None)  # using it would raise
        for place in range(len(text)):
            for other in "Aa0_.":
                wrong = text[:place] + other + text[place + 1 :]
                if wrong != text:
                    assert fault_of(wrong)
                    assert not authorizer.handler(
                        {"identitySource": [f"Bearer {wrong}"]}, Context()
                    )["isAuthorized"]
        swapped = text[:-8] + text[-7] + text[-8] + text[-6:]
        assert fault_of(swapped) or swapped == text

    def test_an_authorizer_of_the_old_form_refuses_a_new_key(self) -> None:
        for tenant in ("a", "nf", "nf-x", "Z" * 64):
            text = write_key(tenant, KEY_ID, "0" * 43)
            assert OLD_FORM.fullmatch(text) is None, "it would be parsed as another key"

    def test_a_key_of_the_old_form_still_works(self, system: Deployment) -> None:
        presented = parse(f"nf.acme.{KEY_ID}.{'A-_' + 'b' * 40}")
        assert presented is not None
        assert (presented.tenant, presented.key_id) == ("acme", KEY_ID)
        secret = presented.secret
        store = DynamoDbKeyStore(system.database, table=system.keys_table)
        new = mint("acme", key_id=KEY_ID, secret=bytes(32), name="o", scopes=[Scope.READ], now=NOON)
        store.create(replace(new.key, scopes=frozenset({Scope.READ}), digest=digest_of(secret)))

        assert Caller(system, f"nf.acme.{KEY_ID}.{secret}").call("GET", "/v1/jobs").status == 200


SCOPES: dict[str, str] = {
    **dict.fromkeys(["getHealth"], "none"),
    **dict.fromkeys(
        [
            "getChain", "getDescription", "getExecution", "getJob", "getQuotas", "getOverview",
            "listAllExecutions",
            "listExecutions", "listJobs", "listScriptVersions", "listScripts", "listUpcoming",
            "previewSchedule", "readLog", "getEndpoint", "listEndpoints",
        ],
        "read",
    ),
    "uploadScript": "upload",
    **dict.fromkeys(
        [
            "beginBackfill", "cancelChain", "cancelExecution", "cancelJobs", "changeJob",
            "createJob", "createJobs", "deleteJob", "drainJob", "pauseJob", "pauseJobs", "putJob",
            "redriveChain", "redriveExecution", "redrivePool", "resumeJob", "resumeJobs", "runJob",
            "skipNext", "stopBackfill", "undoSkipNext", "pauseEndpoint", "resumeEndpoint",
            "limitEndpoint", "replayExecution",
        ],
        "run",
    ),
    **dict.fromkeys(["createKey", "getKey", "listKeys", "revokeKey", "rotateKey"], "admin"),
}  # fmt: skip
"""The scope that each operation needs. Add each new operation here deliberately."""
GIVEN = {
    "read": {"none", "read"},
    "upload": {"none", "read", "upload"},
    "run": {"none", "read", "run"},
    "write": {"none", "read", "upload", "run"},
    "admin": {"none", "read", "upload", "run", "admin"},
}
"""The needs that each scope satisfies."""


class TestScopes:
    def test_each_operation_states_its_scope(self) -> None:
        include_all()
        routes = routes_of(app)
        stated = {
            to_camel(route.func.__name__): route.openapi_extensions["x-nextfire-scope"]
            for route in routes
            if route.openapi_extensions
        }
        assert stated == SCOPES
        assert stated.keys() == OPERATIONS.keys()

    @pytest.mark.parametrize("scope", GIVEN)
    @pytest.mark.parametrize("kind", ["key", "token"])
    def test_no_operation_is_open_to_another_scope(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch, kind: str, scope: str
    ) -> None:
        if kind == "token":
            system.configure(monkeypatch, auth="jwt", tenant_claim="org")
        claims = {"sub": "u", "org": "acme", "scope": f"openid nextfire/{scope}"}
        key = {"tenant": "acme", "keyId": KEY_ID, "scopes": scope}
        who = {"lambda": key} if kind == "key" else {"jwt": {"claims": claims, "scopes": None}}
        for name, (method, template, _) in OPERATIONS.items():
            path = template.format(**OWNED, **SHARED)
            body: object = None if method == "GET" else {}
            answer = system.call(method, path, body, authorizer=who)
            refused = answer.status == 403 and "needs the scope" in answer.document["detail"]
            assert refused == (SCOPES[name] not in GIVEN[scope]), (name, scope, answer.document)

    def test_a_run_key_cannot_change_code(self, system: Deployment) -> None:
        runs = Caller(system, key_of(admin(system), "run")["key"])
        upload = {"handler": "hello", "size": 1, "sha256": "0" * 64}
        again = {"Idempotency-Key": "k"}

        for headers in ({}, again, again):
            answer = runs.call("POST", "/v1/scripts/uploads", upload, headers=headers)
            assert (answer.status, answer.document.get("url")) == (403, None)
        assert runs.call("POST", "/v1/jobs", JOB).status == 201

    def test_an_upload_key_cannot_run(self, system: Deployment) -> None:
        by = admin(system)
        uploads = Caller(system, key_of(by, "upload")["key"])
        made = by.call("POST", "/v1/jobs", JOB).document["jobId"]

        for method, path in (
            ("POST", "/v1/jobs"),
            ("POST", f"/v1/jobs/{made}/run"),
            ("PATCH", f"/v1/jobs/{made}"),
            ("POST", "/v1/keys"),
        ):
            assert uploads.call(method, path, JOB if path == "/v1/jobs" else {}).status == 403
        upload = {"handler": "hello", "size": 1, "sha256": "0" * 64}
        assert uploads.call("POST", "/v1/scripts/uploads", upload).status == 201

    @pytest.mark.parametrize(
        "name",
        [
            "PYTHONSTARTUP", "PYTHONHOME", "PYTHONWARNINGS", "PYTHONBREAKPOINT", "PYTHONUSERBASE",
            "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "BASH_ENV", "GIT_SSH_COMMAND", "UV_INDEX_URL",
            "PIP_INDEX_URL", "AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_ENDPOINT_URL", "https_proxy",
            "SSL_CERT_FILE", "NODE_OPTIONS", "XDG_CONFIG_HOME",
        ],
    )  # fmt: skip
    def test_a_run_key_cannot_choose_code_by_a_variable(
        self, system: Deployment, name: str
    ) -> None:
        by = admin(system)
        runs = Caller(system, key_of(by, "run")["key"])
        planted = JOB | {
            "target": {"handler": "hello", "env": {name: "/elsewhere/x", "LEVEL": "debug"}}
        }

        for answer in (
            runs.call("POST", "/v1/jobs", planted),
            runs.call("PUT", "/v1/jobs/planted", planted),
        ):
            assert (answer.status, name in answer.document["detail"]) == (403, True)
        [result] = runs.call("POST", "/v1/jobs:batch", {"jobs": [planted]}).document["results"]
        assert result["status"] == 403
        made = runs.call("POST", "/v1/jobs", JOB).document["jobId"]
        change = {"target": {"env": {name: "/elsewhere/x"}}}
        assert runs.call("PATCH", f"/v1/jobs/{made}", change).status == 403
        # A caller with the upload scope may do so. Existing variables may stay, but not change.
        theirs = by.call("POST", "/v1/jobs", planted).document["jobId"]
        assert runs.call("PATCH", f"/v1/jobs/{theirs}", {"name": "n"}).status == 200
        other = {"target": {"env": {name: "/elsewhere/y"}}}
        assert runs.call("PATCH", f"/v1/jobs/{theirs}", other).status == 403


class TestNetworks:
    def test_a_verdict_that_is_kept_opens_nothing_from_elsewhere(self, system: Deployment) -> None:
        made = key_of(admin(system), "read", cidrs=["203.0.113.0/24", "2001:db8::/32"])
        caller = Caller(system, made["key"])  # its verdict is cached for all later calls

        for source, status in (
            (HERE, 200), ("2001:db8::7", 200), ("::ffff:203.0.113.9", 200),
            (ELSEWHERE, 403), ("2001:db9::7", 403), ("::ffff:198.51.100.7", 403),
            ("", 403), ("203.0.113.9, 198.51.100.7", 403), ("localhost", 403),
        ):  # fmt: skip
            assert caller.call("GET", "/v1/jobs", source=source).status == status, source

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_no_route_is_open_from_elsewhere(self, system: Deployment, name: str) -> None:
        method, path, _ = OPERATIONS[name]
        path = path.format(**OWNED, **SHARED)
        made = key_of(admin(system), "admin", cidrs=["203.0.113.0/24"])
        body: object = None if method == "GET" else {}

        answer = Caller(system, made["key"]).call(method, path, body, source=ELSEWHERE)

        if name == "getHealth":
            assert answer.status == 200
        else:
            assert (answer.status, "some networks" in answer.document["detail"]) == (403, True)
            assert "203.0.113" not in json.dumps(answer.document), (
                "the answer reveals where the key works"
            )

    def test_a_header_names_no_source(self, system: Deployment) -> None:
        made = key_of(admin(system), "read", cidrs=["203.0.113.0/24"])
        caller = Caller(system, made["key"])
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP"):
            value = f"for={HERE}" if name == "Forwarded" else HERE
            answer = caller.call("GET", "/v1/jobs", source=ELSEWHERE, headers={name: value})
            assert answer.status == 403


class TestRestrictedKeys:
    """Keys created by a restricted key, and versions that do not know restrictions."""

    def test_a_restricted_admin_key_makes_no_freer_one(self, system: Deployment) -> None:
        limits = {"cidrs": ["203.0.113.0/24"], "labels": ETL}
        by = Caller(system, key_of(admin(system), "admin", **limits)["key"])

        inherited = key_of(by, "admin")
        assert (inherited["cidrs"], inherited["labels"]) == (["203.0.113.0/24"], ETL)
        narrower = key_of(by, "run", cidrs=["203.0.113.8/29"], labels={"env": "test"})
        assert narrower["cidrs"] == ["203.0.113.8/29"]
        assert narrower["labels"] == {"env": "test", "team": "etl"}
        for wider in (
            {"cidrs": ["0.0.0.0/0"]}, {"cidrs": ["203.0.113.0/24", "::/0"]},
            {"cidrs": ["203.0.112.0/23"]}, {"labels": {"team": "ops"}},
        ):  # fmt: skip
            answer = by.call("POST", "/v1/keys", {"name": "n", "scopes": ["read"], **wider})
            assert (answer.status, answer.document.get("key")) == (403, None)

    def test_a_restricted_admin_key_takes_over_no_freer_one(self, system: Deployment) -> None:
        first = admin(system)
        free = key_of(first, "admin")["keyId"]
        by = Caller(system, key_of(first, "admin", labels=ETL)["key"])

        assert by.call("POST", f"/v1/keys/{free}/rotate", {}).status == 404
        assert by.call("GET", f"/v1/keys/{free}").status == 404
        assert by.call("DELETE", f"/v1/keys/{free}").status == 404
        assert first.call("GET", f"/v1/keys/{free}").document["state"] == "ACTIVE"
        shown = by.call("GET", "/v1/keys").document["items"]
        assert [key["labels"] for key in shown] == [ETL]

    def test_rotation_keeps_the_restriction(self, system: Deployment) -> None:
        by = admin(system)
        made = key_of(by, "run", cidrs=["203.0.113.0/24"], labels=ETL)

        new = by.call("POST", f"/v1/keys/{made['keyId']}/rotate", {}).document["new"]

        assert (new["cidrs"], new["labels"]) == (["203.0.113.0/24"], ETL)
        assert Caller(system, new["key"]).call("GET", "/v1/jobs", source=ELSEWHERE).status == 403

    def test_a_version_without_restrictions_refuses_a_restricted_key(
        self, system: Deployment
    ) -> None:
        made = key_of(admin(system), "admin", labels=ETL)
        item = system.database.get_item(
            TableName=system.keys_table,
            Key={"tenant": {"S": "acme"}, "key_id": {"S": made["keyId"]}},
        )["Item"]

        # Such an authorizer reads `scopes`, and such an API reads `scopes` of the context.
        assert from_item(item)["scopes"] == []
        assert Caller(system, made["key"]).context["scopes"] == ""  # type: ignore[index]

    @pytest.mark.parametrize(
        "damage",
        [
            {"cidrs": {"L": []}, "labels": {"M": {}}, "scopes": {"L": [{"S": "admin"}]}},
            {"cidrs": {"L": [{"S": "nonsense"}]}, "labels": {"M": {}}, "scopes": {"L": []}},
            {"labels": {"M": {"team": {"S": "etl"}}}, "scopes": {"L": [{"S": "admin"}]}},
            {
                "cidrs": {"L": []}, "labels": {"M": {"team": {"S": "etl"}}},
                "scopes": {"L": [{"S": "admin"}]}, "countries": {"L": []},
            },
        ],
    )  # fmt: skip
    def test_a_restriction_that_cannot_be_read_opens_nothing(
        self, system: Deployment, damage: dict[str, Any]
    ) -> None:
        made = key_of(admin(system), "admin", labels=ETL)
        system.database.update_item(
            TableName=system.keys_table,
            Key={"tenant": {"S": "acme"}, "key_id": {"S": made["keyId"]}},
            UpdateExpression="SET restricted = :r",
            ExpressionAttributeValues={":r": {"M": damage}},
        )

        assert not Caller(system, made["key"]).let_in


class TestLabels:
    """In addition to the check of all routes in tests/integration/test_api_isolation.py."""

    def test_the_label_cannot_be_changed_away_or_left_out(self, system: Deployment) -> None:
        by = Caller(system, key_of(admin(system), "run", labels=ETL)["key"])
        assert by.call("POST", "/v1/jobs", JOB).status == 403
        made = by.call("POST", "/v1/jobs", JOB | {"labels": ETL}).document["jobId"]

        for labels in (None, {"team": "ops"}, {"team": None}):
            assert by.call("PATCH", f"/v1/jobs/{made}", {"labels": labels}).status == 403
        assert by.call("PUT", f"/v1/jobs/{made}", JOB).status == 403
        assert by.call("GET", f"/v1/jobs/{made}").document["labels"] == ETL

    def test_the_answer_to_another_key_is_not_replayed(self, system: Deployment) -> None:
        first = admin(system)
        by = Caller(system, key_of(first, "run", labels=ETL)["key"])
        once = {"Idempotency-Key": "the-same"}
        made = first.call("POST", "/v1/jobs", JOB | {"jobId": "theirs"}, headers=once)
        assert made.status == 201
        theirs = first.call("POST", "/v1/jobs/theirs/run", {}, headers={"Idempotency-Key": "r"})
        assert theirs.status == 201

        answer = by.call("POST", "/v1/jobs", JOB | {"jobId": "theirs"}, headers=once)
        assert answer.status == 403
        answer = by.call("POST", "/v1/jobs/theirs/run", {}, headers={"Idempotency-Key": "r"})
        assert answer.status == 404


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

    def test_a_table_that_is_throttled_refuses_nobody(
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
