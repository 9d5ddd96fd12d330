"""Two versions of the AWS app on one stack: an update, a rollback, and both versions at once."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nextfire.domain.ids import JobKey
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire_cli.local.stack import LocalStack
from tests.accounting import assert_all_accounted_for
from tests.crons import LONG
from tests.e2e.callback_server import CallbackServer, callback_server
from tests.e2e.conftest import ROOT
from tests.e2e.user import COUNTING, Document, User, instant, soon, until
from tests.places import host_folder
from tests.snapshot import Snapshot
from tests.upgrade.deployed import HELD, LEASE, SETTINGS, ChangingStack, processes_under
from tests.upgrade.earlier import checkout

pytestmark = pytest.mark.skipif(not LONG, reason="takes minutes: make test-long")

THIS, EARLIER = "this version", "the earlier version"
SCRIPT = f"""{COUNTING}
if payload.get("fails") and os.environ["NEXTFIRE_ATTEMPT"] == "1":
    sys.exit("failed once")
"""
SERVED = ("default", "calls", HELD)
"""The pools of workers."""
MARGIN = timedelta(seconds=15)
PATIENCE = 180.0  # seconds


@dataclass(frozen=True)
class Versions:
    """A stack on which the earlier version is deployed, and the folders of both versions.
    `deploys_in`: how long a deployment takes.
    """

    stack: ChangingStack
    roots: dict[str, Path]
    deploys_in: timedelta


@pytest.fixture
def versions() -> Iterator[Versions]:
    place = host_folder("versions-nextfire-")
    place.chmod(0o711)
    state, earlier = place / "state", place / "earlier"
    for each in (state, earlier):
        each.mkdir(mode=0o711)
    roots = {THIS: ROOT, EARLIER: checkout(earlier, like=ROOT)}
    began = time.monotonic()
    local = LocalStack(earlier, state=state)
    with local.running(lambda _line: None, workers=0, lease=LEASE, settings=SETTINGS) as info:
        took = timedelta(seconds=time.monotonic() - began)
        stack = ChangingStack(local, info, state)
        try:
            stack.start_workers(earlier, *SERVED)
            yield Versions(stack, roots, took)
        finally:
            stack.close()
    shutil.rmtree(place)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CallbackServer]:
    with callback_server(tmp_path, "http") as server:
        yield server


@pytest.fixture
def user(versions: Versions) -> Iterator[User]:
    stack = versions.stack
    for pool in ("default", "lambda", HELD):
        stack.put_script(pool, "counting", SCRIPT)
    scratch = stack.state / "scratch"
    scratch.mkdir(mode=0o755)
    with stack.api() as http:
        yield User(stack, http, scratch)


class Jobs:
    """A job of each kind, created by one version and continued by the other one."""

    def __init__(self, user: User, url: str) -> None:
        self._user = user
        target, script = {"handler": "counting"}, {"payload": {"marks": str(user.marks)}}
        on_lambda = {"target": {"pool": "lambda", **target}, "timeoutSec": 10}
        default = {"target": target, **script}
        all_of_them = {"misfire": {"policy": "RUN_ALL"}}
        self.every = user.create(type="INTERVAL", schedule="PT3S", **default, **all_of_them)
        self.child = self._after(self.every, **on_lambda, **script)
        self.queued = user.create(
            type="INTERVAL", schedule="PT4S", overlap="QUEUE", **on_lambda, **script
        )
        self.call = user.create(
            type="INTERVAL",
            schedule="PT3S",
            target={"pool": "calls", "http": {"url": url}},
            **all_of_them,
        )
        self.paused = user.create(type="INTERVAL", schedule="PT9S", **default, **all_of_them)
        user.call("POST", f"/v1/jobs/{self.paused['jobId']}/pause", {"reason": "an update"})
        self.first = user.create(type="MANUAL", **default)
        self.branches = [
            self._after(self.first, **default),
            self._after(self.first, target={"pool": HELD, **target}, **script),
        ]
        self.join = self._after(*self.branches, **default)
        user.call("POST", f"/v1/jobs/{self.first['jobId']}/run", {}, 201)

    def _after(self, *parents: Document, **more: Any) -> Document:
        return self._user.create(
            type="AFTER", after=[{"job": each["jobId"]} for each in parents], **more
        )

    def add_late(self, late: datetime) -> None:
        """Create what waits for the other version: a run and a retry that are due at *late*."""
        delay = (late - soon(0)) // timedelta(milliseconds=1)
        self.once = self._user.once(late, handler="counting")
        self.retried = self._user.create(
            type="DELAY",
            schedule="PT1S",
            target={"handler": "counting"},
            payload={"marks": str(self._user.marks), "fails": True},
            retryPolicy={"maxAttempts": 2, "initialDelayMs": delay, "maxDelayMs": delay},
        )
        until(self._is_retried, "a failed attempt")

    def _is_retried(self) -> bool:
        return [run["state"] for run in self._user.runs(self.retried)] == ["PENDING"]

    @property
    def open(self) -> list[Document]:
        """The jobs that run until they are ended."""
        return [self.every, self.queued, self.call, self.paused]

    @property
    def all(self) -> list[Document]:
        chain = [self.first, *self.branches, self.join]
        return [*self.open, self.child, self.once, self.retried, *chain]

    def have_begun(self) -> bool:
        """Whether the version that created them has done its part."""
        recurring = (self.every, self.child, self.queued, self.call)
        if any(self.succeeded(each) < 2 for each in recurring):
            return False
        single = (self.first, self.branches[0])
        waits = not self._user.queue_is_empty(HELD)
        return waits and all(self.succeeded(each) == 1 for each in single)

    def are_done(self, since: datetime) -> bool:
        """Whether the other version, deployed at *since*, has done its part."""
        recurring = (self.every, self.child, self.queued, self.call, self.paused)
        if any(self.succeeded(each, since) < 2 for each in recurring):
            return False
        single = (self.once, self.retried, *self.branches, self.join)
        return all(self.succeeded(each) == 1 for each in single)

    def succeeded(self, job: Document, since: datetime | None = None) -> int:
        """The number of its latest runs that succeeded, of those that began after *since*."""
        runs = [run for run in self._user.runs(job) if run["state"] == "SUCCEEDED"]
        return sum(since is None or instant(run["startedAt"]) > since for run in runs)

    def end(self) -> None:
        """Let the recurring jobs end in a moment."""
        for job in self.open:
            body = {"endAt": soon(12).isoformat()}
            self._user.call("PATCH", f"/v1/jobs/{job['jobId']}", body)


def change_version(versions: Versions, user: User, jobs: Jobs, of: str, to: str) -> None:
    """Deploy the version *to* over *of*, which created *jobs*, let both work at once, and let *to*
    continue alone.
    """
    stack, roots = versions.stack, versions.roots
    until(jobs.have_begun, f"the first runs of {of}", within=PATIENCE)
    late = soon((2 * versions.deploys_in + MARGIN).total_seconds())
    jobs.add_late(late)
    before = {each["jobId"]: user.call("GET", f"/v1/jobs/{each['jobId']}") for each in jobs.all}
    stack_id, _ = stack.status()
    theirs = stack.running_workers()

    stack.deploy(roots[to])

    assert stack.status() == (stack_id, "UPDATE_COMPLETE")
    since = soon(0)
    assert since < late, "what is due late is due after the update"
    assert {name: user.call("GET", f"/v1/jobs/{name}")["target"] for name in before} == {
        name: job["target"] for name, job in before.items()
    }
    assert stack.runs_code_of(roots[to], "api")
    ours = stack.start_workers(roots[to], *SERVED)
    both_watch(versions, of)
    both_work(user, jobs, processes_under(theirs), processes_under(ours), since)
    stack.end_processes_of(theirs)
    user.call("POST", f"/v1/jobs/{jobs.paused['jobId']}/resume", {})
    until(partial(jobs.are_done, since), f"the runs of {to}", within=PATIENCE)
    for job in (jobs.once, jobs.retried):
        [run] = user.runs(job)
        assert instant(run["startedAt"]) > since
    report = stack.invoke("auditor", {"full": True})
    found_wrong = ("restored", "resent", "covered", "revived", "quarantined")
    assert {name: report[name] for name in found_wrong} == dict.fromkeys(found_wrong, 0), report


def both_watch(versions: Versions, of: str) -> None:
    """Let a watcher of the version *of* take over from the deployed one, and the reverse."""
    stack = versions.stack
    with stack.watcher(versions.roots[of]) as log:

        def takes_over() -> bool:
            stack.kill("watcher")
            time.sleep(4)
            return "holds the lease" in log.read_text()

        until(takes_over, f"a watcher of {of} that holds the lease")
        time.sleep(5)


def both_work(user: User, jobs: Jobs, theirs: set[str], ours: set[str], since: datetime) -> None:
    """Wait until workers of both versions have carried out runs that are due after *since*."""

    def both() -> bool:
        runs = [run for job in (jobs.every, jobs.call) for run in user.runs(job)]
        begun = [run for run in runs if instant(run["scheduledAt"]) > since and "worker" in run]
        workers = {run["worker"].rpartition("-")[2] for run in begun}
        return bool(workers & theirs) and bool(workers & ours)

    until(both, "runs of both versions' workers", within=PATIENCE)


def check_all(user: User, stack: ChangingStack, server: CallbackServer, groups: list[Jobs]) -> None:
    """Check that each occurrence has one record and one effect, and that nothing is left over."""
    tables = stack.tables()
    runs = tables.runs.all.values()
    for job in tables.jobs.values():
        if job.definition.type is not ScheduleType.AFTER:
            assert_all_accounted_for(tables, job)
    assert {run.state for run in runs} <= {RunState.SUCCEEDED, RunState.SKIPPED}
    called = [one.headers["Idempotency-Key"] for one in server.received("/called")]
    effects = Counter([*user.marked(), *called])
    for run in runs:
        check_effects(run, effects.pop(run.key.execution_id, 0))
    assert not effects, "effects without a record"
    for jobs in groups:
        assert times_of(user, tables, jobs.child) == times_of(user, tables, jobs.every)
    for pool, queues in stack.info.pools.items():
        until(partial(user.queue_is_empty, pool), f"an empty queue of {pool}")
        found = stack.client("sqs").get_queue_attributes(
            QueueUrl=queues.dlq_url, AttributeNames=["ApproximateNumberOfMessages"]
        )
        assert found["Attributes"]["ApproximateNumberOfMessages"] == "0", pool
    wanted = {run.key.execution_id for run in runs}
    until(lambda: listed(user) >= wanted, "all runs in the list of all jobs' runs")


def check_effects(run: Run, count: int) -> None:
    """Check that *run*, which took effect *count* times, did so once per attempt."""
    attempts = len(run.attempts)
    if run.state is RunState.SKIPPED:
        assert (attempts, count) == (0, 0), run
    else:
        assert 1 <= count <= attempts, (run, count)


def times_of(user: User, tables: Snapshot, job: Document) -> list[datetime]:
    """The scheduled instants of the runs of *job*."""
    key = JobKey(user.stack.info.account_id, job["jobId"])
    return sorted(each.scheduled_at for each in tables.runs.all if each.job == key)


def listed(user: User) -> set[str]:
    """The runs of all jobs, from the overview."""
    found, cursor = set[str](), ""
    while True:
        page = user.call("GET", f"/v1/executions?limit=100{cursor}")
        found |= {each["executionId"] for each in page["items"]}
        if not page.get("cursor"):
            return found
        cursor = f"&cursor={page['cursor']}"


def test_an_update_and_its_rollback_lose_nothing(
    versions: Versions, user: User, server: CallbackServer
) -> None:
    stack, groups = versions.stack, list[Jobs]()
    assert stack.runs_code_of(versions.roots[EARLIER], "api")
    for of, to in ((EARLIER, THIS), (THIS, EARLIER)):
        held = {name: pid for name, pid in stack.running_workers().items() if HELD in name}
        stack.end_processes_of(held)
        groups.append(Jobs(user, f"{server.url}/called"))
        change_version(versions, user, groups[-1], of, to)
    for jobs in groups:
        jobs.end()

    until(partial(are_at_rest, user, stack, groups), "the end of all jobs", within=PATIENCE)
    check_all(user, stack, server, groups)


def are_at_rest(user: User, stack: ChangingStack, groups: list[Jobs]) -> bool:
    """Whether all jobs have ended, with all their runs and those of their children."""
    tables = stack.tables()
    kinds = {ScheduleType.AFTER, ScheduleType.MANUAL}
    jobs = [each for each in tables.jobs.values() if each.definition.type not in kinds]
    if any(job.state is not JobState.COMPLETED for job in jobs):
        return False
    if not all(run.state.ended for run in tables.runs.all.values()):
        return False
    return all(
        times_of(user, tables, each.child) == times_of(user, tables, each.every) for each in groups
    )
