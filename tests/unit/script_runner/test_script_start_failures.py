"""Interpreters, folders and environments with which no script can start."""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

from nextfire.adapters.scripts import sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.program_files import not_started
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall
from tests.supervisors import Watch
from tests.unit.script_runner.conftest import Runner, only_root


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/etc/passwd", "/", "/bin/false"])
def test_unusable_interpreter_is_refused(interpreter: str) -> None:
    with pytest.raises(ValueError, match="Set NEXTFIRE_INTERPRETER to Python"):
        ProcessScriptRunner(interpreter=interpreter)


@pytest.mark.parametrize(
    ("says", "message"), [("2 7 18", "its version: 2 7 18"), ("", "its version: no output")]
)
def test_interpreter_of_another_version_is_refused_with_what_it_printed(
    folder: Path, says: str, message: str
) -> None:
    other = folder / "other-python"
    other.write_text(f"#!/bin/sh\necho {says}\n")
    other.chmod(0o755)
    try:
        with pytest.raises(ValueError, match=message):
            ProcessScriptRunner(interpreter=str(other), temp_root=folder)
    finally:
        other.unlink()


@only_root
def test_interpreter_that_the_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python3"  # pytest does not let other users enter the folder
    python.symlink_to("/usr/bin/env")
    with pytest.raises(ValueError, match=r"as script users.*Permission denied.*never run as"):
        ProcessScriptRunner(interpreter=str(python))


@only_root
def test_interpreter_is_looked_for_where_the_users_can_reach_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python3"))
    monkeypatch.setattr("nextfire.adapters.scripts.interpreters._OTHERS", ())
    with pytest.raises(ValueError, match="never run as root"):
        ProcessScriptRunner(temp_root=folder)


@only_root
def test_working_folder_that_the_users_cannot_reach_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "probe_host", lambda _: HostFeatures(namespaces=False))
    with pytest.raises(ValueError, match="let all users enter"):
        ProcessScriptRunner(temp_root=tmp_path)


def test_working_folder_that_scripts_cannot_see_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each script would fail: it gets an empty folder in place of the one above."""
    monkeypatch.setattr(sandboxes, "probe_host", lambda _: HostFeatures())
    for path in ("/dev/shm", "/dev/shm/nextfire"):  # noqa: S108
        with pytest.raises(ValueError, match=r"its own /dev/shm.*TMPDIR=/var/tmp"):
            ProcessScriptRunner(temp_root=Path(path))


def test_impossible_environment_is_reported(run: Runner) -> None:
    end = run("print(1)", environment={"NEXTFIRE_JOB": "a\0b"})

    assert end.exit_code is None
    assert end.error is not None
    assert "could not be started" in end.error


def test_missing_working_folder_is_reported() -> None:
    path = Path(tempfile.mkdtemp())
    path.chmod(0o711)
    closed = ProcessScriptRunner(temp_root=path)
    path.rmdir()
    call = ScriptCall("a.py", b"print(1)", "", timedelta(seconds=9), "t")
    end = closed.run(call, Watch())

    assert end.exit_code is None
    assert end.error is not None
    assert f"{path} is writable" in end.error
    assert not end.unavailable, "each script fails there until the settings change"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ETOOMANYREFS])
@pytest.mark.parametrize("call", [(sandboxes, "LockedFolder"), (socket, "socketpair")])
def test_what_the_host_lacks_is_not_a_failure_of_the_script(
    run: Runner, monkeypatch: pytest.MonkeyPatch, call: tuple[ModuleType, str], number: int
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*call, fail)
    end = run("print(1)")

    assert end.error is not None
    assert os.strerror(number) in end.error
    assert "see what else uses them" in end.error
    assert end.unavailable


def test_processes_that_the_host_lacks_are_not_a_failure_of_the_script(tmp_path: Path) -> None:
    """The launcher, another process, reports the text of its error."""
    host: Any = SimpleNamespace(path=tmp_path, root=tmp_path)

    end = not_started(f"cannot fork a keeper: {BlockingIOError(errno.EAGAIN, 'busy')}", host, host)
    assert end.unavailable

    end = not_started(f"cannot execute it: {OSError(errno.E2BIG, 'too long')}", host, host)
    assert not end.unavailable
