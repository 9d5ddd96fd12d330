"""Probes of kernel objects, and of other processes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.security.hostile.common import call, canaries, chance, job, kind_of, libc, probe, targets


@probe
def shared_memory() -> Iterator[str]:
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        address = libc.shmat(int(line.split()[1]), None, 0o10000)
        if address not in {None, ctypes.c_void_p(-1).value}:
            size = min(int(line.split()[3]), 1 << 20)
            yield from canaries(ctypes.string_at(address, size), "System V shared memory")
            libc.shmdt(ctypes.c_void_p(address))
    for kind, control in (("msg", libc.msgget), ("sem", libc.semget)):
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
            if kind == "msg":
                room = ctypes.create_string_buffer(8 + 65536)
                got = libc.msgrcv(int(line.split()[1]), room, 65536, 0, 0o4000 | 0o40000)
                if got >= 0:
                    yield from canaries(room.raw[: got + 8], "System V messages")
        control(0x7F00 + chance.randrange(256), 0)


@probe
def posix_queues() -> Iterator[str]:
    room = ctypes.create_string_buffer(8192)
    queue = call("mq_open", job["tag"].encode(), os.O_RDONLY | os.O_NONBLOCK, 0, None)
    if queue >= 0:
        got = call("mq_receive", queue, room, 8192, None, None)
        yield from canaries(room.raw[: max(got, 0)], "POSIX queues")
        os.close(queue)


@probe
def keyrings() -> Iterator[str]:
    name = job["tag"].encode()
    link = 8
    call("keyctl", link, -4, -3)  # links the user's keyring into the session's: makes it readable
    for key in (
        call("request_key", b"user", name, None, 0),
        call("keyctl", 10, -4, b"user", name, 0),
    ):
        room = ctypes.create_string_buffer(4096)
        if key > 0 and (got := call("keyctl", 11, key, room, 4096)) > 0:
            yield from canaries(room.raw[:got], "keyrings")


@probe
def abstract_sockets() -> Iterator[str]:
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split()[7] if len(line.split()) > 7 else ""
        if name.startswith("@nextfire-victim"):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as end:
                end.settimeout(0.2)
                end.connect("\0" + name[1:])
                yield from canaries(end.recv(4096), "abstract sockets")


@probe
def loopback_servers() -> Iterator[str]:
    shared = os.readlink("/proc/self/ns/net") == job["network"]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] != "0A" or not fields[1].startswith("0100007F"):
            continue
        address = ("127.0.0.1", int(fields[1].split(":")[1], 16))
        if shared and address[1] not in job["servers"]:
            continue  # a server of another test
        for request in (b"GET /1 HTTP/1.1\r\nAuthorization: x\r\n\r\n", b"GET /1 HTTP/1.1\r\n\r\n"):
            with suppress(OSError), socket.create_connection(address, 0.2) as end:
                end.settimeout(0.2)
                end.sendall(request)
                yield from canaries(end.recv(8192), "loopback servers")


# Other processes


@probe
def ptrace() -> Iterator[str]:
    for pid in targets():
        if call("ptrace", 0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE does not stop the process
            yield f"may trace {kind_of(pid)}"
            call("ptrace", 17, pid, 0, 0)


@probe
def process_vm_readv() -> Iterator[str]:
    for pid in targets():
        with suppress(OSError, StopIteration):
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            first = int(next(line for line in maps if "rw" in line).split("-")[0], 16)
            room = ctypes.create_string_buffer(64)
            near = struct.pack("QQ", ctypes.addressof(room), 64)
            far = struct.pack("QQ", first, 64)
            if call("readv", pid, near, 1, far, 1, 0) > 0:
                yield f"may read the memory of {kind_of(pid)}"


@probe
def pidfd_getfd() -> Iterator[str]:
    for pid in targets():
        handle = call("pidfd_open", pid, 0)
        for number in range(12) if handle >= 0 else ():
            if (got := call("pidfd_getfd", handle, number, 0)) >= 0:
                os.close(got)
                yield f"may take descriptors of {kind_of(pid)}"
        if handle >= 0:
            os.close(handle)


@probe
def kcmp() -> Iterator[str]:
    for pid in targets():
        if call("kcmp", os.getpid(), pid, 1, 0, 0) >= 0:
            yield f"may compare itself with {kind_of(pid)}"


@probe
def signals() -> Iterator[str]:
    """Uses SIGURG, which harms no program: a process that may send it may also send SIGKILL."""
    for pid in targets():
        with suppress(OSError):
            os.kill(pid, signal.SIGURG)
            yield f"may signal {kind_of(pid)}"


@probe
def limits_and_priorities() -> Iterator[str]:
    for pid in targets():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
            yield f"may change the priority of {kind_of(pid)}"
