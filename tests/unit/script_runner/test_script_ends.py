"""Scripts that end by themselves."""

from __future__ import annotations

import signal

import pytest

from nextfire.domain.ports.scripts import ScriptExit
from tests.unit.script_runner.conftest import Runner


def test_exit_code_and_stderr(run: Runner) -> None:
    end = run("import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")

    assert end == ScriptExit(3, "out\n", "err")


def test_exception_is_reported_with_its_traceback(run: Runner) -> None:
    end = run("1 / 0", name="divide")

    assert end.exit_code == 1
    assert 'divide.py", line 1' in end.stderr
    assert "ZeroDivisionError" in end.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_script_killed_by_a_signal(run: Runner, number: signal.Signals) -> None:
    end = run(f"import os; print('so far'); os.kill(os.getpid(), {number})")

    assert end == ScriptExit(-number, "so far\n", "")


def test_payload_that_is_not_read_does_not_block(run: Runner) -> None:
    assert run("print('done')", payload="x" * 1_000_000).stdout == "done\n"


def test_large_payload_arrives_whole(run: Runner) -> None:
    end = run("import sys; print(len(sys.stdin.buffer.read()))", payload="ö" * 1_000_000)

    assert end.stdout == "2000000\n"


def test_closed_output_does_not_end_the_supervision(run: Runner) -> None:
    end = run("import os, sys, time; os.close(1); os.close(2); time.sleep(0.5); os._exit(4)")

    assert end == ScriptExit(4, "", "")


def test_exit_code_is_known_though_the_executor_ignores_its_children(run: Runner) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    try:
        end = run("import time; time.sleep(0.3); raise SystemExit(1)")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert (end.exit_code, end.error) == (1, None)
