"""The seccomp filter of scripts, a classic BPF program that blocks system calls.

The filter returns an error instead of killing the process, so that libraries that only probe a call
continue without it. The numbers are from Linux's ``unistd`` tables for x86-64 and AArch64, the two
architectures of Lambda and Fargate. libseccomp could generate the filter, but it is not part of
Lambda's runtime and has no maintained package on PyPI.

Source of the layout: Linux, ``Documentation/userspace-api/seccomp_filter.rst``.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from functools import cache
from types import MappingProxyType

_AUDIT_ARCH = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
_X32 = 0x40000000
"""From this number on: the x32 ABI of an x86-64 kernel, which has other numbers for the calls."""

_DENIED: MappingProxyType[str, tuple[int | None, int | None]] = MappingProxyType(
    {
        # Namespaces: root in a namespace can reach more of the kernel.
        "unshare": (272, 97),
        "setns": (308, 268),
        # Keyrings belong to a uid, which later runs of other tenants reuse.
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        # Other processes' memory and descriptors.
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "process_mrelease": (448, 448),
        "pidfd_getfd": (438, 438),
        "kcmp": (312, 272),
        # Mounts.
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "open_tree": (428, 428),
        "move_mount": (429, 429),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "open_by_handle_at": (304, 265),
        # Kernel features with a history of vulnerabilities, which jobs do not need.
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "vmsplice": (278, 75),
        "modify_ldt": (154, None),
        "uselib": (134, None),
        # The machine itself.
        "reboot": (169, 142),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "iopl": (172, None),
        "ioperm": (173, None),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "acct": (163, 89),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "syslog": (103, 116),
        "settimeofday": (164, 170),
        "adjtimex": (159, 171),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "lookup_dcookie": (212, 18),
        "vhangup": (153, 58),
    }
)
_IPC: MappingProxyType[str, tuple[int, int]] = MappingProxyType(
    {
        "shmget": (29, 194),
        "shmat": (30, 196),
        "semget": (64, 190),
        "semop": (65, 193),
        "semtimedop": (220, 192),
        "msgget": (68, 186),
        "msgsnd": (69, 189),
        "msgrcv": (70, 188),
        "mq_open": (240, 180),
    }
)
"""System V IPC and POSIX queues: their objects outlive the processes that created them."""
_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRLIMIT = (302, 261)
_SOCKET, _IOCTL = (41, 198), (16, 29)
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INTERNET, _NETLINK = 1, (2, 10), 16

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 16, 24, 32
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@cache
def script_filter(*, internet: bool, ipc: bool, machine: str | None = None) -> bytes | None:
    """The filter for a script's processes, for ``prctl(PR_SET_SECCOMP)``.

    Args:
        internet: Whether to allow internet sockets. Unix and netlink sockets are always allowed.
        ipc: Whether to allow System V IPC and POSIX queues, as in a private IPC namespace.
        machine: The architecture in the notation of `os.uname`; None for this machine's.

    Returns:
        The BPF program, 8 bytes per instruction; None if the architecture is not supported.
    """
    machine = os.uname().machine if machine is None else machine
    if machine not in _AUDIT_ARCH:
        return None
    column = 0 if machine == "x86_64" else 1
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _AUDIT_ARCH[machine], skip_if_so=1),
        _step(_RETURN, _KILL),  # a 32-bit program, whose calls have other numbers
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_step(_AT_LEAST, _X32, skip_if_not=1), _refusal(errno.ENOSYS)]
    for numbers in [*_DENIED.values(), *([] if ipc else _IPC.values())]:
        number = numbers[column]
        if number is not None:
            program += [_step(_EQUAL, number, skip_if_not=1), _refusal(errno.EPERM)]
    # clone3 has its flags in memory, which a filter cannot read. C libraries fall back to clone.
    program += [_step(_EQUAL, _CLONE3[column], skip_if_not=1), _refusal(errno.ENOSYS)]
    program += _with_argument(
        _CLONE[column],
        _FIRST_ARGUMENT,
        [_step(_ANY_BIT, _NEW_NAMESPACES, skip_if_not=1), _refusal(errno.EPERM)],
    )
    program += _with_argument(
        _IOCTL[column], _SECOND_ARGUMENT, _each((_TIOCSTI, _TIOCLINUX), _refusal(errno.EPERM))
    )
    # A process may change only its own limits.
    program += _with_argument(
        _PRLIMIT[column],
        _FIRST_ARGUMENT,
        [_step(_EQUAL, 0, skip_if_so=1), _refusal(errno.EPERM)],
    )
    families = [_UNIX, *(_INTERNET if internet else ())]
    # Allow only NETLINK_ROUTE, with which C libraries list addresses, and no other protocol.
    netlink = [
        _step(_LOAD, _THIRD_ARGUMENT),
        _step(_EQUAL, 0, skip_if_so=1),
        _refusal(errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    program += _with_argument(
        _SOCKET[column],
        _FIRST_ARGUMENT,
        [
            *_each(families, _step(_RETURN, _ALLOW)),
            _step(_EQUAL, _NETLINK, skip_if_so=1),
            _refusal(errno.EAFNOSUPPORT),
            *netlink,
        ],
    )
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _with_argument(number: int, argument: int, steps: list[bytes]) -> list[bytes]:
    """Run *steps* on the lower half of *argument* if the system call is *number*."""
    inner = [_step(_LOAD, argument), *steps, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, skip_if_not=len(inner)), *inner]


def _each(values: Iterable[int], then: bytes) -> list[bytes]:
    return [step for value in values for step in (_step(_EQUAL, value, skip_if_not=1), then)]


def _refusal(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _step(code: int, operand: int, *, skip_if_so: int = 0, skip_if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if_so, skip_if_not, operand)
