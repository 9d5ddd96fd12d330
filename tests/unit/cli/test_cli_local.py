"""`up` reports processes that ended, and `down` asks before it deletes data."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nextfire_cli import confirmation, main
from nextfire_cli.local import processes
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.stack import LocalStack

UNLUCKY = "print('no luck today'); raise SystemExit(3)"
LASTING = "import time; time.sleep(60)"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "app.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


Spawn = Callable[[str, str], subprocess.Popen[bytes]]


@pytest.fixture
def spawn(checkout: Path) -> Iterator[Spawn]:
    """Starts a process of the stack of *checkout* from a name and a script."""
    state = checkout / ".nextfire"
    ours = Processes(state / "processes.json", folder=state / "tmp")

    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, script: str) -> subprocess.Popen[bytes]:
        process = ours.spawn(
            name,
            [sys.executable, "-c", script],
            environment={},
            cwd=checkout,
            log=state / "logs" / f"{name}.log",
        )
        started.append(process)
        return process

    (state / "logs").mkdir(parents=True)
    (state / "stack.json").touch()
    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_process_that_ended_by_itself_is_named_with_the_end_of_its_log(
    checkout: Path, spawn: Spawn
) -> None:
    spawn("worker-default-1", LASTING)
    spawn("worker-default-0", UNLUCKY).wait(20)

    [death] = LocalStack(checkout).deaths()

    log = checkout / ".nextfire" / "logs" / "worker-default-0.log"
    assert death == f"worker-default-0 has ended unexpectedly; see {log}:\nno luck today"


def test_process_that_ended_before_it_was_recorded_is_reported(
    checkout: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = processes.started

    def late(pid: int, **options: bool) -> str | None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return really(pid, **options)

    with monkeypatch.context() as patch:
        patch.setattr(processes, "started", late)
        spawn("worker-default-0", UNLUCKY)

    assert len(LocalStack(checkout).deaths()) == 1


def test_process_of_a_stack_that_was_stopped_is_not_reported(checkout: Path, spawn: Spawn) -> None:
    spawn("worker-default-0", UNLUCKY).wait(20)
    (checkout / ".nextfire" / "stack.json").unlink()  # the first step of `stop`

    assert LocalStack(checkout).deaths() == []


def down(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(main.app, ["down", *arguments], input=answer)


@pytest.fixture
def data(checkout: Path) -> Path:
    """A file of the local stack."""
    folder = checkout / ".nextfire" / "ministack"
    folder.mkdir(parents=True)
    (folder / "jobs").touch()
    return folder


@pytest.mark.parametrize(("answer", "kept"), [("n\n", True), ("y\n", False)])
def test_down_asks_in_a_terminal(
    data: Path, answer: str, *, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)

    result = down(answer=answer)

    assert "Delete all jobs, runs, scripts and logs" in result.stderr
    assert data.exists() is kept
    assert result.exit_code == int(kept)


def test_down_does_not_ask_with_yes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)

    result = down("--yes")

    assert (result.exit_code, data.exists()) == (0, False)


def test_down_names_yes_where_no_one_can_answer(data: Path) -> None:
    result = down(answer="y\n")

    assert (result.exit_code, data.exists()) == (1, True)
    assert "standard input is not a terminal" in result.stderr
    assert "add --yes" in result.stderr


def test_a_local_stack_gets_no_setting_of_the_user_but_the_python_of_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEXTFIRE_INTERPRETER", "/usr/bin/python3")
    for name in ("NEXTFIRE_API_KEY", "AWS_PROFILE", "CDK_DEFAULT_ACCOUNT"):
        monkeypatch.setenv(name, "of the user")

    inherited = inherited_environment()

    assert inherited["NEXTFIRE_INTERPRETER"] == "/usr/bin/python3"
    assert "of the user" not in inherited.values()
