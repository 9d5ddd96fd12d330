"""System call numbers, compared with the kernel headers, and the structure of the filter."""

from __future__ import annotations

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


def test_there_is_no_filter_for_other_machines() -> None:
    assert syscalls.script_filter(internet=True, ipc=True, machine="riscv64") is None
