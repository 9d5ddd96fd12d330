"""`nextfire endpoints test` against the deployed stack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.callback_server import CallbackServer
from tests.e2e.callbacks.conftest import TOKEN, in_turn
from tests.e2e.conftest import Stack


def output_of_test(
    stack: Stack, key: str, folder: Path, *args: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run `nextfire endpoints test --json`."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from nextfire_cli.main import app; app()", "--json"),
            *("endpoints", "test", *args),
        ],
        env={
            **inherited_environment(),
            "HOME": str(folder),
            "NEXTFIRE_ENDPOINT": stack.info.endpoint,
            "NEXTFIRE_API_KEY": key,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(done.stdout) if done.stdout else None


def job_file(folder: Path, server: CallbackServer, path: str, **http: Any) -> str:
    call = {"url": f"{server.url}{path}", "tls": {"ca": {"parameter": "ca"}}, **http}
    file = folder / "job.json"
    file.write_text(json.dumps({"target": {"pool": "calls", "http": call}, "payload": {"id": 7}}))
    return str(file)


def test_a_user_sees_what_the_receiver_gets(
    stack: Stack, server: CallbackServer, key: str, path: str, tmp_path: Path
) -> None:
    auth = {"type": "bearer", "token": {"parameter": "token"}}
    file = job_file(tmp_path, server, path, auth=auth, sign=[{"parameter": "signing"}])

    done, run = output_of_test(stack, key, tmp_path, "-f", file)

    assert done.returncode == 0, done.stderr
    [one] = server.received(path)
    [attempt] = run["attempts"]
    shown = attempt["call"]["request"]
    added = {"Host", "Accept-Encoding", "Connection", "Content-Length"}
    got = {name: value for name, value in one.headers.items() if name not in added}
    secret = {"Authorization": "Bearer ***", "webhook-signature": "v1,***"}
    assert shown["headers"] == {**got, **secret}
    assert shown["body"].encode() == one.body
    assert TOKEN not in done.stdout
    with stack.api_with(key) as api:
        assert api.get(f"/v1/jobs/{run['jobId']}").json()["state"] == "CANCELLED"


def test_a_test_of_an_endpoint_that_is_down_ends(
    stack: Stack, server: CallbackServer, key: str, path: str, tmp_path: Path
) -> None:
    server.responses[path] = in_turn(503)

    done, run = output_of_test(stack, key, tmp_path, "-f", job_file(tmp_path, server, path))

    assert done.returncode == 1, done.stderr
    assert run["attempts"][0]["outcome"] == "DEFERRED"
    with stack.api_with(key) as api:
        ended = api.get(f"/v1/executions/{run['executionId']}").json()
    assert ended["state"] == "CANCELLED"
    assert len(server.received(path)) == 1
