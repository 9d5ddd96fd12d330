"""Types the commands of the tutorial in tmux, and writes their screens to docs/tour.md."""  # noqa: INP001 - see reference.py

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.places import host_folder

DOCS = Path(__file__).parent
PAGE = DOCS / "tour.md"
COLUMNS, LINES = 100, 60
SECTIONS = range(2, 8)
"""Sections of the tutorial that need no AWS account. The first is the README's."""
_SECTION = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"Save this as\s+`([\w.]+)`")
_JOB = re.compile(r"^Job +(\S+)$", re.MULTILINE)
_EXECUTION = re.compile(r"\S+\.\d{8}T\d{9}Z-[0-9a-f]{16}")
_PROMPT = "$"
_PROMPTS = (_PROMPT, f"^C{_PROMPT}")
_CONFIRM = "[y/N]:"
_IN_FOREGROUND = ("nextfire up", "python3 -m http.server")
"""Commands that keep running, each in its own window."""
_STEP, _SETTLE, _AT_MOST = 0.1, 3.0, 60.0  # seconds
_INTRODUCTION = """# Tour

Screens of the commands of the [tutorial](tutorial.md), as a terminal of 100 columns shows them.
`make tour` types them in tmux, on the embedded stack, and writes this page.
"""


@dataclass
class Terminal:
    """A tmux server with windows of shells whose prompt is a dollar sign."""

    folder: Path
    socket: str = field(default_factory=lambda: f"nextfire-tour-{os.getpid()}")

    def __post_init__(self) -> None:
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._tmux(
            "-f", os.devnull, "new-session", "-d", "-s", "tour", "-n", "main", *size, *_SHELL
        )
        self.wait("main")

    def open(self, window: str) -> None:
        """Open another window."""
        self._tmux("new-window", "-d", "-t", "tour", "-n", window, *_SHELL)
        self.wait(window)

    def type(self, line: str, window: str = "main") -> None:
        """Type *line* and Enter."""
        self._tmux("send-keys", "-t", f"tour:{window}", "-l", line)
        self._tmux("send-keys", "-t", f"tour:{window}", "Enter")

    def interrupt(self, window: str = "main") -> None:
        """Press Ctrl-C."""
        self._tmux("send-keys", "-t", f"tour:{window}", "C-c")

    def screen(self, window: str = "main") -> str:
        """What *window* shows, without empty lines at the end."""
        return self._tmux("capture-pane", "-p", "-t", f"tour:{window}").rstrip()

    def wait(self, window: str = "main") -> None:
        """Wait for the prompt. Confirms what a command asks, and interrupts one that follows runs
        after the first success.
        """
        until = time.monotonic() + _AT_MOST
        succeeded_at = None
        while time.monotonic() < until:
            last = self.screen(window).rpartition("\n")[2]
            if last in _PROMPTS:
                return
            if last.rstrip().endswith(_CONFIRM):
                self.type("y", window)
            if "SUCCEEDED" in last:
                succeeded_at = succeeded_at or time.monotonic()
                if time.monotonic() - succeeded_at > _SETTLE:
                    self.interrupt(window)
            time.sleep(_STEP)
        raise TimeoutError(f"No prompt after {_AT_MOST:.0f} s:\n{self.screen(window)}")

    def close(self) -> None:
        """End the server and what runs in it."""
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.socket, *arguments]
        environment = {
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(self.folder),
            "PS1": f"{_PROMPT} ",
            "TERM": "xterm-256color",
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        ).stdout


_SHELL = ("bash", "--noprofile", "--norc")


@dataclass
class Tour:
    """Types the blocks of commands. Knows the last job and execution that were shown."""

    terminal: Terminal
    job: str = ""
    execution: str = ""

    def section(self, text: str) -> Iterator[str]:
        """Type the commands of a section. Yields the screen after each block."""
        saved = _SAVED.search(text)
        for kind, block in _BLOCK.findall(text):
            if kind == "python" and saved:
                (self.terminal.folder / saved[1]).write_text(block)
            elif not kind:
                yield self._type(block.splitlines())

    def _type(self, lines: list[str]) -> str:
        if lines[0].startswith(_IN_FOREGROUND):
            return self._start(lines[0])
        self.terminal.type("clear")
        self.terminal.wait()
        screen = ""
        for line in lines:
            self.terminal.type(
                line.replace("JOB_ID", self.job).replace("EXECUTION_ID", self.execution)
            )
            time.sleep(_STEP)
            self.terminal.wait()
            screen = self.terminal.screen()
            self.job = [self.job, *_JOB.findall(screen)][-1]
            self.execution = [self.execution, *_EXECUTION.findall(screen)][-1]
        return re.sub(r"\n(\^C)?\$$", r"\n\1", screen).rstrip()

    def _start(self, line: str) -> str:
        window = line.split(maxsplit=1)[0]
        self.terminal.open(window)
        self.terminal.type(line, window)
        before = ""
        while (screen := self.terminal.screen(window)) != before or line == screen[2:]:
            before = screen
            time.sleep(_SETTLE)
        return screen


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder with what the commands need of a clone."""
    folder = host_folder("tour-")
    folder.chmod(0o711)
    for name in ("examples", "layers"):
        (folder / name).symlink_to(DOCS.parent / name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # after a failure, the stack may still write


def sections(tutorial: str) -> Iterator[tuple[str, str]]:
    """The titles and texts of `SECTIONS`."""
    _, *parts = _SECTION.split(tutorial)
    for number, title, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if int(number) in SECTIONS:
            yield title, text


def commands(section: str) -> list[str]:
    """The commands of a section, with placeholders, a line each."""
    blocks = [block for kind, block in _BLOCK.findall(section) if not kind]
    return [line for block in blocks for line in block.splitlines()]


def page(tutorial: str) -> str:
    """Type the commands of *tutorial*. Returns the page with their screens."""
    parts_of_page = [_INTRODUCTION]
    with _folder() as folder:
        terminal = Terminal(folder)
        try:
            tour = Tour(terminal)
            for title, text in sections(tutorial):
                parts_of_page.append(f"## {title}\n")
                parts_of_page += [f"```text\n{each}\n```\n" for each in tour.section(text)]
            terminal.interrupt("nextfire")
            terminal.wait("nextfire")
        finally:
            terminal.close()
    return "\n".join(parts_of_page)


if __name__ == "__main__":
    PAGE.write_text(page((DOCS / "tutorial.md").read_text()))
