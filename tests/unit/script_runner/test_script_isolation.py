"""What scripts can see of the executor, of each other and of the host."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.eventually import eventually
from tests.supervisors import Watch
from tests.unit.script_runner.conftest import BASE_UID, WITHOUT_NAMESPACES, Runner, only_root


def test_slots_do_not_disturb_each_other(run: Runner) -> None:
    def one(n: int) -> ScriptExit:
        return run(
            f"import sys, time; time.sleep({n} / 20); print(sys.stdin.read()); sys.exit({n})",
            payload=f"{n}",
        )

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(one, range(8)))

    assert ends == [ScriptExit(n, f"{n}\n", "") for n in range(8)]


SPY = """
import ctypes, os, sys
for pid in {os.getppid(), *map(int, sys.stdin.read().split())}:
    for attack in (
        lambda: open(f"/proc/{pid}/environ", "rb").read(),
        lambda: open(f"/proc/{pid}/mem", "rb").read(1),
        lambda: os.listdir(f"/proc/{pid}/fd"),
    ):
        try:
            print("could see", attack())
        except OSError as error:
            print(type(error).__name__)
    print(ctypes.CDLL(None).ptrace(16, pid, 0, 0))
"""


def test_executor_cannot_be_looked_into(run: Runner) -> None:
    tried = run(SPY, payload=f"{os.getpid()} {os.getppid()}").stdout.split()

    assert len(tried) >= 8
    assert {*tried} <= {"PermissionError", "FileNotFoundError", "-1"}


@only_root
def test_neighbours_cannot_be_looked_into(run: Runner) -> None:
    seen = threading.Event()
    watch = Watch(lambda: Directive.LEASE_LOST if seen.is_set() else Directive.CONTINUE)
    printed = watch.printed["stdout"]
    spy = """
        import os
        pid = {}
        for what in (f"/proc/{{pid}}/environ", f"/proc/{{pid}}/cwd", "{}", "{}/script.py"):
            try:
                print(os.listdir(what) if os.path.isdir(what) else open(what).read())
            except OSError as error:
                print(type(error).__name__)
        try:
            os.kill(pid, 0)
        except OSError as error:
            print(type(error).__name__)
    """
    with ThreadPoolExecutor(1) as pool:
        source = "import os, time; print(os.getpid(), os.getcwd()); time.sleep(60)"
        neighbour = pool.submit(run, source, watch=watch)
        try:
            assert eventually(lambda: printed.endswith(b"\n"))
            _, cwd = printed.decode().split()
            (pid,) = run.living()
            refusals = run(spy.format(pid, cwd, cwd)).stdout.split()
        finally:
            seen.set()
        assert neighbour.result().stopped is Directive.LEASE_LOST
    assert len(refusals) == 5
    assert {*refusals} <= {"PermissionError", "FileNotFoundError", "ProcessLookupError"}


@only_root
def test_script_is_nobody_known_and_can_become_nobody_else(run: Runner) -> None:
    source = """
        import os
        print(os.getresuid(), os.getresgid(), os.getgroups())
        for become in (os.setuid, os.setgid):
            try:
                become(0)
            except PermissionError:
                print("refused")
        print([line.split()[1] for line in open("/proc/self/status") if "NoNewPrivs" in line])
    """
    before = os.getgroups()
    os.setgroups([4242])  # executors may have supplementary groups
    try:
        ids, *rest = run(source).stdout.splitlines()
    finally:
        os.setgroups(before)
    uid = int(ids.partition(",")[0].strip("("))

    assert BASE_UID <= uid < BASE_UID + 1000
    assert ids == f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) []"
    assert rest == ["refused", "refused", "['1']"]


@only_root
def test_concurrent_scripts_of_two_executors_have_different_users(folder: Path) -> None:
    runners = [ProcessScriptRunner(temp_root=folder, environment={"A": str(n)}) for n in range(2)]
    call = ScriptCall(
        "a.py", b"import os, time; print(os.getuid()); time.sleep(1)", "", timedelta(seconds=9), "t"
    )
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda r: r.run(call, Watch()), runners * 2))

    assert len({end.stdout for end in ends}) == 4


@only_root
def test_files_that_a_user_leaves_in_shared_folders_are_removed(run: Runner) -> None:
    source = """
        import os, tempfile
        for folder in ("/tmp", "/dev/shm"):
            made = tempfile.mkdtemp(dir=folder)
            open(f"{made}/file", "w").close()
            os.symlink("/etc", f"{made}/link")
            print(made)
    """
    made = run(source).stdout.split()

    assert len(made) == 2
    assert [path for path in made if os.path.lexists(path)] == []
    assert Path("/etc/passwd").exists()


@only_root
@pytest.mark.skipif(WITHOUT_NAMESPACES, reason="the filter forbids all of it")
def test_shared_memory_that_a_user_leaves_is_removed(run: Runner) -> None:
    source = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        print(os.getuid())
        print(libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))
    """
    user, made = run(source).stdout.splitlines()

    assert "-1" not in made.split()
    left = [Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg")]
    assert [listing for listing in left if f" {user} " in listing] == []
