"""What programs that a launcher starts are given, and what they are not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from nextfire.adapters.scripts.launching import LauncherClient
from tests.unit.launcher.conftest import LAST, Start, Started, launcher_of, processes


def test_program_runs_and_its_exit_code_is_reported(start: Start) -> None:
    it = start("import os, sys; print(dict(os.environ), flush=True); sys.exit(3)")

    it.until(lambda kept: kept.ended)

    assert (it.kept.exit_code, it.kept.left_nothing) == (3, True)
    assert it.read() == b"{'LC_ALL': 'C.UTF-8'}\n"


def test_program_has_no_descriptor_of_the_launcher_or_of_another_run(start: Start) -> None:
    start(LAST)
    start(LAST)
    it = start("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")

    it.until(lambda kept: kept.ended)

    assert it.read() == b"[0, 1, 2, 3]\n"  # 3 is the descriptor of the listing


def test_launcher_has_nothing_of_this_process_in_its_environment(launching: LauncherClient) -> None:
    environment = Path(f"/proc/{launcher_of(launching)}/environ").read_bytes()

    assert environment == b""


def test_launcher_never_has_what_a_program_is_given_in_its_memory(
    launching: LauncherClient, start: Start
) -> None:
    secret = os.urandom(16).hex()
    it = start(f"import time; secret = '{secret}'; print(1, flush=True); time.sleep(60)")
    it.read()

    assert secret.encode() in memory_of(processes(secret)[0])
    assert secret.encode() not in memory_of(launcher_of(launching))


def memory_of(pid: int) -> bytes:
    """The writable memory of *pid*."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if rights.startswith("rw"):
                first, last = (int(each, 16) for each in span.split("-"))
                memory.seek(first)
                try:
                    parts.append(memory.read(last - first))
                except OSError:
                    continue
    return b"".join(parts)


def test_a_program_blocks_and_ignores_no_signal(launching: LauncherClient) -> None:
    # Not Python, which changes them itself.
    it = Started(launching, "/bin/grep", "Sig[BI]", "/proc/self/status")
    it.until(lambda kept: kept.ended)

    masks = dict(line.split() for line in it.read().decode().splitlines())
    it.close()
    # Without those that the C library keeps for itself.
    found = {
        name: [number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1]
        for name, mask in masks.items()
    }
    assert found == {"SigBlk:": [], "SigIgn:": []}
