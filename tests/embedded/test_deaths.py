"""Parts of the embedded stack die, and the whole of it."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nextfire import Client
from nextfire.client.bearer import Bearer
from nextfire_cli.local import embedded
from nextfire_cli.local.embedded import EmbeddedStack
from nextfire_cli.local.ports import lasting_port
from nextfire_cli.local.processes import started
from nextfire_cli.local.state import LocalStackError
from tests.crons import LONG
from tests.e2e.user import until
from tests.embedded.conftest import LEASE, ROOT, Stack
from tests.places import host_folder
from tests.process_tree import age_of, children_of, tree_of

KILLS = 50 if LONG else 6
MARKS = """
import json, os, sys
with open(json.load(sys.stdin)["marks"], "a") as marks:
    marks.write(os.environ["NEXTFIRE_JOB_ID"] + "\\n")
"""
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
SLEEPS = "import time; time.sleep(60)"


def _quiet(_line: str) -> None:
    pass


@pytest.fixture
def state() -> Iterator[Path]:
    folder = host_folder("deaths-nextfire-")
    folder.chmod(0o711)
    yield folder / "state"
    shutil.rmtree(folder)


@pytest.mark.parametrize("part", ["api", "watcher", "auditor", "worker-default-0"])
def test_a_part_that_dies_is_started_again_and_named_with_its_signal(
    stack: Stack, part: str
) -> None:
    pid = stack.pid_of(part)
    assert pid is not None
    before = stack.info.parts()[part]["deaths"]

    os.kill(pid, signal.SIGKILL)

    until(lambda: stack.pid_of(part) not in {None, pid}, "the restart")
    found = stack.info.parts()[part]
    assert (found["deaths"], found["lastDeath"]) == (before + 1, "killed by SIGKILL")
    with stack.api() as api:
        assert api.get("/v1/jobs").status_code == 200


def test_a_worker_that_dies_below_its_supervisor_is_started_again_and_named(stack: Stack) -> None:
    part = "worker-default-1"
    before, supervisor = stack.info.parts()[part]["deaths"], stack.pid_of(part)
    assert supervisor is not None
    [worker] = until(lambda: children_of(supervisor), "the worker")
    # A worker's supervisor on AWS would start another one itself.
    until(lambda: age_of(worker) > 10, "a worker that is not new")

    os.kill(worker, signal.SIGKILL)

    until(lambda: stack.pid_of(part) not in {None, supervisor}, "the restart")
    found = stack.info.parts()[part]
    assert (found["deaths"], found["lastDeath"]) == (before + 1, "killed by SIGKILL")


def test_no_process_outlives_the_supervisor(state: Path) -> None:
    stack = EmbeddedStack(state, sources=ROOT)
    info = stack.start(_quiet)
    try:
        [supervisor] = info.processes
        # None: a process that has ended since, such as a probe of a worker that starts.
        tree = {pid: born for pid in tree_of(supervisor.pid) if (born := started(pid)) is not None}

        os.kill(supervisor.pid, signal.SIGKILL)

        until(
            lambda: all(started(pid) != born for pid, born in tree.items()), "the end of all parts"
        )
        assert stack.status() is None
    finally:
        stack.stop()


def test_the_port_is_free_while_the_workers_of_a_killed_stack_stop(state: Path) -> None:
    """The next start would take another one, which clients do not know."""
    marks, file = _marks(state), state / "embedded" / "port"
    with EmbeddedStack(state, sources=ROOT).running(_quiet) as info:
        port, parts, [supervisor] = int(file.read_text()), info.parts(), info.processes
        with Client(info.endpoint, auth=Bearer(info.api_key)) as client:
            client.push_script("marks", (IGNORES_SIGTERM + MARKS + SLEEPS).encode())
            _create(client, "deaf", marks)
            until(marks.read_text, "the script")

        os.kill(supervisor.pid, signal.SIGKILL)

        until(lambda: started(parts["api"]["pid"]) is None, "the end of the API")
        assert lasting_port("127.0.0.1", file) == port
        assert started(parts["worker-default-0"]["pid"]), "it waits for its script"


def test_files_that_were_empty_when_the_machine_died_are_written_again(state: Path) -> None:
    stack, data = EmbeddedStack(state, sources=ROOT), state / "embedded"
    with stack.running(_quiet):
        pass
    names = ("port", "upload-key", "api-key")
    for name in names:
        (data / name).write_bytes(b"")

    with stack.running(_quiet) as info, Client(info.endpoint, auth=Bearer(info.api_key)) as client:
        client.push_script("marks", MARKS.encode())

    assert all((data / name).read_text() for name in names)


def test_the_key_of_a_stack_that_runs_for_long_is_renewed(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, key = EmbeddedStack(state, sources=ROOT), state / "embedded" / "api-key"
    with stack.running(_quiet) as info:
        key.write_text("expired")
        stack.renew_key()
        assert key.read_text() == "expired", "it was looked at seconds ago"
        monkeypatch.setattr(embedded, "_LOOK_AT_KEY", 0)

        stack.renew_key()

        with Client(info.endpoint, auth=Bearer(info.api_key)) as client:
            assert client.list_jobs().items == []


def test_the_key_of_a_stack_that_a_user_revoked_is_replaced_before_it_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = EmbeddedStack(state, sources=ROOT)
    with stack.running(_quiet) as info:
        revoked = info.api_key
        with Client(info.endpoint, auth=Bearer(revoked)) as client:
            client.revoke_key(client.list_keys().items[0].key_id)
        later = time.monotonic() + 30  # the gateway keeps the verdict on a key
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: later))

            stack.renew_key()

        assert info.api_key != revoked
        with Client(info.endpoint, auth=Bearer(info.api_key)) as client:
            assert client.list_jobs().items == []


def test_no_other_user_can_write_what_the_stack_writes(state: Path) -> None:
    before = os.umask(0)
    try:
        with EmbeddedStack(state, sources=ROOT).running(_quiet):
            modes = {each.name: each.stat().st_mode & 0o777 for each in state.iterdir()}
    finally:
        os.umask(before)

    assert modes["embedded"] == modes["logs"] == 0o700
    assert modes["tmp"] == 0o755


def test_a_database_that_is_damaged_is_reported_with_a_remedy(state: Path) -> None:
    stack = EmbeddedStack(state, sources=ROOT)
    with stack.running(_quiet):
        pass
    for file in (state / "embedded").glob("nextfire.db*"):
        file.write_bytes(b"not a database" * 1000)

    with pytest.raises(LocalStackError, match=r"nextfire\.db"):
        stack.start(_quiet)


@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_though_everything_is_killed_at_random(state: Path) -> None:
    """Jobs are created while all processes are killed at random moments; each start continues."""
    marks = _marks(state)
    acknowledged: list[str] = []
    chance = random.Random(24)  # noqa: S311
    for kill in range(KILLS):
        stack = EmbeddedStack(state, sources=ROOT)
        info = stack.start(_quiet, lease=LEASE)
        try:
            with Client(info.endpoint, auth=Bearer(info.api_key)) as client:
                if kill == 0:
                    client.push_script("marks", MARKS.encode())
                deadline = time.monotonic() + chance.uniform(0.5, 3)
                while time.monotonic() < deadline:
                    acknowledged.append(_create(client, f"job-{len(acknowledged)}", marks))
            tree = tree_of(info.processes[0].pid)
            for pid in chance.sample(tree, len(tree)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        finally:
            stack.stop()

    with (
        EmbeddedStack(state, sources=ROOT).running(_quiet, lease=LEASE) as info,
        Client(info.endpoint, auth=Bearer(info.api_key)) as client,
    ):
        for job in acknowledged:
            until(partial(_ended, client, job), f"the end of the run of {job}")
            [run] = client.list_executions(job).items
            assert run.document["state"] == "SUCCEEDED", run.document
    # At least once: an attempt may have died after its mark. No run has two records.
    assert set(marks.read_text().split()) == set(acknowledged)


def _marks(state: Path) -> Path:
    """A file that scripts can write."""
    marks = state.parent / "marks"
    marks.touch()
    marks.chmod(0o666)
    return marks


def _create(client: Client, job_id: str, marks: Path) -> str:
    definition: dict[str, Any] = {
        "jobId": job_id,
        "type": "DELAY",
        "schedule": "PT1S",
        "target": {"handler": "marks"},
        "payload": {"marks": str(marks)},
        "retryPolicy": {"maxAttempts": 10},
    }
    client.create_job(definition)
    return job_id


def _ended(client: Client, job_id: str) -> bool:
    runs = client.list_executions(job_id).items
    return bool(runs) and runs[0].document["state"] in {"SUCCEEDED", "DEAD", "SKIPPED"}
