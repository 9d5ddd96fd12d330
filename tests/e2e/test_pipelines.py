"""Pipelines on the deployed stack, with the command: apply, change, remove, kill, export."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nextfire import Client, Conflict
from nextfire.client.pipelines.document import OWNER
from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import Stack

ROOT = Path(__file__).resolve().parents[2]
MANUAL: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "hello"}}


class Command:
    """The command `nextfire` as a process."""

    def __init__(self, stack: Stack) -> None:
        self.environment = {
            **inherited_environment(),
            "NEXTFIRE_ENDPOINT": stack.info.endpoint,
            "NEXTFIRE_API_KEY": stack.info.api_key,
            "PYTHONPATH": f"{ROOT}/layers:{ROOT}/cli",
        }
        self._folder = stack.state

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "nextfire_cli.main", *args],
            env=self.environment,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, text: str | None = None) -> str:
        process = self.start(*args)
        out, err = process.communicate(text)
        assert process.returncode == 0, out + err
        return out

    def apply(self, *jobs: dict[str, Any], name: str = "etl") -> list[str]:
        """Apply a pipeline of *jobs*; return the changes that it makes."""
        text = json.dumps({"pipeline": name, "jobs": jobs})
        found = json.loads(self("apply", "-f", "-", "--yes", "--json", text=text))
        steps = [f"{each['action']} {each['jobId']}" for each in found["changes"]]
        return [each for each in steps if not each.startswith("unchanged")]


@pytest.fixture
def command(stack: Stack) -> Command:
    return Command(stack)


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.info.endpoint, stack.info.api_key) as client:
        yield client
        for _ in range(5):  # children first: parents are rejected until they have none
            for job in client.jobs():
                if job.state != "CANCELLED" and OWNER in job.document.get("labels", {}):
                    with suppress(Conflict):
                        client.delete_job(job.job_id)


def job(job_id: str, *parents: str, **fields: Any) -> dict[str, Any]:
    if parents:
        fields = {"type": "AFTER", "after": [{"job": each} for each in parents]} | fields
    return {"jobId": job_id, **MANUAL, **fields}


def test_apply_change_remove_and_export(command: Command, client: Client) -> None:
    before = [job("p-load", "p-clean"), job("p-clean", "p-extract"), job("p-extract")]
    assert command.apply(*before) == ["create p-extract", "create p-clean", "create p-load"]
    assert command.apply(*before) == []

    after = [job("p-extract", timeoutSec=60), job("p-audit", "p-extract")]
    assert command.apply(*after) == [
        *("update p-extract", "create p-audit"),
        *("remove p-load", "remove p-clean"),
    ]
    assert client.get_job("p-load").state == "CANCELLED"
    assert client.get_job("p-extract").timeout_sec == 60

    exported = command("export", "--pipeline", "etl")
    assert "No changes: 2 unchanged." in command("apply", "-f", "-", text=exported)
    assert "n0 --> n1" in command("export", "--pipeline", "etl", "-o", "mermaid")
    assert command.apply(*before) == [
        *("update p-extract", "create p-clean", "create p-load"),
        "remove p-audit",
    ]


def test_an_apply_that_is_killed_is_completed_by_the_next(
    command: Command, client: Client, tmp_path: Path
) -> None:
    jobs = [job("k-00"), *(job(f"k-{n:02}", f"k-{n - 1:02}") for n in range(1, 12))]
    (tmp_path / "p.json").write_text(json.dumps({"pipeline": "killed", "jobs": jobs}))
    for lines in (1, 3, 5):
        process = command.start("apply", "-f", str(tmp_path / "p.json"), "--yes")
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stderr.readline()
        process.kill()
        process.communicate()

    left = command.apply(*jobs, name="killed")

    assert len(left) < len(jobs)
    assert command.apply(*jobs, name="killed") == []
    for each in jobs:
        assert client.get_job(each["jobId"]).labels == {OWNER: "killed"}
    assert client.get_job(jobs[-1]["jobId"]).revision == 1


def test_jobs_of_others_are_not_touched(command: Command, client: Client) -> None:
    client.put_job("foreign", MANUAL)
    document = json.dumps({"pipeline": "etl", "jobs": [job("foreign", timeoutSec=1)]})

    process = command.start("apply", "-f", "-", "--yes")
    _, err = process.communicate(document)

    assert process.returncode == 2
    assert "'foreign'" in err
    assert "--adopt" in err
    assert client.get_job("foreign").revision == 1
    adopted = command("apply", "-f", "-", "--yes", "--adopt", text=document)
    assert "1 updated." in adopted
    assert command.apply() == ["remove foreign"]


def test_the_examples_declare_the_same(command: Command, client: Client, stack: Stack) -> None:
    stack.put_script("default", "hello", (ROOT / "examples" / "hello.py").read_text())
    command("apply", "-f", str(ROOT / "examples" / "pipeline.yaml"), "--yes")

    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "pipeline.py")],
        env=command.environment,
        cwd=stack.state,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [
        f"unchanged {each}" for each in ("extract", "clean", "count", "report")
    ]
    assert client.get_job("report").labels == {OWNER: "nightly", "team": "sales"}
