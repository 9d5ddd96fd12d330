"""The running API against its own description: schemathesis with all checks but one, and links.

A short pass by default; with NEXTFIRE_LONG, every phase and thousands of requests.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import SECRET_BYTES
from nextfire.domain.keys import Scope, mint
from nextfire_cli.local.cdk import inherited_environment
from tests.crons import LONG
from tests.e2e.conftest import Stack

TENANT = "schemata"
CONFIG = Path(__file__).with_name("schemathesis.toml")
SHORT_PASS = ("--phases=fuzzing,stateful", "--max-examples=2", "--generation-deterministic")
LONG_PASS = ("--phases=examples,coverage,fuzzing,stateful", "--max-examples=40", "--max-time=600")
ITS_OWN = ("revokeKey", "rotateKey")
"""Tested separately: schemathesis would revoke its own key with an id from the list of keys."""


def key(stack: Stack, scope: Scope) -> str:
    """The text of a key of a tenant that no other test uses."""
    made = mint(
        TENANT,
        key_id=secrets.token_hex(8),
        secret=secrets.token_bytes(SECRET_BYTES),
        name="schemathesis",
        scopes=[scope],
        now=datetime.now(UTC),
        life=timedelta(days=1),
    )
    store = DynamoDbKeyStore(stack.client("dynamodb"), table=stack.info.tables["keys"])
    assert store.create(made.key)
    return made.text


@pytest.fixture
def admin(stack: Stack) -> Iterator[str]:
    """A key that may do everything. Teardown deletes the jobs so that nothing is left due."""
    text = key(stack, Scope.ADMIN)
    yield text
    with stack.api_with(text) as api:
        more: dict[str, str] = {}
        while True:
            page = api.get("/v1/jobs", params=more).raise_for_status().json()
            for job in page["items"]:
                if job["state"] != "CANCELLED":
                    api.delete(f"/v1/jobs/{job['jobId']}").raise_for_status()
            if "cursor" not in page:
                break
            more = {"cursor": page["cursor"]}


def described(stack: Stack, folder: Path, text: str) -> Path:
    """The description as the API returns it."""
    with stack.api_with(text) as api:
        document = api.get("/v1/openapi.json").raise_for_status().json()
    file = folder / "openapi.json"
    file.write_text(json.dumps(document))
    return file


def schemathesis(stack: Stack, document: Path, text: str, *arguments: str) -> str:
    """Run schemathesis and return its output; fails if it found anything."""
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG)),
            *("run", str(document), "--url", stack.info.endpoint, "--checks=all", "--no-color"),
            # A deleted job is CANCELLED and can still be read: its history stays.
            "--exclude-checks=use_after_free",
            *("--header", f"Authorization: Bearer {text}", "--continue-on-failure"),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=document.parent,
        env=inherited_environment(),
    )
    assert ran.returncode == 0, ran.stdout
    sys.stdout.write(ran.stdout[-2_000:])  # number of tests: shown with -s
    return ran.stdout


@pytest.mark.timeout(1_500)
def test_no_answer_is_other_than_described(stack: Stack, tmp_path: Path, admin: str) -> None:
    document = described(stack, tmp_path, admin)

    said = schemathesis(
        stack,
        document,
        admin,
        *(LONG_PASS if LONG else SHORT_PASS),
        *(f"--exclude-operation-id={name}" for name in ITS_OWN),
    )

    assert "Tested:" in said, said


@pytest.mark.timeout(600)
def test_a_key_that_may_less_is_refused_as_described(
    stack: Stack, tmp_path: Path, admin: str
) -> None:
    document = described(stack, tmp_path, admin)
    reader = key(stack, Scope.READ)

    with stack.api_with(reader) as api:
        for path, methods in json.loads(document.read_text())["paths"].items():
            for method, operation in methods.items():
                if operation.get("x-nextfire-scope", "read") != "read":
                    answer = api.request(method, _filled(path))
                    assert answer.status_code == 403, (method, path)
                    assert answer.headers["content-type"] == "application/problem+json"
    if LONG:
        schemathesis(stack, document, reader, "--phases=examples,coverage", "--max-time=120")


def test_a_key_that_is_none_opens_nothing(stack: Stack, tmp_path: Path, admin: str) -> None:
    operations = json.loads(described(stack, tmp_path, admin).read_text())["paths"]
    forged = f"{admin[:-4]}AAAA"

    with stack.api_with(forged) as forger, stack.keyless_api() as stranger:
        for path, methods in operations.items():
            for method, operation in methods.items():
                answers = [client.request(method, _filled(path)) for client in (forger, stranger)]
                expected = [200, 200] if operation.get("security") == [] else [403, 401]
                assert [each.status_code for each in answers] == expected, (method, path)


def _filled(path: str) -> str:
    values = {
        "jobId": "a",
        "executionId": "a.20260524T120000000Z-k3x9m2ab",
        "keyId": "00000000000000aa",
    }
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{", "").replace("}", "")
