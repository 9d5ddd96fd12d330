"""The audit chain of the deployed stack: from a request to a verifiable object in S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nextfire.domain.key_text import parse
from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import Stack
from tests.e2e.user import until

MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}, "payload": {"pin": "open-sesame"}}
_PATIENCE = 60.0


@pytest.fixture
def audit(stack: Stack, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `nextfire audit …` on the stack as the root user of the account."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(str(Path(sys.prefix) / "bin" / "nextfire"), "audit", *arguments),
                *("--stack", "Nextfire", "--json", "--endpoint", "https://api.example.com"),
            ],
            cwd=tmp_path,
            env={
                **inherited_environment(),
                "HOME": os.environ.get("HOME", "/"),
                "AWS_ACCESS_KEY_ID": stack.info.access_key,
                "AWS_SECRET_ACCESS_KEY": stack.info.secret_key,
                "AWS_REGION": stack.info.region,
                "AWS_ENDPOINT_URL": stack.info.aws_endpoint,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_a_change_by_http_is_in_the_chain_and_tampering_is_seen(
    stack: Stack, audit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with stack.api() as api:
        job_id = api.post("/v1/jobs", json=MANUAL).raise_for_status().json()["jobId"]
        api.delete(f"/v1/jobs/{job_id}").raise_for_status()

    def found() -> list[dict[str, Any]]:
        listed = audit("list", "--limit", "10000")
        assert listed.returncode == 0, listed.stderr
        events = json.loads(listed.stdout)["items"]
        return [each for each in events if job_id in json.dumps(each)]

    deadline = time.monotonic() + _PATIENCE
    while len(events := found()) < 3 and time.monotonic() < deadline:
        # Once is not enough after tests with many rejections: only some are recorded per second.
        with stack.api() as api:
            api.delete(f"/v1/jobs/{job_id}")
        time.sleep(1)

    by = {(each["by"]["operation"], each["by"].get("status")): each for each in events}
    assert set(by) == {("createJob", None), ("deleteJob", None), ("deleteJob", 404)}
    presented = parse(stack.info.api_key)
    assert presented is not None
    key_id = presented.key_id
    assert {each["by"]["principal"] for each in events} == {key_id}
    assert "open-sesame" not in json.dumps(events)
    verified = audit("verify")
    assert verified.returncode == 0, verified.stderr
    head = json.loads(verified.stdout)["headHash"]
    assert audit("verify", "--expect", head).returncode == 0

    s3, bucket = stack.client("s3"), stack.outputs()["AuditBucket"]
    newest = s3.list_objects_v2(Bucket=bucket, Prefix="chain/", MaxKeys=1)["Contents"][0]["Key"]
    body = s3.get_object(Bucket=bucket, Key=newest)["Body"].read()
    forged = s3.put_object(Bucket=bucket, Key=newest, Body=body.replace(b"jobs", b"runs"))
    try:
        tampered = audit("verify")
        assert tampered.returncode == 1
        assert newest in tampered.stderr
    finally:
        if "VersionId" in forged:
            s3.delete_object(Bucket=bucket, Key=newest, VersionId=forged["VersionId"])
        else:
            s3.put_object(Bucket=bucket, Key=newest, Body=body)
    assert audit("verify").returncode == 0


def test_runs_leave_no_events(stack: Stack) -> None:
    """Writes of executors and watchers do not invoke the function. Its only invocation without an
    event is the note of a key's last use, once a day.
    """
    # Other tests write items by hand, which invoke it too.
    began = datetime.now(UTC)
    stack.put_script("default", "hello", "print('hello')")
    with stack.api() as api:

        def create() -> str:
            created = api.post("/v1/jobs", json=MANUAL).raise_for_status().json()
            job_id: str = created["jobId"]
            return job_id

        ran = create()
        api.post(f"/v1/jobs/{ran}/run", json={}).raise_for_status()

        def ended() -> bool:
            [run] = api.get(f"/v1/jobs/{ran}/executions").raise_for_status().json()["items"]
            return bool(run["state"] == "SUCCEEDED")

        until(ended, "the run")
        create()

    def batches() -> list[dict[str, Any]]:
        lines = stack.log_lines(stack.outputs()["AuditLogFunction"], began)
        found = [json.loads(line) for line in lines if '"message":"appended"' in line]
        # The second job was created after the run had ended.
        return found if sum(each["table"] == "jobs" for each in found) > 1 else []

    found = until(batches, "the events of both jobs")
    assert {each["table"] for each in found if not each["events"]} <= {"keys"}
