"""When scripts are forked, and by which launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.scripts import launchers, process_table
from nextfire.adapters.scripts.launchers import AGAIN_AFTER, LAUNCHERS, OFTEN, WINDOW, Launchers
from nextfire.adapters.scripts.launching import FAMILY, LauncherClient
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
from tests.eventually import eventually
from tests.supervisors import Watch


class Together:
    """Runs scripts of one tenant at the same time."""

    def __init__(self) -> None:
        self._runner = ProcessScriptRunner()
        self.launchers = self._runner._sandboxes.launchers  # noqa: SLF001

    def __call__(
        self, *sources: str, meanwhile: Callable[[], None] = lambda: None
    ) -> list[ScriptExit]:
        with ThreadPoolExecutor(len(sources)) as pool:
            running = [pool.submit(self._run, source) for source in sources]
            meanwhile()
            return [each.result() for each in running]

    def _run(self, source: str) -> ScriptExit:
        call = ScriptCall("a.py", source.encode(), "{}", timedelta(seconds=20), "acme")
        return self._runner.run(call, Watch())


def close(it: Launchers) -> None:
    """End all launchers, and reap them."""
    ending: list[LauncherClient] = [it.executing, *it._retired]  # noqa: SLF001
    ending += [each.launcher for each in it._tenants.values() if each.launcher]  # noqa: SLF001
    for each in ending:
        each.close()
        each._process.wait(20)  # noqa: SLF001


Fork = Callable[[str], int | None]
"""Starts a script of a tenant. Returns the pid of the launcher that forks it, or None."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forking(clock: Clock) -> Iterator[Launchers]:
    it = Launchers({}, clock=clock)
    it.fork_with("/usr/bin/python3", {})
    yield it
    close(it)


@pytest.fixture
def fork(forking: Launchers) -> Fork:
    return lambda tenant: forking.launch(pid, forked_for=tenant)


def pid(launcher: LauncherClient) -> int | None:
    """The process of a launcher that forks; None for the one that executes."""
    return launcher._process.pid if launcher.forks else None  # noqa: SLF001


def often(fork: Fork, tenant: str) -> int | None:
    """The launcher of the last of several scripts."""
    return [fork(tenant) for _ in range(OFTEN)][-1]


def has_exited(launcher: int) -> bool:
    return all(
        pid != launcher or fields[0] in b"ZX" for pid, _, fields in process_table.processes()
    )


def test_the_first_scripts_are_executed(fork: Fork) -> None:
    assert [fork("acme") for _ in range(OFTEN - 1)] == [None] * (OFTEN - 1)
    assert fork("acme") is not None


def test_scripts_that_start_rarely_are_executed(fork: Fork, clock: Clock) -> None:
    for _ in range(3 * OFTEN):
        assert fork("acme") is None
        clock.now += WINDOW / (OFTEN - 2)


def test_without_an_interpreter_all_scripts_are_executed(clock: Clock) -> None:
    it = Launchers({}, clock=clock)
    assert [it.launch(pid, forked_for="acme") for _ in range(2 * OFTEN)] == [None] * (2 * OFTEN)
    close(it)


def test_no_two_tenants_share_a_launcher(fork: Fork) -> None:
    assert often(fork, "acme") not in {often(fork, "other"), None}


def test_a_launcher_retires_after_its_scripts(fork: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "SCRIPTS", 3)
    first = often(fork, "acme")
    assert first is not None
    assert [fork("acme"), fork("acme")] == [first, first]
    assert fork("acme") not in {first, None}
    assert eventually(lambda: has_exited(first))


def test_an_idle_launcher_retires_at_the_next_start(fork: Fork, clock: Clock) -> None:
    idle = often(fork, "acme")
    assert idle is not None
    clock.now += WINDOW / 2
    fork("other")
    assert not has_exited(idle)
    clock.now += WINDOW
    fork("other")
    assert eventually(lambda: has_exited(idle))
    assert fork("acme") is None


