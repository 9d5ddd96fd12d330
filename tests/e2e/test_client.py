"""The Python client against the deployed API, and the curl and Python examples of the docs,
verbatim.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire import Client, Conflict, Forbidden, Invalid, NotFound, Unauthorized
from nextfire.domain.key_text import parse, write_key
from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import Stack

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of *page* in *language*."""
    return [text for of, text in _BLOCK.findall((ROOT / page).read_text()) if of == language]


@pytest.fixture
def hello(stack: Stack) -> None:
    stack.put_script("default", "hello", (ROOT / "examples" / "hello.py").read_text())


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.info.endpoint, stack.info.api_key) as client:
        yield client


def ran(stack: Stack, *command: str, text: str | None = None) -> str:
    """The output of *command*, with the API's address in the environment."""
    api_environment = {
        "NEXTFIRE_ENDPOINT": stack.info.endpoint,
        "NEXTFIRE_API_KEY": stack.info.api_key,
        "PYTHONPATH": f"{ROOT}/layers",
        # The Python that the pages ask for is this one, wherever it is installed.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        input=text,
        env={**inherited_environment(), **api_environment},
        cwd=stack.state,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert stack.info.api_key not in done.stdout + done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """The concatenated JSON documents in *text*."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


@pytest.mark.usefixtures("hello")
def test_a_job_runs_and_its_log_is_readable(client: Client) -> None:
    made = client.create_job({"type": "MANUAL", "target": {"handler": "hello"}})

    run = client.run_job(made.job_id, payload={"name": "e2e"})
    lines = [line.text for line in client.log(run.execution_id, follow=True)]

    assert lines[0] == "Hello, e2e!"
    done = client.get_execution(run.execution_id)
    assert (done.state, done.exit_code) == ("SUCCEEDED", 0)
    assert done.started_at is not None
    [listed] = client.executions(made.job_id)
    assert listed.execution_id == run.execution_id
    with pytest.raises(Conflict):
        client.redrive_execution(run.execution_id)
    assert client.delete_job(made.job_id).state == "CANCELLED"


def test_errors_come_as_what_they_are(stack: Stack, client: Client) -> None:
    with pytest.raises(NotFound) as missing:
        client.get_job("no-such-job")
    assert not missing.value.by_gateway
    with pytest.raises(Invalid) as refused:
        client.create_job({"typ": "CRON"})
    assert "Did you mean `type`?" in refused.value.remedy
    presented = parse(stack.info.api_key)
    assert presented is not None
    wrong = write_key(presented.tenant, presented.key_id, presented.secret[::-1])
    with Client(stack.info.endpoint, wrong) as stranger, pytest.raises(Forbidden) as shut_out:
        stranger.get_job("j")
    assert shut_out.value.by_gateway
    assert "wrong, expired or revoked" in shut_out.value.remedy
    anonymous = Client(stack.info.endpoint, auth=httpx2.Auth())
    with anonymous, pytest.raises(Unauthorized):
        anonymous.get_job("j")


def test_a_lost_answer_makes_no_second_job(stack: Stack) -> None:
    class Lossy(httpx2.HTTPTransport):
        lose = 1

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            response = super().handle_request(request)
            if self.lose:
                self.lose -= 1
                response.read()
                raise httpx2.ReadError("the line went dead", request=request)
            return response

    with Client(stack.info.endpoint, stack.info.api_key, transport=Lossy()) as client:
        label = {"made-by": "a-lost-answer"}
        made = client.create_job({"type": "MANUAL", "target": {"handler": "h"}, "labels": label})

        assert [job.job_id for job in client.jobs(label="made-by:a-lost-answer")] == [made.job_id]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.usefixtures("hello")
def test_the_curl_lines_of_the_readme_work_as_printed(stack: Stack) -> None:
    [lines] = [block for block in blocks("README.md", "sh") if "api()" in block]

    made, got, deleted = documents(ran(stack, "bash", "-euo", "pipefail", text=lines))

    assert (made["jobId"], got["state"], deleted["state"]) == ("report", "ACTIVE", "CANCELLED")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.usefixtures("hello")
def test_the_curl_lines_of_the_reference_work_as_printed(stack: Stack) -> None:
    [lines] = [block for block in blocks("docs/reference/api.md", "sh") if "api()" in block]

    answers = documents(ran(stack, "bash", "-euo", "pipefail", text=lines))

    assert len(answers) == lines.count('"$NEXTFIRE_ENDPOINT/') - 1, (
        "one answer goes into a variable"
    )
    made, got, listed, paused, resumed, run, log, runs, changed, deleted, health = answers
    assert (made["jobId"], got["state"], paused["state"]) == ("nightly", "ACTIVE", "PAUSED")
    # Other tests have jobs, too: a page can end before this one.
    assert "cursor" in listed or "nightly" in [job["jobId"] for job in listed["items"]]
    assert (resumed["state"], changed["schedule"]) == ("ACTIVE", "30 3 * * *")
    assert run["payload"] == {"name": "you"}
    assert {"items", "ended"} <= log.keys()
    assert [each["executionId"] for each in runs["items"]] in ([run["executionId"]], [])
    assert (deleted["state"], health["status"]) == ("CANCELLED", "ok")


@pytest.mark.usefixtures("hello")
@pytest.mark.parametrize("page", ["README.md", "docs/guide/client.md", "docs/guide/pipelines.md"])
def test_the_python_of_the_pages_works_as_printed(stack: Stack, page: str) -> None:
    for block in blocks(page, "python"):
        printed = ran(stack, sys.executable, "-", text=block)

        assert ("Hello, " in printed) == ("log(" in block)


@pytest.mark.usefixtures("hello")
def test_the_example_works(stack: Stack) -> None:
    printed = ran(stack, sys.executable, str(ROOT / "examples" / "client.py"))

    assert "client-example is ACTIVE" in printed
    assert "Hello, client!" in printed
    assert "is SUCCEEDED, attempt 1" in printed
    assert "priority: " in printed
