"""Scripts that attack their host, their limits or the process that watches them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ScriptLimits
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive
from tests.supervisors import Watch
from tests.unit.script_runner.conftest import (
    AS_ROOT,
    CAP,
    WITHOUT_NAMESPACES,
    Runner,
    only_others,
    only_root,
    processes_in,
)
from tests.unit.script_runner.scripts import DAEMON, FORKING


@only_root
def test_processes_in_namespaces_of_a_script_end_with_it(run: Runner, folder: Path) -> None:
    source = """
        import ctypes, os, time
        users_and_processes = 0x10000000 | 0x20000000
        if ctypes.CDLL(None).unshare(users_and_processes) or os.fork():
            time.sleep(0.5)
            os._exit(0)
        print("pid in the namespace:", os.getpid(), flush=True)
        if os.fork() == 0:
            os.setsid()
        time.sleep(60)
    """
    end = run(source)

    assert end.exit_code == 0
    assert end.stdout in {"pid in the namespace: 1\n", ""}  # some machines do not allow this
    assert processes_in(folder) == []


BOMB = """
import os, time
first, made = os.getpid(), 0
while True:
    try:
        while made < 2000:
            pid = os.fork()
            made += 1
            if not pid and made % 2:
                os.setsid()
    except OSError:
        time.sleep(0.01)
    if made >= 2000 or os.getpid() == first and time.process_time() > 0.2:
        END
"""
"""Each process forks up to 2,000 others, half of them in new sessions."""


@pytest.mark.parametrize("ending", ["time.sleep(60)", "os._exit(0)"])
def test_fork_bomb_is_bounded_and_ends(run: Runner, folder: Path, ending: str) -> None:
    source = BOMB.replace("END", ending)
    limits = ScriptLimits(processes=100)
    most = 0

    def ask() -> Directive:
        nonlocal most
        most = max(most, len(processes_in(folder)))
        return Directive.CONTINUE

    end = run(source, limits=limits, timeout=1.5, ask=ask)

    assert end.timed_out or end.exit_code == 0
    # The user's tasks are added to the limit; some of them may have ended since.
    assert 10 < most <= (100 if AS_ROOT else 110)
    assert run("print('next')").stdout == "next\n"


def test_memory_is_bounded(run: Runner) -> None:
    source = """
        try:
            hog = bytearray(4 << 30)
        except MemoryError:
            print("refused")
    """
    assert run(source, limits=ScriptLimits(memory_bytes=256 << 20)).stdout == "refused\n"


@pytest.mark.skipif(WITHOUT_NAMESPACES, reason="/proc is the host's")
def test_script_stays_the_first_that_the_kernel_ends_if_memory_is_short(run: Runner) -> None:
    source = """
        import subprocess, sys
        lower = "open('/proc/self/oom_score_adj', 'w').write('0')"
        subprocess.run([sys.executable, "-c", lower], stderr=subprocess.DEVNULL)
        try:
            exec(lower)
        except OSError as error:
            print(error.strerror)
        print(open("/proc/self/oom_score_adj").read())
    """
    assert run(source).stdout == "Read-only file system\n1000\n\n"


def test_files_are_bounded(run: Runner) -> None:
    source = """
        try:
            with open("large", "wb") as file:
                file.write(bytes(3 << 20))
        except OSError as error:
            print(error.strerror)
    """
    assert run(source, limits=ScriptLimits(file_bytes=1 << 20)).stdout == "File too large\n"


def test_large_output_is_reported_whole_and_kept_in_part(run: Runner) -> None:
    reported = 0

    class Count(Watch):
        def output(self, stream: Stream, data: bytes) -> None:
            nonlocal reported
            assert stream == "stdout"
            reported += len(data)

    size = 200_000_000
    end = run(f"import sys; sys.stdout.write('x' * {size})", watch=Count(), timeout=60)

    assert reported == size
    assert f"[{size - CAP} bytes cut]" in end.stdout


@only_others
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_script_that_attacks_its_keeper_gains_nothing(run: Runner, number: int) -> None:
    source = f"{FORKING}{DAEMON}os.kill(os.getppid(), {int(number)})\ntime.sleep(60)"
    watch = Watch()
    end = run(source, watch=watch, timeout=1.5)

    assert len(watch.printed["stdout"].split()) == 3
    assert run.living() == []
    if "Operation not permitted" in end.stderr:  # denied by Landlock
        assert end.exit_code == 1
    else:
        assert end.exit_code is None
        assert end.timed_out or end.error is not None


@only_root
def test_script_cannot_attack_its_keeper(run: Runner) -> None:
    source = """
        import os
        for pid in (os.getppid(), -1):
            try:
                os.kill(pid, 9)
            except OSError as error:
                print(type(error).__name__)
    """
    assert run(source).stdout.startswith("PermissionError\n")
