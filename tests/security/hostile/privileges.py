"""Probes of privileges."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.security.hostile.common import LETHAL, apart, call, chance, kind_of, libc, probe, targets


@probe
def namespaces() -> Iterator[str]:
    for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("net", 0x40000000)):
        if apart(partial(unshared, flag)):
            yield f"made a {name} namespace"
    for pid in targets():
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/ns"):
                if apart(partial(entered, f"/proc/{pid}/ns/{name}")):
                    yield f"entered the {name} namespace of {kind_of(pid)}"


def entered(path: str) -> bool:
    own = Path("/proc/self/ns") / Path(path).name
    return os.readlink(path) != os.readlink(own) and call("setns", os.open(path, 0), 0) == 0


def unshared(flag: int) -> bool:
    return call("unshare", flag) == 0


def mounted(flag: int) -> bool:
    if flag and not unshared(flag):
        return False
    return bool(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0)


@probe
def mounts() -> Iterator[str]:
    for flag in (0, 0x10020000):  # without and with new namespaces
        if apart(partial(mounted, flag)):
            yield "mounted a file system"


@probe
def kernel_interfaces() -> Iterator[str]:
    for name in ("io_uring", "bpf", "userfaultfd", "perf"):
        room = ctypes.create_string_buffer(256)
        if name == "bpf":
            room = ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 4, 1, 0), 72)
        arguments = {"io_uring": (4, room), "bpf": (0, room, 72), "userfaultfd": (0,),
                     "perf": (room, 0, -1, -1, 0)}[name]  # fmt: skip
        if (got := call(name, *arguments)) >= 0:
            os.close(got)
            yield f"may use {name}"


@probe
def raw_calls() -> Iterator[str]:
    """Random system calls with random arguments, in a child, which may crash."""

    def play() -> bool:
        dice = random.Random(seed)
        room = ctypes.create_string_buffer(4096)
        values = [0, 1, -1, 3, 4096, 1 << 31, ctypes.addressof(room), os.getpid()]
        for _ in range(300):
            number = dice.randrange(470)
            if number not in LETHAL:
                libc.syscall(number, *(dice.choice(values) for _ in range(6)))
        return False

    seed = chance.random()
    apart(play)
    if os.geteuid() == 0 or os.getuid() == 0:
        yield "became root"
