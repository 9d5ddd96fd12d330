"""Which signals end a local stack that a shell started in the background."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from nextfire_cli.local.processes import InterruptedBySignal, interrupts_deferred, interrupts_raised


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that the process ignores, as it may when it was started."""
    number: signal.Signals = request.param
    before = signal.signal(number, signal.SIG_IGN)
    yield number
    signal.signal(number, before)


def test_an_interrupt_ends_what_a_shell_started_in_the_background(
    ignored: signal.Signals,
) -> None:
    reached = []

    def interrupted() -> None:
        with interrupts_raised():
            signal.raise_signal(ignored)
            reached.append(ignored)

    if ignored is signal.SIGHUP:  # by `nohup`
        interrupted()
    else:
        with pytest.raises((KeyboardInterrupt, InterruptedBySignal)):
            interrupted()
    assert reached == [signal.SIGHUP] * (ignored is signal.SIGHUP)
    assert signal.getsignal(ignored) is signal.SIG_IGN


def test_an_ignored_signal_is_not_deferred(ignored: signal.Signals) -> None:
    with interrupts_deferred():
        signal.raise_signal(ignored)
        assert signal.getsignal(ignored) is signal.SIG_IGN


def test_an_interrupt_is_deferred_to_the_end() -> None:
    steps = []

    def interrupted() -> None:
        with interrupts_raised(), interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("after the signal")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["after the signal"]
