"""What runs in the child before the user's script, and becomes it.

    python -I -S launcher.py PARENT REPORT [RLIMIT_NAME=NUMBER …] -- PROGRAM [ARGUMENT …]

PARENT is the process id of the runner; REPORT a descriptor on which it learns how far this came:
`STARTED` and then the end of the stream, or why not. Done here and not in a `preexec_fn`, which is
not safe beside threads. Standard library only, and little of it: what it imports delays every run
(pathlib alone by 6 ms).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

STARTED = b"+"
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
_SIGKILL = 9  # by number: the signal module imports enum, 4 ms
_SIGTERM = 15
_SIG_SETMASK = 2
_SIGSET_BYTES = 128


def prctl(option: int, value: int) -> None:
    """Set an attribute of the calling process (Linux).

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [ctypes.c_ulong(n) for n in (value, 0, 0, 0)]
    if libc.prctl(ctypes.c_int(option), *numbers) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def main(arguments: list[str]) -> None:
    """Become the program that *arguments* name; return only where the parent is gone."""
    parent, report = int(arguments[0]), int(arguments[1])
    split = arguments.index("--")
    limits, program = arguments[2:split], arguments[split + 1 :]
    os.set_inheritable(report, False)
    try:
        # Lasts over the exec, but not over a change of user: that would have to come first.
        prctl(PR_SET_PDEATHSIG, _SIGKILL)
        if os.getppid() != parent:
            return  # it died before it was asked for; no signal will come
        _reset_signals()
        _limit(limits)
        os.write(report, STARTED)
        os.execvp(program[0], program)  # noqa: S606 - becoming it is the purpose
    except (OSError, ValueError) as error:
        os.write(report, str(error).encode(errors="replace"))
        raise


def _reset_signals() -> None:
    """Let SIGTERM through, though the starting thread may block or ignore it: that is inherited."""
    libc = ctypes.CDLL(None)
    libc.signal(_SIGTERM, None)
    libc.sigprocmask(_SIG_SETMASK, ctypes.create_string_buffer(_SIGSET_BYTES), None)


def _limit(limits: list[str]) -> None:
    for limit in ["RLIMIT_CORE=0", *limits]:
        name, _, number = limit.partition("=")
        kind = getattr(resource, name)
        wanted, (_, most) = int(number), resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            wanted = min(wanted, most)
        resource.setrlimit(kind, (wanted, wanted))
    # Short of memory, the kernel shall end the script rather than its worker.
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass  # where it cannot be told, so be it


if __name__ == "__main__":
    main(sys.argv[1:])