def test_the_number_of_launchers_is_bounded(fork: Fork, clock: Clock) -> None:
    assert None not in [often(fork, f"tenant {number}") for number in range(LAUNCHERS)]
    assert often(fork, "one more") is None
    clock.now += WINDOW + 1
    assert eventually(lambda: often(fork, "one more") is not None)  # once the idle have exited


def test_a_launcher_that_cannot_start_does_not_fail_the_run(
    forking: Launchers, fork: Fork, caplog: pytest.LogCaptureFixture
) -> None:
    forking.fork_with("/nowhere/python3", {})
    assert often(fork, "acme") is None
    assert "executing scripts: a launcher cannot be started" in caplog.text


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Together]:
    monkeypatch.setattr(launchers, "OFTEN", 1)
    it = Together()
    yield it
    close(it.launchers)


def test_python_that_does_not_start_as_a_launcher_executes_scripts_for_a_while(
    forking: Launchers,
    fork: Fork,
    clock: Clock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    forking.fork_with(str(broken), {})

    assert often(fork, "acme") is None
    assert "their Python does not start as a launcher" in caplog.text
    assert often(fork, "other") is None
    assert caplog.text.count("does not start") == 1
    forking.fork_with("/usr/bin/python3", {})
    clock.now += AGAIN_AFTER
    assert often(fork, "acme") is not None


def test_a_launcher_that_hangs_holds_nobody_up(fork: Fork, forking: Launchers) -> None:
    hanging = often(fork, "acme")
    assert hanging is not None
    os.kill(hanging, signal.SIGSTOP)
    try:

        def fill(launcher: LauncherClient) -> bool:
            if launcher.forks:
                while True:  # until the socket is full
                    launcher._send(b"", [0])  # noqa: SLF001
            return launcher.forks

        assert forking.launch(fill, forked_for="acme") is False
        assert often(fork, "other") is not None
    finally:
        os.kill(hanging, signal.SIGKILL)


def test_where_scripts_see_its_start_a_launcher_starts_while_no_script_runs(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    it = Launchers({}, exposed=True, clock=clock)
    it.fork_with("/usr/bin/python3", {})

    def fork(tenant: str) -> int | None:
        return it.launch(pid, forked_for=tenant)

    monkeypatch.setattr(FAMILY, "programs", {object()})
    assert [fork("acme") for _ in range(2 * OFTEN)] == [None] * 2 * OFTEN
    monkeypatch.setattr(FAMILY, "programs", set())
    assert fork("acme") is not None
    close(it)


def test_retirement_kills_no_other_child_of_the_process(
    run: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "SCRIPTS", 1)
    other = Together()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        try:
            slow = "import time; time.sleep(1); print('done')"
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(other, slow)
                for _ in range(4):
                    assert [end.stdout for end in run("print(1)", "print(2)")] == ["1\n", "2\n"]
                assert [end.stdout for end in running.result()] == ["done\n"]
            assert child.poll() is None
        finally:
            child.kill()
    close(other.launchers)


def test_a_script_outlives_the_retirement_of_its_launcher(
    run: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "SCRIPTS", 1)
    slow = "import time; time.sleep(1); print('done')"

    ends = run(slow, "print(1)", "print(2)", slow)

    assert [end.stdout for end in ends] == ["done\n", "1\n", "2\n", "done\n"]


def test_the_death_of_a_launcher_costs_no_run(run: Together) -> None:
    source = "import time; time.sleep(1.5); print('done')"
    (first,) = run("print(1)")
    assert first.exit_code == 0

    def kill() -> None:
        time.sleep(0.7)
        (tenant,) = run.launchers._tenants.values()  # noqa: SLF001
        assert tenant.launcher is not None
        tenant.launcher._process.kill()  # noqa: SLF001
        time.sleep(0.3)

    ends = run(source, source, meanwhile=kill)
    (after,) = run("print(2)")

    assert [end.stdout for end in (*ends, after)] == ["done\n", "done\n", "2\n"]
