"""API keys against the deployed API: accepted and rejected keys, and how fast revocation works."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from nextfire.domain.key_text import parse, write_key
from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import Stack

REVOKED_WITHIN = 60.0
"""Seconds: the promised limit."""
MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}}


def new_key(stack: Stack, scope: str, name: str = "e2e") -> tuple[str, str]:
    """The id and the text of a key with *scope*."""
    with stack.api() as api:
        made = api.post("/v1/keys", json={"name": name, "scopes": [scope]})
        document = made.raise_for_status().json()
    return document["keyId"], document["key"]


def test_only_the_bearer_of_a_good_key_is_let_in(stack: Stack) -> None:
    tenant_and_id, _, secret = stack.info.api_key.rpartition(".")

    with stack.api() as api:
        assert api.get("/v1/jobs").status_code == 200
        assert api.get("/api/v1/jobs").status_code == 200
    with stack.keyless_api() as stranger:
        assert stranger.get("/v1/health").status_code == 200
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("POST", "/v1/health")):
            refusal = stranger.request(method, path)
            assert refusal.status_code == 401
            assert refusal.json() == {"message": "Unauthorized"}
    for key in (f"{tenant_and_id}.{secret[::-1]}", tenant_and_id, "x", "Bearer"):
        with stack.api_with(key) as forger:
            refusal = forger.get("/v1/jobs")
            assert refusal.status_code == 403
            assert refusal.json() == {"message": "Forbidden"}


def test_credentials_of_aws_are_no_key(stack: Stack) -> None:
    credential = "AWS4-HMAC-SHA256 Credential=test/20260524/us-east-1/execute-api/aws4_request"
    with httpx2.Client(base_url=stack.info.endpoint, timeout=30) as api:
        assert api.get("/v1/jobs", headers={"Authorization": credential}).status_code == 403


def test_a_key_does_what_its_scope_allows(stack: Stack) -> None:
    _, reads = new_key(stack, "read")
    _, writes = new_key(stack, "write")

    with stack.api_with(reads) as api:
        assert api.get("/v1/jobs").status_code == 200
        refusal = api.post("/v1/jobs", json=MANUAL)
        assert refusal.status_code == 403
        assert refusal.headers["content-type"] == "application/problem+json"
        assert "`run`" in refusal.json()["detail"]
    with stack.api_with(writes) as api:
        assert api.post("/v1/jobs", json=MANUAL).status_code == 201
        refusal = api.get("/v1/keys")
        assert refusal.status_code == 403
        assert "`admin`" in refusal.json()["detail"]


def test_a_revoked_key_is_refused_within_a_minute(stack: Stack) -> None:
    key_id, key = new_key(stack, "read")
    with stack.api_with(key) as theirs, stack.api() as ours:
        assert theirs.get("/v1/jobs").status_code == 200  # the gateway caches this
        ours.delete(f"/v1/keys/{key_id}").raise_for_status()
        deadline = time.monotonic() + REVOKED_WITHIN
        while (status := theirs.get("/v1/jobs").status_code) == 200:
            assert time.monotonic() < deadline
            time.sleep(1)
        assert status == 403
        assert ours.get(f"/v1/keys/{key_id}").json()["state"] == "REVOKED"


def test_the_day_of_use_is_noted_by_the_deployed_authorizer(stack: Stack) -> None:
    key_id, key = new_key(stack, "read")
    with stack.api_with(key) as api:
        api.get("/v1/jobs").raise_for_status()

    deadline = time.monotonic() + 20
    with stack.api() as api:
        while "lastUsedOn" not in (shown := api.get(f"/v1/keys/{key_id}").json()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)


def test_the_key_of_the_local_stack_is_its_users_alone(stack: Stack) -> None:
    file = stack.info.key_file

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((stack.state / "stack.json").stat().st_mode) == 0o600
    assert file.parent == stack.state
    stored = [path for path in stack.state.rglob("*.json") if path.is_file()]
    assert not [path for path in stored if stack.info.api_key in path.read_text(errors="replace")]


def nextfire(home: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the CLI as a user who has nothing but *home*."""
    return subprocess.run(
        [sys.executable, "-c", "from nextfire_cli.main import app; app()", *args],
        env={**inherited_environment(), "HOME": str(home), **environment},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


def test_from_the_first_key_to_the_next_by_the_command(stack: Stack, tmp_path: Path) -> None:
    deployer = {
        "AWS_ACCESS_KEY_ID": stack.info.access_key,
        "AWS_SECRET_ACCESS_KEY": stack.info.secret_key,
        "AWS_REGION": stack.info.region,
        "AWS_ENDPOINT_URL": stack.info.aws_endpoint,
    }
    first = nextfire(
        tmp_path, "keys", "create", "admin", "--first", "--stack", "Nextfire", **deployer
    )
    assert first.returncode == 0, first.stderr
    admin = {"NEXTFIRE_ENDPOINT": stack.info.endpoint, "NEXTFIRE_API_KEY": first.stdout.strip()}

    made = nextfire(tmp_path, "keys", "create", "ci", "--scope", "read", "--save", **admin)
    assert made.returncode == 0, made.stderr
    [kept] = (tmp_path / ".config" / "nextfire" / "keys").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    reader = {"NEXTFIRE_ENDPOINT": stack.info.endpoint}
    listed = nextfire(tmp_path, "--json", "jobs", "list", **reader)
    assert listed.returncode == 0, listed.stderr
    refused = nextfire(tmp_path, "jobs", "create", "--in", "1h", "--handler", "hello", **reader)
    assert refused.returncode == 4
    assert "`run`" in refused.stderr
    rejected = nextfire(tmp_path, "jobs", "list", **admin | {"NEXTFIRE_API_KEY": _wrong(admin)})
    assert rejected.returncode == 4
    assert "wrong, expired or revoked" in rejected.stderr
    for done in (first, made, listed, refused, rejected):
        assert kept.read_text().strip() not in done.stdout + done.stderr


def _wrong(admin: dict[str, str]) -> str:
    presented = parse(admin["NEXTFIRE_API_KEY"])
    assert presented is not None
    return write_key(presented.tenant, presented.key_id, presented.secret[::-1])
