"""Attacks of scripts by the kernel: its keyrings, calls and capabilities."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tests.security.hosts import Host, Script
from tests.security.processes import script

CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[__import__("os").uname().machine]
add_key, request_key, keyctl = NUMBERS
USER, SESSION = -4, -3
"""


def test_kernel_keyrings_are_closed(host: Host, folder: Path) -> None:
    keeps = CALLS + 'libc.syscall(add_key, b"user", b"nextfire-test", b"secret", 6, USER)'
    finds = CALLS + dedent(
        """
        key = libc.syscall(request_key, b"user", b"nextfire-test", None, 0)
        found = ctypes.create_string_buffer(6)
        if key > 0 and libc.syscall(keyctl, 11, key, found, 6) > 0:
            print("found", found.raw)
        """
    )
    report = host.run(folder, [Script(keeps)], [Script(finds, tenant="other")])

    assert report.printed() == ""
    assert [end["exit_code"] for (end,) in report.ends] == [0, 0]


REFUSED = (
    "libc.unshare(0x10000000)",
    "libc.unshare(0x20000000)",
    "libc.setns(os.open('/proc/self/ns/user', 0), 0)",
    "clone(0x10000000)",
    "libc.mount(b'none', b'.', b'tmpfs', 0, None)",
    "libc.chroot(b'.')",
    "libc.ptrace(0, 0, 0, 0)",
    "libc.syscall(425, 8, ctypes.create_string_buffer(120))",  # io_uring
    "libc.syscall(bpf, 0, ctypes.create_string_buffer(64), 64)",
    "libc.socket(17, 3, 0)",  # packet sockets
    "libc.socket(40, 1, 0)",  # vsock, to the hypervisor
    "libc.socket(38, 5, 0)",  # AF_ALG, the kernel's cryptography
)


def test_calls_that_no_job_needs_are_refused(host: Host, folder: Path) -> None:
    source = CALLS + dedent(
        f"""
        import os
        x86 = os.uname().machine == "x86_64"
        bpf = 321 if x86 else 280
        def clone(flags):
            made = libc.syscall(56 if x86 else 220, flags | 17, 0, 0, 0, 0)
            if made == 0:
                os._exit(0)
            return made
        for call in {REFUSED!r}:
            if eval(call) >= 0:
                print("could", call)
        """
    )
    report = host.run(folder, [Script(source)])

    assert report.printed() == ""
    assert report.ends[0][0]["exit_code"] == 0


def test_a_script_gets_no_capability_of_its_executor(host: Host, folder: Path) -> None:
    source = """
        for line in open("/proc/self/status"):
            if line.startswith(("CapPrm", "CapEff", "CapAmb")) and int(line.split()[1], 16):
                print(line)
    """
    capability = "" if host.user is None else "net_bind_service"

    report = host.run(folder, [script(source)], capability=capability)

    assert report.printed() == ""
    assert report.ends[0][0]["exit_code"] == 0
