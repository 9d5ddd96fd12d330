"""Launchers and keepers that are killed or hang: what ends with them, and what continues."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from nextfire.adapters.scripts import kept_program, process_table
from nextfire.adapters.scripts.launching import LauncherClient
from nextfire.adapters.scripts.script_streams import Pump
from nextfire.domain.ports.scripts import Directive
from tests.crons import LONG
from tests.eventually import eventually
from tests.unit.launcher.conftest import LAST, Start, Started, launcher_of, processes


def test_a_killed_launcher_affects_no_run_and_is_replaced(
    launching: LauncherClient, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    before = start("import sys; sys.stdin.read(); import time; time.sleep(1); print('on')")
    before.until(lambda kept: kept.started)
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001

    after = start("print('after')")

    after.until(lambda kept: kept.ended)
    before.until(lambda kept: kept.ended)
    assert (after.kept.exit_code, before.kept.exit_code) == (0, 0)
    assert before.read() == b"on\n"
    assert "starting a new one" in caplog.text


def test_launcher_that_hangs_costs_the_runs_that_it_was_asked_for(
    launching: LauncherClient, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_program, "_STARTED_WITHIN", 0.1)
    monkeypatch.setattr(kept_program, "_GONE_WITHIN", 0.1)
    before = start("import time; time.sleep(2); print('on')")
    before.until(lambda kept: kept.started)
    os.kill(launcher_of(launching), signal.SIGSTOP)
    it = start("print(1)")
    with Pump() as pump:
        pump.add(it.kept.sources[0])
        kept_program.supervise(it.kept, pump, timedelta(minutes=1), 1.0, lambda: Directive.CONTINUE)

    after = start("print('after')")
    after.until(lambda kept: kept.ended)
    before.until(lambda kept: kept.ended)

    assert (it.kept.ended, it.kept.started) == (True, False)
    assert (after.read(), before.read()) == (b"after\n", b"on\n")


@pytest.mark.parametrize("launcher_too", [False, True], ids=["keeper", "keeper and launcher"])
def test_all_processes_of_a_program_die_with_its_keeper(
    launching: LauncherClient,
    start: Start,
    launcher_too: bool,  # noqa: FBT001
) -> None:
    marker = f"marker_{os.urandom(8).hex()}"
    source = f"'{marker}'; import os, time; os.fork() or os.setsid(); print(1, flush=True); "
    it = start(source + "time.sleep(60)")
    it.until(lambda kept: kept.started)
    assert eventually(lambda: len(processes(marker)) == 2)
    if launcher_too:
        make_subreaper()
        os.kill(launcher_of(launching), signal.SIGKILL)
        launching._process.wait()  # noqa: SLF001
    assert it.kept.keeper is not None
    os.kill(it.kept.keeper, signal.SIGKILL)

    it.kept.end()

    assert it.kept.ended
    assert not it.kept.left_nothing
    assert processes(marker) == []


def test_a_failed_replacement_of_the_launcher_is_repeated_for_the_next_program(
    launching: LauncherClient, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001
    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr(subprocess, "Popen", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="no memory"):
                start("")

    it = start("print('after')")
    it.until(lambda kept: kept.ended)

    assert it.read() == b"after\n"


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOMEM, "no memory")


def test_programs_that_start_while_a_launcher_is_replaced_all_run(
    launching: LauncherClient, start: Start
) -> None:
    with ThreadPoolExecutor(8) as slots:
        for _ in range(10):
            os.kill(launcher_of(launching), signal.SIGKILL)
            launching._process.wait()  # noqa: SLF001
            begun = list(slots.map(start, ["print('on')"] * 8))
            for each in begun:
                each.until(lambda kept: kept.ended)
            assert [each.read() for each in begun] == [b"on\n"] * 8


@pytest.mark.parametrize("launcher_first", [False, True])
def test_all_processes_die_if_keeper_and_launcher_are_killed_at_once(
    launching: LauncherClient,
    start: Start,
    launcher_first: bool,  # noqa: FBT001
) -> None:
    make_subreaper()
    marker = f"marker_{os.urandom(8).hex()}"
    for n in range(LONG * 100 + 10):
        it = start(f"'{marker}{n}.'; import os, time; os.fork() or os.setsid(); time.sleep(60)")
        assert eventually(lambda n=n: len(processes(f"{marker}{n}.")) == 2)  # type: ignore[misc]
        it.until(lambda kept: kept.keeper is not None)
        assert it.kept.keeper is not None
        both = [it.kept.keeper, launcher_of(launching)]
        for pid in reversed(both) if launcher_first else both:
            os.kill(pid, signal.SIGKILL)

        it.kept.end()

        assert processes(f"{marker}{n}.") == []


def test_all_processes_of_a_program_die_with_its_keeper_after_a_change_of_launcher(
    launching: LauncherClient, start: Start
) -> None:
    """And the successor, a child of this process too, is not killed with it."""
    make_subreaper()
    marker = f"marker_{os.urandom(8).hex()}"
    it = start(f"'{marker}'; import os, time; os.fork() or os.setsid(); time.sleep(60)")
    it.until(lambda kept: kept.started)
    assert eventually(lambda: len(processes(marker)) == 2)
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001
    other = start("import time; time.sleep(1); print('on')")
    other.until(lambda kept: kept.started)
    assert it.kept.keeper is not None
    os.kill(it.kept.keeper, signal.SIGKILL)

    it.kept.end()

    assert processes(marker) == []
    other.until(lambda kept: kept.ended)
    assert other.read() == b"on\n"
    assert launching._process.poll() is None  # noqa: SLF001


def test_only_keepers_are_killed(start: Start) -> None:
    it = start(LAST)
    it.until(lambda kept: kept.started)
    keeper = it.kept.keeper

    def programs() -> list[int]:
        return [pid for pid in processes(LAST) if pid != keeper]

    # A moment after its start, the kernel shows no arguments of a program.
    it.until(lambda _: len(programs()) == 1)
    [program] = programs()
    with subprocess.Popen(["sleep", "60"]) as other:
        for pid in (other.pid, program, 1, 0, -1, 1 << 30):
            it.kept.keeper = pid
            it.kept.kill_keeper()

        process_table.family_of(program)
        assert other.poll() is None
        other.kill()

    it.kept.keeper = keeper
    it.kept.kill_keeper()
    it.until(lambda kept: kept.ended)


def make_subreaper() -> None:
    from nextfire.adapters.scripts.confinement import PR_SET_CHILD_SUBREAPER, prctl  # noqa: PLC0415

    prctl(PR_SET_CHILD_SUBREAPER, 1)


def test_launcher_ends_with_its_executor_and_so_do_the_programs() -> None:
    marker = f"marker_{os.urandom(8).hex()}"
    other = LauncherClient({})
    it = Started(other, f"'{marker}'; {LAST}")
    it.until(lambda kept: kept.started)
    launcher = other._process  # noqa: SLF001

    it.control.close()  # the same happens when this process dies
    os.close(it.output)
    other.close()

    assert launcher.wait(20) == 0
    assert processes(marker) == []
