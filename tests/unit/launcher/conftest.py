"""A launcher of keepers as a real process, and programs started through it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.scripts.keeper import ProgramRequest
from nextfire.adapters.scripts.kept_program import SupervisedProgram
from nextfire.adapters.scripts.launching import LauncherClient, StandardStreams

LAST = "import time; time.sleep(60)"


class Started:
    """A program started through a launcher."""

    def __init__(self, launching: LauncherClient, *program: str) -> None:
        reader, writer = os.pipe()
        self.output = reader
        with Path(os.devnull).open("r+b") as null:
            self.kept, self.control = launching.launch(
                request(*program), StandardStreams(null.fileno(), writer, writer), namespaces=False
            )
        os.close(writer)

    def until(self, condition: Callable[[SupervisedProgram], bool]) -> None:
        """Process the keeper's reports until *condition* holds; fail after 10 s."""
        for _ in range(100):
            if condition(self.kept):
                return
            self.kept._is_gone(0.1)  # noqa: SLF001
        raise AssertionError("the condition did not become true")

    def read(self) -> bytes:
        return os.read(self.output, 1000)

    def close(self) -> None:
        self.kept.end()
        self.control.close()
        os.close(self.output)


def request(*program: str) -> dict[str, Any]:
    """*program*: the source of a Python program, or a path and arguments."""
    [first, *more] = program
    return {
        ProgramRequest.PROGRAM: [*program] if more else [sys.executable, "-I", "-S", "-c", first],
        ProgramRequest.ENVIRONMENT: {"LC_ALL": "C.UTF-8"},
        ProgramRequest.FOLDER: "/",
        ProgramRequest.USER: None,
        ProgramRequest.PROCESSES: 1000,
        ProgramRequest.VIEW: None,
        ProgramRequest.CHANNEL: "",
        ProgramRequest.FILTER: b"",
        ProgramRequest.LIMITS: [],
    }


@pytest.fixture
def launching() -> Iterator[LauncherClient]:
    it = LauncherClient({})
    yield it
    it.close()


@pytest.fixture
def start(launching: LauncherClient) -> Iterator[Callable[[str], Started]]:
    made: list[Started] = []

    def one(source: str) -> Started:
        made.append(Started(launching, source))
        return made[-1]

    yield one
    for each in made:
        each.close()


Start = Callable[[str], Started]


def launcher_of(launching: LauncherClient) -> int:
    return launching._process.pid  # noqa: SLF001


def processes(marker: str) -> list[int]:
    """The ids of processes with *marker* in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
