"""Shared parts of the probes of a hostile script.

The attack runs as a script of nextfire, next to another tenant's script. It reads a JSON object
from standard input: `seed`, `seconds`, `executor` (its process id), `tag` (part of the name of
everything it leaves behind), `folder` (where executors work), `targets` (files of others),
`network` (the executor's network namespace), `servers` (the executor's ports), and `digest` (hash
of the secret part of canaries). It prints one JSON object per line: `probe`, and `found`, a list
that should be empty.

A canary has the form ``canary-<where>-<32 hexadecimal digits>``. This script is given no canary.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

CANARY = re.compile(rb"canary-([a-z-]+)-([0-9a-f]{32})")
MACHINE = os.uname().machine
NUMBERS = {
    "x86_64": {"clone": 56, "ptrace": 101, "keyctl": 250, "add_key": 248, "request_key": 249,
               "readv": 310, "kcmp": 312, "unshare": 272, "setns": 308, "mq_open": 240,
               "mq_receive": 243, "pidfd_send": 424, "io_uring": 425, "bpf": 321,
               "userfaultfd": 323, "perf": 298, "pidfd_open": 434, "pidfd_getfd": 438},
    "aarch64": {"clone": 220, "ptrace": 117, "keyctl": 219, "add_key": 217, "request_key": 218,
                "readv": 270, "kcmp": 272, "unshare": 97, "setns": 268, "mq_open": 180,
                "mq_receive": 183, "pidfd_send": 424, "io_uring": 425, "bpf": 280,
                "userfaultfd": 282, "perf": 241, "pidfd_open": 434, "pidfd_getfd": 438},
}[MACHINE]  # fmt: skip
LETHAL = {
    "x86_64": {34, 62, 129, 130, 200, 234, 297, 424, 448, 56, 57, 58, 435, 162, 306},
    "aarch64": {129, 130, 131, 133, 138, 240, 424, 448, 220, 435, 81, 267},
}[MACHINE]
"""Probes that are not called at random: they end, stop or create processes, or write all disks."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.shmat.restype = ctypes.c_void_p
job = json.loads(sys.stdin.read())
chance = random.Random(job["seed"])
deadline = [0.0]
PROBES: dict[str, Callable[[], Iterator[str]]] = {}


def probe(function: Callable[[], Iterator[str]]) -> Callable[[], Iterator[str]]:
    PROBES[function.__name__] = function
    return function


def call(name: str, *arguments: Any) -> int:
    return int(libc.syscall(NUMBERS[name], *arguments))


def canaries(data: bytes, where: str) -> Iterator[str]:
    for found in CANARY.finditer(data):
        if (
            hashlib.sha256(found[2]).hexdigest() == job["digest"]
        ):  # of this attack, not an older one
            yield f"{found[1].decode()} in {where}"


def parents() -> dict[int, int]:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            found[int(name)] = int(fields[1])
    return found


def family(root: int, of: dict[int, int]) -> set[int]:
    found = {root}
    while more := {pid for pid, parent in of.items() if parent in found} - found:
        found |= more
    return found


def others() -> list[int]:
    """All processes except this one and its forks; processes of its executor first.

    A fork that random system calls made may have lost its parent. It has the memory of this
    process, and with it what was found before.
    """
    of, own = parents(), head("/proc/self/cmdline")
    mine = family(os.getpid(), of) | {pid for pid in of if head(f"/proc/{pid}/cmdline") == own}
    near = family(job["executor"], of) - mine if job["executor"] in of else set()
    far = set(of) - mine - near
    return [*near, os.getppid(), *chance.sample(sorted(far), len(far))]


def targets() -> list[int]:
    """Processes of its executor: the executor, keepers, other scripts. It attacks no others."""
    of = parents()
    if job["executor"] not in of:  # invisible, but it may exist
        return [job["executor"]]
    own = head("/proc/self/cmdline")
    return [
        pid
        for pid in sorted(family(job["executor"], of) - family(os.getpid(), of))
        # Excludes its own leftovers, which have another parent by now and may just have ended.
        if (line := head(f"/proc/{pid}/cmdline")) not in {b"", own}
        and job["tag"].encode() not in line
    ]


def head(path: str, most: int = 1 << 18) -> bytes:
    with suppress(OSError, ValueError):
        if not stat.S_ISREG(os.stat(path).st_mode) and not path.startswith("/proc/"):
            return b""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW * ("fd" not in path))
        try:
            return os.read(descriptor, most)
        finally:
            os.close(descriptor)
    return b""


def walk(top: str, most: int = 3000) -> Iterator[str]:
    mine = os.getcwd()
    for place, folders, files in os.walk(top):
        folders[:] = [] if place.startswith(mine) else chance.sample(folders, len(folders))
        for file in files:
            most -= 1
            if most < 0 or time.monotonic() > deadline[0]:
                return
            yield f"{place}/{file}"


def apart(do: Callable[[], bool]) -> bool:
    """Run *do* in a child for at most half a second. Returns whether it succeeded."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            nowhere = os.open("/dev/null", os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            os.closerange(3, 256)
            os._exit(0 if do() else 1)
        os._exit(1)
    ends_at = time.monotonic() + 1
    while time.monotonic() < ends_at:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def kind_of(pid: int) -> str:
    if pid == job["executor"]:
        return "the executor"
    if pid == os.getppid():
        return "its keeper"
    line = head(f"/proc/{pid}/cmdline").decode(errors="replace")
    return "a keeper" if "-I\0-S" in line else "another's process"
