"""Processes and files that a script leaves behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.scripts import folders, process_table, removal, script_users
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.adapters.scripts.script_users import ScriptUsers
from nextfire.domain.ports.scripts import Directive
from tests.eventually import eventually
from tests.unit.script_runner.conftest import AS_ROOT, BASE_UID, Runner, only_root, processes_in
from tests.unit.script_runner.scripts import DAEMON, FORKING


def descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def test_background_process_ends_with_the_script(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING)

    assert len(end.stdout.split()) == 2
    assert (end.exit_code, end.timed_out) == (0, False)
    assert run.living() == []
    assert time.monotonic() - started < 5


def test_crowd_in_the_background_has_ended_with_the_run(run: Runner) -> None:
    source = """
        import os, time
        for _ in range(30):
            pid = os.fork()
            if not pid:
                os.close(1)
                os.close(2)
                ballast = bytearray(b"x") * 10_000_000  # its death takes a while
                time.sleep(60)
            print(pid)
        time.sleep(0.7)
        os._exit(0)
    """
    end = run(source)

    assert len(end.stdout.split()) == 30
    assert run.living() == []


@pytest.mark.parametrize("end", ["", "os._exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(60)"])
def test_daemon_ends_with_the_script(run: Runner, end: str) -> None:
    pid = run(DAEMON + end, timeout=1).stdout

    assert pid.strip().isdigit()
    assert run.living() == []


@pytest.mark.parametrize(
    "mess",
    [
        "os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "os.chmod('.', 0)",
        "[(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]",
        "os.symlink('/etc', 'etc'); os.mkfifo('pipe')",
        "import shutil; shutil.rmtree('.', ignore_errors=True)",
    ],
    ids=["closed folders", "closed itself", "deep", "links", "gone"],
)
def test_working_folder_is_removed(run: Runner, mess: str) -> None:
    assert run(f"import os; {mess}").exit_code == 0  # the fixture checks the folder


def test_removal_of_deep_folders_takes_few_descriptors(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    highest = 0
    really = os.open

    def spy(*arguments: Any, **options: Any) -> int:
        nonlocal highest
        opened = really(*arguments, **options)
        highest = max(highest, opened)
        return opened

    lowest = os.open("/", os.O_RDONLY)
    os.close(lowest)
    monkeypatch.setattr(os, "open", spy)
    run("import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(99)]")

    assert highest < lowest + 40


def test_slow_removal_does_not_delay_the_result(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pass")  # the first run may search for an interpreter in its own folders
    proceed = threading.Event()
    really = removal.remove

    def slow(path: Path) -> None:
        assert proceed.wait(30)
        really(path)

    monkeypatch.setattr("nextfire.adapters.scripts.folders.remove", slow)
    monkeypatch.setattr(folders, "_WAIT_AT_MOST", 0.05)
    tell = "import os; print(os.getuid(), os.getcwd())"
    removals: list[threading.Thread] = []
    earlier_threads = {*threading.enumerate()}  # removals of earlier tests may still run
    try:
        with ThreadPoolExecutor(1) as pool:
            runs = [pool.submit(run, tell) for _ in range(2)]
            ends = [end.result(timeout=20).stdout.split() for end in runs]
        begun = {*threading.enumerate()} - earlier_threads
        removals += [thread for thread in begun if thread.name == "removal"]
        monkeypatch.setattr("nextfire.adapters.scripts.folders.remove", really)
        ProcessScriptRunner(temp_root=folder)  # it sweeps old folders
        still_there = [Path(where).exists() for _, where in ends]
    finally:
        proceed.set()
        for thread in removals:
            thread.join()

    assert still_there == [True, True]
    assert len({user for user, _ in ends}) == (2 if AS_ROOT else 1)
    assert [thread.daemon for thread in removals] == [False, False]


@only_root
def test_user_that_cannot_be_looked_at_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    users = ScriptUsers(BASE_UID + 2000)
    before = descriptors()
    with monkeypatch.context() as broken:
        broken.setattr(
            process_table, "processes", lambda: (_ for _ in ()).throw(OSError("no more files"))
        )
        with pytest.raises(OSError, match="no more files"):
            users.take()

    assert descriptors() == before
    user = users.take()
    users.give_back(user, alone=False)
    assert user.number == BASE_UID + 2000


@only_root
def test_a_machine_without_a_free_user_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with eight workers of 64 slots on one machine."""
    monkeypatch.setattr(script_users, "RESERVED_UIDS", 0)
    users = ScriptUsers(BASE_UID + 2000)
    with pytest.raises(OSError, match="no user from") as raised:
        users.take()
    assert raised.value.errno == errno.EAGAIN


def test_nothing_stays_open(run: Runner) -> None:
    run("print(1)")
    before = descriptors()
    run("print(1)")
    run("print(1)", environment={"A": "a\0b"})

    assert descriptors() == before


WORKER = """
import sys
from datetime import timedelta
from pathlib import Path
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptCall

class Watch:
    def ask(self):
        return Directive.CONTINUE
    def output(self, stream, data):
        print(data.decode(), end="", flush=True)

source = sys.stdin.buffer.read()
call = ScriptCall("script.py", source, "{}", timedelta(minutes=1), "acme")
ProcessScriptRunner(temp_root=Path(sys.argv[1])).run(call, Watch())
"""


@pytest.mark.usefixtures("run")
def test_script_and_all_it_started_die_with_their_worker(folder: Path) -> None:
    source = FORKING + DAEMON
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, folder],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(source + "time.sleep(60)")
        worker.stdin.close()
        pids = [pid for _ in range(2) for pid in worker.stdout.readline().split()]
        assert len(pids) == 3
        assert len(processes_in(folder)) == 3
        worker.kill()

    assert eventually(lambda: processes_in(folder) == [])
    assert len(list(folder.iterdir())) == 1

    def swept() -> bool:  # succeeds after the keeper has ended too
        ProcessScriptRunner(temp_root=folder)
        return list(folder.iterdir()) == []

    assert eventually(swept)


def test_folder_in_use_is_not_swept(run: Runner, folder: Path) -> None:
    def ask() -> Directive:
        ProcessScriptRunner(temp_root=folder)
        return Directive.CONTINUE

    end = run("import os, time; time.sleep(0.5); print(os.path.exists(__file__))", ask=ask)

    assert end.stdout == "True\n"
