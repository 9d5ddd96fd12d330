"""Every kind of job, and what users do with jobs, behind AWS's limits, latencies and faults: each
run takes effect once.

The stand-in of `tests/strict` is put in front of the emulator for these tests only, so the stack is
restarted; a job of before outlives that. Rates are so low that the runs that are due at once are
throttled.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from tests import crons
from tests.e2e.call_queue import call_queue
from tests.e2e.callback_server import CallbackServer, callback_server, json_of
from tests.e2e.caller import LONG, Caller
from tests.e2e.conftest import CALLER, NARROW, Stack
from tests.e2e.strict_flows import FAILING, FLOWS, INTERVENING, Scene
from tests.e2e.test_sequences import STEP
from tests.e2e.user import COUNTING, until

MIDNIGHT = crons.LONG
"""Whether a crowd is due at the same instant, as at midnight."""
STRICT = (
    "seed=7", "scale=0.03" if MIDNIGHT else "scale=0.005", "latency_ms=2",
    "lag_chance=0.3", "fault_chance=0.02", "reset_chance=0.02",
)  # fmt: skip
CROWD = 200 if MIDNIGHT else 12
"""One-off jobs that are due at the same instant."""
TIMES = 3
"""Runs of the recurring job."""
_BEFORE = 5
"""Runs that end before the restart, more than after it."""


@pytest.fixture(scope="module")
def outliving(stack: Stack) -> str:
    """A job that was created before the restart, and is due after it. Other runs ended before."""
    stack.put_script("default", "hello", "print('still here')")
    manual = {"type": "MANUAL", "target": {"handler": "hello"}}
    due = {"type": "DELAY", "schedule": "PT12S", "target": {"handler": "hello"}}
    with stack.api() as api:
        ended = str(api.post("/v1/jobs", json=manual).raise_for_status().json()["jobId"])
        for _ in range(_BEFORE):
            run = api.post(f"/v1/jobs/{ended}/run", json={}).raise_for_status().json()
            run_id = str(run["executionId"])
            api.post(f"/v1/executions/{run_id}/cancel", json={}).raise_for_status()
        until(lambda: _lists(api, run_id), "the runs of before in the list of all jobs' runs")
        return str(api.post("/v1/jobs", json=due).raise_for_status().json()["jobId"])


def _lists(api: httpx2.Client, run_id: str) -> bool:
    """Whether the overview lists *run_id* among the runs of all jobs. Pages may be short."""
    asked: dict[str, str] = {"limit": "100"}
    while True:
        page = api.get("/v1/executions", params=asked)
        if not page.is_success or "overview" not in page.json():
            return False
        if run_id in page.text:
            return True
        if "cursor" not in page.json():
            return False
        asked["cursor"] = page.json()["cursor"]


@pytest.fixture(scope="module")
def strict(stack: Stack, outliving: str) -> Iterator[Stack]:
    """The stack of the other tests, behind the stand-in."""
    assert outliving
    stack.restart(strict=STRICT)
    try:
        yield stack
    finally:
        stack.restart()
        _await_a_run(stack)


def _await_a_run(stack: Stack) -> None:
    """Other tests rely on runs that start within seconds: after a restart the watcher first waits
    until the lease of the one that was killed has expired, and the first calls are slow.
    """
    hello = {"type": "DELAY", "schedule": "PT1S", "target": {"handler": "hello"}}
    with stack.api() as api:
        caller = Caller(api)
        caller.succeeded(caller.create(**hello))


@pytest.fixture(scope="module")
def folder(strict: Stack) -> Path:
    """A new folder that scripts can read."""
    folder = Path(tempfile.mkdtemp(prefix="strict-", dir=strict.state))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def caller(strict: Stack) -> Iterator[Caller]:
    for pool, handler, source in (
        ("default", "counting", COUNTING),
        ("default", "failing", FAILING),
        ("default", "step", STEP),
        ("lambda", "step", STEP),
    ):
        strict.put_script(pool, handler, source, tenant=CALLER)
    with strict.api_with(strict.key_of(CALLER)) as api:
        yield Caller(api)


@pytest.fixture(scope="module")
def flows(strict: Stack, caller: Caller, folder: Path) -> Iterator[dict[str, Iterator[None]]]:
    """The flows, with all of their jobs created and all requests made."""
    strict.put_script("default", "counting", COUNTING, tenant=NARROW)
    with (
        strict.api_with(strict.key_of(NARROW)) as api,
        call_queue(strict, "strict-orders.fifo", FifoQueue="true") as queue,
    ):
        scene = Scene(strict, caller, Caller(api), queue, folder)
        begun = {flow.__name__: flow(scene) for flow in FLOWS}
        for each in begun.values():
            next(each)
        for flow in INTERVENING:
            next(begun[flow.__name__])
        yield begun


@pytest.fixture
def server(strict: Stack, tmp_path: Path) -> Iterator[CallbackServer]:
    with callback_server(tmp_path) as server:
        path = f"/nextfire/pools/calls/{CALLER}/ca-strict"
        strict.client("ssm").put_parameter(
            Name=path, Value=server.ca, Type="SecureString", Overwrite=True
        )
        yield server


@pytest.mark.usefixtures("flows")
def test_every_kind_of_job_runs_once_behind_the_limits(
    strict: Stack, caller: Caller, server: CallbackServer, folder: Path
) -> None:
    marks = folder / "marks"
    marks.touch()
    marks.chmod(0o666)
    script = {"target": {"handler": "counting"}, "payload": {"marks": str(marks)}}
    ready = timedelta(seconds=10 + CROWD / 2)
    at = (datetime.now(UTC) + ready).replace(microsecond=0).isoformat()
    one_off = [caller.create(type="ONCE", schedule=at, **script) for _ in range(CROWD)]
    recurring = caller.create(type="INTERVAL", schedule="PT2S", maxRuns=TIMES, **script)
    http = {"url": f"{server.url}/strict", "tls": {"ca": {"parameter": "ca-strict"}}}
    called = caller.create(
        type="DELAY", schedule="PT2S", target={"pool": "calls", "http": http}, timeoutSec=20
    )
    first = caller.create(type="MANUAL", target={"handler": "step"}, payload={"adds": 1})
    second, last = (
        caller.create(
            type="AFTER", after=[{"job": before}], payload={"adds": 1},
            target={"pool": pool, "handler": "step"},
        )
        for before, pool in ((first, "lambda"), (first, "default"))
    )  # fmt: skip
    caller.call("POST", f"/v1/jobs/{first}/run", {})

    scripts = [run for job in one_off for run in caller.succeeded(job)]
    scripts += caller.succeeded(recurring, TIMES)
    caller.succeeded(called)
    for job in (first, second, last):
        caller.succeeded(job)

    assert sorted(marks.read_text().split()) == sorted(run["executionId"] for run in scripts)
    assert [json_of(one) is not None for one in server.received("/strict")] == [True]
    report = httpx2.get(f"{strict.info.aws_endpoint}/_strict").json()
    acted = {rule for rule, operations in report["acted"].items() if operations}
    assert acted >= {"latency", "faults", "resets", "lag", "throughput"}, json.dumps(report)


def test_a_job_outlives_a_restart_and_runs(strict: Stack, outliving: str) -> None:
    with strict.api() as api:
        [run] = Caller(api).succeeded(outliving)
        # The emulator restarts its streams empty; the overview reads them from their start.
        run_id = run["executionId"]
        until(lambda: _lists(api, run_id), "the run in the list of all jobs' runs", within=LONG)
    assert run["stdout"] == "still here\n"


def test_each_run_of_a_flow_takes_effect_once_behind_the_limits(
    flows: dict[str, Iterator[None]],
) -> None:
    """One test: files of many tests begin first, and after a restart the emulator has no logs,
    which other tests read.
    """
    failed: dict[str, str] = {}
    for name, flow in flows.items():
        try:
            assert [*flow] == []
        except (AssertionError, pytest.fail.Exception) as error:
            failed[name] = str(error)
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())
