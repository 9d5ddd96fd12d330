"""Two versions of the product on one stack: an update, a rollback, and both versions at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nextfire_cli.local.embedded import EmbeddedStack
from tests.e2e.user import COUNTING, Document, soon, until
from tests.embedded.conftest import LEASE, ROOT, EmbeddedUser, Stack
from tests.places import host_folder
from tests.process_tree import tree_of
from tests.upgrade.earlier import unpacked

THIS, EARLIER = "this version", "the earlier version"
RUNS = 8
"""Of each job that recurs every 2 s."""
PHASE = 4.0  # seconds
_PART = "from functions.embedded import parts; parts.{}"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The search path of the modules of each version."""
    return {THIS: ROOT, EARLIER: unpacked(tmp_path_factory.mktemp("earlier"))}


@pytest.fixture
def state() -> Iterator[Path]:
    folder = host_folder("versions-nextfire-")
    folder.chmod(0o711)
    yield folder / "state"
    shutil.rmtree(folder)


@contextmanager
def using(state: Path, sources: Path) -> Iterator[EmbeddedUser]:
    """A user of the stack with its data in *state*, whose processes run the code of *sources*."""
    local = EmbeddedStack(state, sources=sources)
    with local.running(lambda _line: None, lease=LEASE) as info:
        stack = Stack(local, info, state)
        stack.put_script("default", "counting", COUNTING)
        with stack.api() as http:
            anyone: Any = stack
            yield EmbeddedUser(anyone, http, state.parent)  # scripts see nothing of the stack's


@contextmanager
def another_process(
    user: EmbeddedUser, sources: Path, call: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A further process of the stack, with the code of *sources*."""
    [supervisor] = user.stack.info.processes
    own = Path(f"/proc/{supervisor.pid}/environ").read_bytes().decode().split("\0")
    environment = dict(each.split("=", 1) for each in own if each)
    environment["PYTHONPATH"] = str(sources)
    command = [sys.executable, "-P", "-c", _PART.format(call)]
    with subprocess.Popen(command, env=environment, cwd=user.stack.state) as process:
        try:
            yield process
        finally:
            process.terminate()


def jobs_of_all_types(user: EmbeddedUser) -> list[Document]:
    """Jobs with runs that are due in the next 20 s. Each run starts, however late."""
    target = {"handler": "counting"}
    common = {
        "target": target,
        "payload": {"marks": str(user.marks), "sleep": 0.3},
        "misfire": {"policy": "RUN_ALL"},
    }
    every = {
        "type": "INTERVAL",
        "schedule": "PT2S",
        "startAt": soon(2).isoformat(),
        "maxRuns": RUNS,
        **common,
    }
    parent = user.create(**every)
    after = [{"job": parent["jobId"]}]
    return [
        parent,
        user.create(**every, after=after),
        user.create(**every, overlap="QUEUE"),
        user.create(type="AFTER", after=after, **{**common, "misfire": {}}),
        user.once(soon(3), handler="counting", misfire=common["misfire"]),
        user.once(soon(12), handler="counting", misfire=common["misfire"]),
        user.create(type="DELAY", schedule="PT8S", **common),
        user.create(
            type="DATES", schedule=[soon(each).isoformat() for each in (2, 9, 16)], **common
        ),
    ]


def all_runs(user: EmbeddedUser, job: Document) -> list[Document]:
    path = f"/v1/jobs/{job['jobId']}/executions?limit=100"
    items: list[Document] = user.call("GET", path)["items"]
    return items


def check_that_nothing_is_lost(user: EmbeddedUser, jobs: list[Document]) -> list[Document]:
    """Wait until all runs have ended, and check that each occurrence has run. Returns the runs."""
    counts = {"INTERVAL": RUNS, "AFTER": RUNS, "DATES": 3}
    wanted = {job["jobId"]: counts.get(job["type"], 1) for job in jobs}

    def ended() -> list[Document] | None:
        found = [run for job in jobs for run in all_runs(user, job)]
        succeeded = Counter(run["jobId"] for run in found if run["state"] == "SUCCEEDED")
        return found if succeeded == wanted else None

    runs: list[Document] = until(ended, f"the success of {wanted}")
    until(user.queue_is_empty, "an empty queue")
    assert len(runs) == sum(wanted.values()), "no run was skipped or added"
    assert {run["executionId"] for run in runs} == {*user.marked()}
    states = {job["type"]: user.call("GET", f"/v1/jobs/{job['jobId']}")["state"] for job in jobs}
    assert states == {job["type"]: "COMPLETED" for job in jobs} | {"AFTER": "ACTIVE"}
    return runs


def test_each_version_runs_its_own_code(versions: dict[str, Path]) -> None:
    places = []
    for sources in versions.values():
        command = [sys.executable, "-P", "-c", "import nextfire; print(nextfire.__file__)"]
        environment = {"PYTHONPATH": str(sources)}
        places.append(subprocess.check_output(command, env=environment, text=True))
    assert [place.startswith(f"{ROOT}/") for place in places] == [True, False]


def test_an_update_that_is_rolled_back_loses_nothing(
    versions: dict[str, Path], state: Path
) -> None:
    jobs: list[Document] = []
    for version in (EARLIER, THIS, EARLIER):
        with using(state, versions[version]) as user:
            jobs = jobs or jobs_of_all_types(user)
            time.sleep(PHASE)
    with using(state, versions[THIS]) as user:
        check_that_nothing_is_lost(user, jobs)


@pytest.mark.parametrize(("of_stack", "other"), [(THIS, EARLIER), (EARLIER, THIS)])
def test_two_versions_at_once_lose_nothing(
    versions: dict[str, Path], state: Path, of_stack: str, other: str
) -> None:
    with (
        using(state, versions[of_stack]) as user,
        another_process(user, versions[other], "_work('default')") as worker,
        another_process(user, versions[other], "_watch()"),
    ):
        jobs = jobs_of_all_types(user)
        for _ in range(2):  # another watcher takes over, of either version
            time.sleep(PHASE)
            watcher = user.stack.pid_of("watcher")
            assert watcher is not None
            os.kill(watcher, signal.SIGKILL)
        time.sleep(PHASE)
        theirs = {str(pid) for pid in tree_of(worker.pid)}
        runs = check_that_nothing_is_lost(user, jobs)

    workers = {run["worker"].rpartition("-")[2] for run in runs}
    assert workers & theirs, "the other version carried out runs"
    assert workers - theirs, "as the stack's did"
