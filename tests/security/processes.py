"""Searches of the data of other processes in /proc, by scripts that attack and by tests."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

from tests.security.hosts import Script

SEARCH = """
import os
def search(wanted):
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        for file in ("environ", "cmdline"):
            try:
                if wanted in open(f"/proc/{pid}/{file}", "rb").read():
                    found.add(open(f"/proc/{pid}/comm").read().strip() + " " + file)
            except OSError:
                pass
    return found
"""
"""Searches the /proc data of other processes for a text."""


def script(source: str, **options: object) -> Script:
    return Script(SEARCH + dedent(source), **options)  # type: ignore[arg-type]


def processes_with(text: str) -> list[str]:
    """The command lines of processes whose environment contains *text*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                process.name != str(os.getpid())
                and text.encode() in (process / "environ").read_bytes()
            ):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
