"""The supervisor of a worker: its parent process, as small and as idle as possible.

It starts the worker as its child, passes SIGTERM and SIGINT on, and ends with the worker's status.
A worker that dies (SIGKILL, out of memory, a crash) leaves the list of what it held, see
`WorkerJournal`. Then the supervisor

1. waits until no script of the dead worker lives: their keepers end them;
2. has what was held given back (`return_held`), by another child: the AWS adapters would make this
   process large;
3. starts another worker, unless the dead one lived for less than 10 s: then it ends, and its host
   decides.

If the supervisor dies first, the worker gets SIGTERM and hands its runs back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from nextfire.adapters.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    prctl,
)
from nextfire.adapters.process_table import kill_descendants
from nextfire.adapters.worker_journal import HeldMessage, WorkerJournal

_STOPS = (signal.SIGTERM, signal.SIGINT)
_WAITED_FOR = {*_STOPS, signal.SIGCHLD}
_BY_SIGNAL = 128
"""Added to a signal's number, this is the exit status of what it ended, as in a shell."""
# Seconds.
_ENDED_BY_KEEPERS = 5.0
_GONE_WITHIN = 10.0
_POLL = 0.02
_MIN_LIFETIME = 10.0
_PAUSE = 1.0


def main() -> int:
    """Supervise workers that serve the pool that the environment names. Returns the exit status.

    A child does not return: it raises `SystemExit`.
    """
    return Supervisor(_serve, _give_back).run()


def _serve(journal: WorkerJournal) -> None:
    from functions.worker.worker import main as serve  # noqa: PLC0415 — not in the supervisor

    serve(journal)


def _give_back(held: Sequence[HeldMessage], died_at: float) -> None:
    from functions.worker.return_held import return_held  # noqa: PLC0415 — as above

    return_held(held, died_at)


class Supervisor:
    """Runs *serve* in a child. Where that dies, *give_back* runs in another, with what the first
    held and when it died (`time.monotonic`).
    """

    def __init__(
        self,
        serve: Callable[[WorkerJournal], None],
        give_back: Callable[[Sequence[HeldMessage], float], None],
    ) -> None:
        self._serve = serve
        self._give_back = give_back
        self._stopping = False

    def run(self) -> int:
        """Supervise until the worker ends, or until it dies young or after SIGTERM or SIGINT.
        Returns the exit status.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        _protect()
        while True:
            started_at = time.monotonic()
            status = self._run_worker()
            lived = time.monotonic() - started_at
            if status >= 0:
                return status
            if self._stopping or lived < _MIN_LIFETIME or self._is_stopped_within(_PAUSE):
                return _BY_SIGNAL - status
            _log("INFO", "worker is started again")

    def _run_worker(self) -> int:
        """A worker's life, and what follows from its death. Returns its exit status; negative: the
        signal that killed it.
        """
        journal = WorkerJournal()
        worker = _fork(lambda: self._serve(journal), ends_with_us=True)
        status = self._await(worker, pass_on=True)
        died_at, held = time.monotonic(), journal.held()
        journal.close()
        if status < 0 or held:
            _log("ERROR", "worker died", worker=worker, status=status, held=len(held))
            _await_scripts_end()
        if held:
            child = _fork(lambda: self._give_back(held, died_at), ends_with_us=False)
            self._await(child, pass_on=False)
        return status

    def _await(self, child: int, *, pass_on: bool) -> int:
        """The exit status of *child*. Signals to stop are passed on to it, or noted only."""
        while True:
            number = signal.sigwait(_WAITED_FOR)
            if number in _STOPS:
                self._stopping = True
                if pass_on:
                    os.kill(child, number)  # not reaped yet: the number is still its own
            status, _ = _reap(child)
            if status is not None:
                return status

    def _is_stopped_within(self, seconds: float) -> bool:
        return signal.sigtimedwait(_STOPS, seconds) is not None


def _protect() -> None:
    """Keep scripts of the same user from reading this process's environment and memory, also those
    of the worker from its first moment on; and have orphans of a dead worker come to us.
    """
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        with suppress(OSError):
            prctl(option, value)


def _fork(do: Callable[[], None], *, ends_with_us: bool) -> int:
    """The process id of a child that does *do*. In the child this raises `SystemExit`."""
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.getpid()
    child = os.fork()
    if child:
        return child
    if ends_with_us:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(_BY_SIGNAL + signal.SIGTERM))
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            sys.exit(_BY_SIGNAL + signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
    do()
    sys.exit(0)


def _reap(child: int) -> tuple[int | None, bool]:
    """Reap what is dead. The exit status of *child*, if it is among them; and whether any child is
    left.
    """
    status = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == child:
            status = os.waitstatus_to_exitcode(raw)


def _await_scripts_end() -> None:
    """Return when nothing that the worker started lives. Each script's keeper ends it as soon as
    the worker is gone; what is left after 5 s is killed.
    """
    begun_at = time.monotonic()
    while _reap(-1)[1]:
        waited = time.monotonic() - begun_at
        if waited > _GONE_WITHIN:
            _log("ERROR", "processes of scripts do not end")  # SIGKILL is pending for all
            return
        if waited > _ENDED_BY_KEEPERS:
            kill_descendants()
        time.sleep(_POLL)


def _log(level: str, message: str, **fields: object) -> None:
    """One line, as the worker's logger writes them: that one is too large for this process."""
    line = {"level": level, "message": message, "service": "worker", **fields}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
