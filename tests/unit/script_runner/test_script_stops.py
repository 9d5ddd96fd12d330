"""Scripts that are stopped: by their timeout, by a verdict, or with their supervisor."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from nextfire.domain.ports.scripts import Directive, ScriptExit
from tests.supervisors import Watch
from tests.unit.script_runner.conftest import Runner
from tests.unit.script_runner.scripts import BY_THEN, ENDLESS, FORKING


def after(seconds: float, verdict: Directive) -> Callable[[], Directive]:
    start = time.monotonic()
    return lambda: verdict if time.monotonic() - start > seconds else Directive.CONTINUE


def test_timeout_ends_the_script_by_sigterm(run: Runner) -> None:
    source = """
        import signal, sys, time
        def stop(*_):
            print("tidied")
            sys.exit(5)
        signal.signal(signal.SIGTERM, stop)
        time.sleep(60)
    """
    started = time.monotonic()
    end = run(source, timeout=BY_THEN, grace=10)

    assert end == ScriptExit(5, "tidied\n", "", timed_out=True)
    assert time.monotonic() - started >= BY_THEN


def test_timeout_kills_the_group_when_its_grace_is_over(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, timeout=BY_THEN, grace=0.4)
    took = time.monotonic() - started

    assert (end.timed_out, end.stopped, end.exit_code) == (
        True,
        Directive.CONTINUE,
        -signal.SIGKILL,
    )
    assert took >= BY_THEN + 0.4
    assert len(end.stdout.split()) == 2
    assert run.living() == []


@pytest.mark.parametrize("verdict", [Directive.CANCEL, Directive.HAND_BACK])
def test_verdict_ends_the_script_by_sigterm(run: Runner, verdict: Directive) -> None:
    source = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + ENDLESS
    end = run(source, ask=after(BY_THEN, verdict), grace=10)

    assert end == ScriptExit(7, "", "", stopped=verdict)


def test_verdict_is_enforced_when_its_grace_is_over(run: Runner) -> None:
    end = run(FORKING + ENDLESS, ask=after(BY_THEN, Directive.CANCEL))

    assert (end.stopped, end.timed_out, end.exit_code) == (Directive.CANCEL, False, -signal.SIGKILL)
    assert run.living() == []


def test_lost_lease_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, ask=after(BY_THEN, Directive.LEASE_LOST), grace=60)

    assert (end.stopped, end.exit_code) == (Directive.LEASE_LOST, -signal.SIGKILL)
    assert time.monotonic() - started < 30
    assert run.living() == []


def test_lease_lost_within_the_grace_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(
        FORKING + ENDLESS, timeout=BY_THEN, ask=after(BY_THEN + 0.5, Directive.LEASE_LOST), grace=60
    )

    assert (end.timed_out, end.stopped) == (True, Directive.LEASE_LOST)
    assert time.monotonic() - started < 30


def test_first_cause_is_reported(run: Runner) -> None:
    end = run(FORKING + ENDLESS, timeout=BY_THEN, ask=after(BY_THEN + 2, Directive.CANCEL), grace=4)

    assert (end.timed_out, end.stopped) == (True, Directive.CONTINUE)


def test_error_of_the_supervisor_leaves_no_process(run: Runner) -> None:
    watch = Watch()

    def ask() -> Directive:
        if watch.printed["stdout"]:
            raise LookupError("supervisor")
        return Directive.CONTINUE

    watch.ask = ask
    with pytest.raises(LookupError, match="supervisor"):
        run(FORKING + ENDLESS, watch=watch)
    assert len(watch.printed["stdout"].split()) == 2
    assert run.living() == []


def test_supervisor_is_asked_several_times_a_second_and_waiting_is_cheap(run: Runner) -> None:
    asked: list[float] = []

    def ask() -> Directive:
        asked.append(time.monotonic())
        return Directive.CONTINUE

    cpu = time.thread_time()
    run("import time; time.sleep(1.5)", ask=ask)

    assert 4 <= len(asked) <= 8
    assert time.thread_time() - cpu < 0.1


def test_sigterm_arrives_though_the_worker_blocks_it(run: Runner) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        end = run(ENDLESS, timeout=0.4, grace=30)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert end.exit_code == -signal.SIGTERM
