"""Attacks on keys and their scopes: each test shows that one fails."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic.alias_generators import to_camel

from functions.api.app import app
from functions.api.areas import include_all
from functions.api.resolver_parts import routes_of
from functions.authorizer import handler as authorizer
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import SCANNER, fault_of, parse, write_key
from nextfire.domain.keys import Scope, digest_of, mint
from tests.builders import NOON
from tests.integration.deployment import Context, Deployment
from tests.integration.isolation import OPERATIONS, OWNED, SHARED
from tests.security.callers import ELSEWHERE, HERE, JOB, KEY_ID, Caller, admin, key_of

pytestmark = pytest.mark.usefixtures("clock")

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "identity.md"


OLD_FORM = re.compile(r"nf\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")
"""Keys as accepted by an authorizer of a version before the prefix; it rejects all others."""


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
        assert stated == SCOPES, "add each new operation to SCOPES, with the scope that it needs"
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
