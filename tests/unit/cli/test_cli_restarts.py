"""Workers of the emulated stack that die are started again; what a killed one loses is reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions.embedded.restarts import MOST_DEATHS
from nextfire.client.folder import write_private
from nextfire_cli.local.emulator_notes import left_behind
from nextfire_cli.local.processes import ProcessRecord, started
from nextfire_cli.local.restart_policy import RestartPolicy
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo

LASTING = (sys.executable, "-c", "import time; time.sleep(60)")


def record(name: str, pid: int = 4711, since: str = "1") -> ProcessRecord:
    return ProcessRecord(name=name, pid=pid, started=since)


def test_a_worker_that_died_is_started_again_after_a_growing_pause() -> None:
    policy = RestartPolicy()

    [first] = policy.restarts([(record("worker-my-pool-1"), -signal.SIGKILL)], 10.0) or []
    [second] = policy.restarts([(record("worker-my-pool-1"), 3)], 11.0) or []
    [other] = policy.restarts([(record("worker-default-0"), None)], 11.0) or []

    assert (first.pool, first.number, first.pause) == ("my-pool", 1, 0.1)
    assert (first.cause, first.deaths) == ("killed by SIGKILL", 1)
    assert (second.cause, second.deaths, second.pause) == ("exited with code 3", 2, 0.2)
    assert (other.cause, other.deaths, other.pause) == ("ended", 1, 0.1)


def test_the_stack_ends_with_its_emulator_or_with_a_worker_that_keeps_dying() -> None:
    assert RestartPolicy().restarts([(record("ministack"), 1)], 1.0) is None
    policy = RestartPolicy()
    found = [policy.restarts([(record("worker-a-0"), 1)], float(n)) for n in range(MOST_DEATHS)]

    assert [each is None for each in found] == [False] * (MOST_DEATHS - 1) + [True]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStack]:
    """A stack whose workers sleep."""
    (tmp_path / ".nextfire").mkdir(mode=0o700)
    stack = LocalStack(tmp_path)
    processes = stack._processes  # noqa: SLF001
    spawned: list[subprocess.Popen[bytes]] = []

    def start(pool: str, number: int, _outputs: object) -> None:
        name, log = f"worker-{pool}-{number}", tmp_path / "log"
        spawned.append(processes.spawn(name, LASTING, environment={}, cwd=tmp_path, log=log))

    monkeypatch.setattr(stack, "_start_worker", start)
    monkeypatch.setattr(stack._deployment, "outputs", dict)  # noqa: SLF001
    start("default", 0, {})
    start("default", 1, {})
    yield stack
    for process in spawned:
        process.kill()
        process.wait()


def test_a_stack_is_described_with_its_restarted_worker(stack: LocalStack, tmp_path: Path) -> None:
    processes = stack._processes  # noqa: SLF001
    key = tmp_path / ".nextfire" / "api-key"
    write_private(key, "key")
    local = "http://127.0.0.1:1"
    names = ("scripts_bucket", "outputs_bucket", "event_bus", "account_id", "region")
    info: dict[str, Any] = dict.fromkeys((*names, "access_key", "secret_key"), "x")
    info |= {"endpoint": local, "aws_endpoint": local, "key_file": str(key)}
    info |= {name: {} for name in ("tables", "pools", "functions", "roles")}
    info["processes"] = [each.model_dump() for each in processes.recorded()]
    write_private(tmp_path / ".nextfire" / "stack.json", json.dumps(info))
    lost, kept = processes.recorded()
    os.kill(lost.pid, signal.SIGKILL)
    while started(lost.pid) == lost.started:
        time.sleep(0.01)
    said: list[str] = []
    assert stack.status() is None

    assert stack.restart_workers(said.append)

    assert said == ["worker-default-0: killed by SIGKILL; it is started again"]
    found = stack.status()
    assert found is not None
    assert [each.name for each in found.processes] == ["worker-default-1", "worker-default-0"]
    assert kept in found.processes
    assert found.parts()["worker-default-0"] == {
        "pid": spawned(found, "worker-default-0"),
        "deaths": 1,
        "lastDeath": "killed by SIGKILL",
    }
    assert found.parts()["worker-default-1"]["deaths"] == 0
    assert stack.deaths() == []


def spawned(info: StackInfo, name: str) -> int:
    return next(each.pid for each in info.processes if each.name == name)


def test_a_start_after_the_emulator_died_says_so_once(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = stack._processes  # noqa: SLF001
    dies = (sys.executable, "-c", "raise SystemExit(1)")
    log = tmp_path / "log"
    emulator = processes.spawn("ministack", dies, environment={}, cwd=tmp_path, log=log)
    emulator.wait()
    monkeypatch.setattr(stack._emulator, "choose_port", _stop)  # noqa: SLF001
    said: list[str] = []

    stack.stop()
    for _ in range(2):
        with pytest.raises(_StoppedError):
            stack._start(said.append, 0, ())  # noqa: SLF001

    assert len([line for line in said if "was killed before it saved anything" in line]) == 1


class _StoppedError(Exception):
    pass


def _stop() -> None:
    raise _StoppedError


def test_a_start_says_what_was_lost(tmp_path: Path) -> None:
    dead, alive = record("ministack"), record("ministack", os.getpid(), str(started(os.getpid())))

    assert "before it saved anything" in left_behind(tmp_path, [dead])
    (tmp_path / "state.json").touch()
    os.utime(tmp_path / "state.json", (1_780_000_000, 1_780_000_000))
    assert "last clean stop, 2026-05-28 20:26 UTC; jobs" in left_behind(tmp_path, [dead])
    assert "nothing is lost" in left_behind(tmp_path, [alive])
