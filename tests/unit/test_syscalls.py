"""System call numbers, compared with the kernel headers, and the structure of the filter."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from nextfire.adapters.scripts import syscalls

HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),
)
NAMED = {
    **syscalls._DENIED,  # noqa: SLF001
    **syscalls._IPC,  # noqa: SLF001
    "clone": syscalls._CLONE,  # noqa: SLF001
    "clone3": syscalls._CLONE3,  # noqa: SLF001
    "socket": syscalls._SOCKET,  # noqa: SLF001
    "ioctl": syscalls._IOCTL,  # noqa: SLF001
    "prlimit64": syscalls._PRLIMIT,  # noqa: SLF001
}
ALLOWED, REFUSED, KILLED = 0x7FFF0000, 0x00050000, 0x80000000


def decide(program: bytes, machine: str, number: int, arguments: tuple[int, int, int]) -> int:
    """The verdict of *program* on a system call."""
    architecture = syscalls._AUDIT_ARCH[machine]  # noqa: SLF001
    # struct seccomp_data: number, architecture, instruction pointer, arguments
    data = struct.pack("=IIQQQQ", number, architecture, 0, *arguments)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, if_so, if_not, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, operand)
            case 0x06:
                return int(operand)
            case 0x15 | 0x35 | 0x45:
                holds = {
                    0x15: loaded == operand,
                    0x35: loaded >= operand,
                    0x45: bool(loaded & operand),
                }[code]
                at += if_so if holds else if_not


@pytest.mark.skipif(
    not all(header.is_file() for header in HEADERS), reason="the kernel headers are not installed"
)
@pytest.mark.parametrize("column", [0, 1], ids=["x86-64", "AArch64"])
def test_numbers_are_the_kernels(column: int) -> None:
    found = dict(
        re.findall(
            r"^#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[column].read_text(), re.MULTILINE
        )
    )

    theirs = {name: int(found[name]) if name in found else None for name in NAMED}

    assert {name: numbers[column] for name, numbers in NAMED.items()} == theirs


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("internet", [True, False])
@pytest.mark.parametrize("ipc", [True, False])
def test_every_path_through_the_filter_ends_in_a_verdict(
    machine: str,
    internet: bool,  # noqa: FBT001
    ipc: bool,  # noqa: FBT001
) -> None:
    program = syscalls.script_filter(internet=internet, ipc=ipc, machine=machine)

    assert program is not None
    steps = list(struct.iter_unpack("=HBBI", program))
    for at, (code, skip_if_so, skip_if_not, _) in enumerate(steps):
        assert at + 1 + max(skip_if_so, skip_if_not) < len(steps) or code == 0x06
    assert steps[-1][0] == 0x06
    assert len(steps) <= 4096


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
@pytest.mark.parametrize("ipc", [True, False])
def test_the_filter_decides_about_each_number(
    machine: str,
    column: int,
    ipc: bool,  # noqa: FBT001
) -> None:
    refused = {*syscalls._DENIED.values(), *([] if ipc else syscalls._IPC.values())}  # noqa: SLF001
    denied = dict.fromkeys((numbers[column] for numbers in refused), errno.EPERM)
    denied[syscalls._CLONE3[column]] = errno.ENOSYS  # noqa: SLF001
    program = syscalls.script_filter(internet=True, ipc=ipc, machine=machine)
    assert program is not None

    for number in range(700):
        verdict = decide(program, machine, number, (0, 0, 0))
        wanted = REFUSED | denied[number] if number in denied else ALLOWED
        # Without an address family a socket is refused.
        if number == syscalls._SOCKET[column]:  # noqa: SLF001
            wanted = REFUSED | errno.EAFNOSUPPORT
        assert (number, verdict) == (number, wanted)


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("clone", (0x01200011, 0, 0), None),
        ("clone", (0x10000011, 0, 0), errno.EPERM),
        ("ioctl", (0, 0x5401, 0), None),
        ("ioctl", (0, 0x5412, 0), errno.EPERM),
        ("prlimit64", (0, 7, 0), None),
        ("prlimit64", (1, 7, 0), errno.EPERM),
        ("socket", (1, 1, 0), None),
        ("socket", (2, 1, 0), None),
        ("socket", (10, 1, 0), None),
        ("socket", (16, 3, 0), None),
        ("socket", (16, 3, 9), errno.EAFNOSUPPORT),
        ("socket", (17, 3, 0), errno.EAFNOSUPPORT),
    ],
)
@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_some_calls_depend_on_their_arguments(
    call: str,
    arguments: tuple[int, int, int],
    error: int | None,
    machine: str,
    column: int,
) -> None:
    program = syscalls.script_filter(internet=True, ipc=False, machine=machine)
    assert program is not None
    number = NAMED[call][column]
    assert number is not None

    verdict = decide(program, machine, number, arguments)

    assert verdict == (ALLOWED if error is None else REFUSED | error)


def test_another_architecture_and_the_x32_abi_are_refused() -> None:
    program = syscalls.script_filter(internet=True, ipc=False, machine="x86_64")
    assert program is not None

    assert decide(program, "aarch64", 0, (0, 0, 0)) == KILLED
    assert decide(program, "x86_64", 0x40000000, (0, 0, 0)) == REFUSED | errno.ENOSYS


def test_there_is_no_filter_for_other_machines() -> None:
    assert syscalls.script_filter(internet=True, ipc=True, machine="riscv64") is None
