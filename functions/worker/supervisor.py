"""The supervisor of a worker: its parent process, kept small and idle.

The supervisor starts the worker as its child, forwards SIGTERM and SIGINT, and exits with the
worker's status. A worker that dies (SIGKILL, out of memory, crash) leaves a journal of the messages
that it held, see `WorkerJournal`. Then the supervisor

1. waits until all scripts of the dead worker have ended: their keepers kill them;
2. hands the messages back (`return_held`) in another child: the AWS adapters would make this
   process large;
3. starts another worker. If the dead one lived for less than 10 s, if each run has a dedicated
   task (isolation by task), or on the embedded stack, which counts the deaths, the supervisor exits
   instead, and its host decides.

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
from functools import partial

from nextfire.adapters.scripts.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    prctl,
)
from nextfire.adapters.scripts.process_table import kill_descendants
from nextfire.adapters.worker.journal import HeldMessage, WorkerJournal

_STOPS = (signal.SIGTERM, signal.SIGINT)
_WAITED_FOR = {*_STOPS, signal.SIGCHLD}
_BY_SIGNAL = 128
"""Added to a signal number, the exit status of a process that the signal killed, as in a shell."""
# Seconds.
_ENDED_BY_KEEPERS = 5.0
_GONE_WITHIN = 10.0
_POLL = 0.02
_MIN_LIFETIME = 10.0
_PAUSE = 1.0


def main(*, restarts: bool = True, beat: Callable[[], None] | None = None) -> int:
    """Supervise workers of the pool in the environment variables. Returns the exit status.

    *restarts*: whether to start another worker after a death; otherwise the caller does. *beat*: a
    worker calls it each time its loop continues. In a child this function does not return: it
    raises `SystemExit`.
    """
    # `nextfire.settings` is too large for this process.
    isolation = os.environ.get("NEXTFIRE_ISOLATION")  # noqa: TID251
    restarts = restarts and isolation != "task"
    serve = _serve if beat is None else partial(_serve, beat=beat)
    return WorkerSupervisor(serve, _give_back, restarts=restarts).run()


def _serve(journal: WorkerJournal, beat: Callable[[], None] = lambda: None) -> None:
    from functions.worker.worker import main as serve  # noqa: PLC0415 — not in the supervisor

    serve(journal, beat)


def _give_back(held: Sequence[HeldMessage], died_at: float) -> None:
    from functions.worker.return_held import return_held  # noqa: PLC0415 — as above

    return_held(held, died_at)


class WorkerSupervisor:
    """Runs *serve* in a child. If that child dies, runs *give_back* in another one, with the
    messages that it held and the time of its death (`time.monotonic`). *restarts*: whether to run
    *serve* again then.
    """

    def __init__(
        self,
        serve: Callable[[WorkerJournal], None],
        give_back: Callable[[Sequence[HeldMessage], float], None],
        *,
        restarts: bool = True,
    ) -> None:
        self._serve = serve
        self._restarts = restarts
        self._give_back = give_back
        self._stopping = False

    def run(self) -> int:
        """Supervise until the worker exits, dies within 10 s of its start, dies after SIGTERM or
        SIGINT, or dies and is not restarted. Returns the exit status.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        _protect()
        while True:
            status, lived = self._run_worker()
            if status >= 0:
                return status
            final = self._stopping or not self._restarts or lived < _MIN_LIFETIME
            if final or self._is_stopped_within(_PAUSE):
                return _BY_SIGNAL - status
            _log("INFO", "worker restarted")

    def _run_worker(self) -> tuple[int, float]:
        """Run one worker and handle its death. Returns its exit status, negative for the signal
        that killed it, and how many seconds it lived.
        """
        started_at = time.monotonic()
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
        return status, died_at - started_at

    def _await(self, child: int, *, pass_on: bool) -> int:
        """Wait for *child* and return its exit status. *pass_on*: whether to forward stop signals
        to it; they are recorded in any case.
        """
        while True:
            number = signal.sigwait(_WAITED_FOR)
            if number in _STOPS:
                self._stopping = True
                if pass_on:
                    os.kill(child, number)  # not reaped yet, so the pid is still valid
            status, _ = _reap(child)
            if status is not None:
                return status

    def _is_stopped_within(self, seconds: float) -> bool:
        return signal.sigtimedwait(_STOPS, seconds) is not None


def _protect() -> None:
    """Hide the environment and memory of this process from scripts of the same user, and make it
    the subreaper that adopts orphans of a dead worker. The worker inherits the protection.
    """
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        with suppress(OSError):
            prctl(option, value)


def _fork(do: Callable[[], None], *, ends_with_us: bool) -> int:
    """Fork a child that calls *do*; return its pid. In the child this raises `SystemExit`."""
    for stream in (sys.stdout, sys.stderr):  # otherwise the child writes what they hold, too
        with suppress(OSError):
            stream.flush()
    supervisor = os.getpid()
    child = os.fork()
    if child:
        return child
    if ends_with_us:
        # Until the worker has its own handler. Not an exception: imports could swallow it.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(_BY_SIGNAL + signal.SIGTERM))
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            sys.exit(_BY_SIGNAL + signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
    do()
    sys.exit(0)


def _reap(child: int) -> tuple[int | None, bool]:
    """Reap dead children. Returns the exit status of *child* if it was reaped, and whether any
    child is left.
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
    """Wait until all processes that the worker started have ended. The keepers kill their scripts
    as soon as the worker is gone; processes that are left after 5 s are killed.
    """
    begun_at = time.monotonic()
    while _reap(-1)[1]:
        waited = time.monotonic() - begun_at
        if waited > _GONE_WITHIN:
            _log("ERROR", "processes of scripts do not exit")  # SIGKILL is pending for all
            return
        if waited > _ENDED_BY_KEEPERS:
            kill_descendants()
        time.sleep(_POLL)


def _log(level: str, message: str, **fields: object) -> None:
    """Write a line in the format of the worker's logger, which is too large for this process.

    A line that cannot be written, for example because the disk is full, is dropped.
    """
    line = {"level": level, "message": message, "service": "worker", **fields}
    with suppress(OSError):
        os.write(1, json.dumps(line).encode() + b"\n")
