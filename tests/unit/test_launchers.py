"""When scripts are forked, and by which launcher."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from nextfire.adapters.scripts import launchers, process_table
from nextfire.adapters.scripts.launchers import OFTEN, TENANTS, WINDOW, Launchers
from nextfire.adapters.scripts.launching import LauncherClient
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
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
    for tenant in it._tenants.values():  # noqa: SLF001
        if tenant.launcher is not None:
            tenant.launcher.close()
    it.executing.close()
    for each in it._family.launchers:  # noqa: SLF001
        each.wait(20)


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
    it = Launchers({}, clock)
    it.fork_with("/usr/bin/python3", {})
    yield it
    close(it)


@pytest.fixture
def fork(forking: Launchers) -> Fork:
    return lambda tenant: forking.fork(tenant, pid)


def pid(launcher: LauncherClient) -> int:
    return launcher._process.pid  # noqa: SLF001


def often(fork: Fork, tenant: str) -> int | None:
    """The launcher of the last of several scripts."""
    return [fork(tenant) for _ in range(OFTEN)][-1]


def has_exited(launcher: int) -> bool:
    return all(
        pid != launcher or fields[0] in b"ZX" for pid, _, fields in process_table.processes()
    )


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_the_first_scripts_are_executed(fork: Fork) -> None:
    assert [fork("acme") for _ in range(OFTEN - 1)] == [None] * (OFTEN - 1)
    assert fork("acme") is not None


def test_scripts_that_start_rarely_are_executed(fork: Fork, clock: Clock) -> None:
    for _ in range(3 * OFTEN):
        assert fork("acme") is None
        clock.now += WINDOW / (OFTEN - 2)


def test_without_an_interpreter_all_scripts_are_executed(clock: Clock) -> None:
    it = Launchers({}, clock)
    assert [it.fork("acme", pid) for _ in range(2 * OFTEN)] == [None] * (2 * OFTEN)
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
    assert None not in [often(fork, f"tenant {number}") for number in range(TENANTS)]
    assert often(fork, "one more") is None
    clock.now += WINDOW + 1
    assert often(fork, "one more") is not None


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
        os.kill(pid(tenant.launcher), signal.SIGKILL)
        time.sleep(0.3)

    ends = run(source, source, meanwhile=kill)
    (after,) = run("print(2)")

    assert [end.stdout for end in (*ends, after)] == ["done\n", "done\n", "2\n"]
