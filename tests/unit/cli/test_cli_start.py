"""Ctrl-C while the command is being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path


def start(tmp_path: Path, setup: str) -> subprocess.CompletedProcess[str]:
    """Run `nextfire --version`; importing `nextfire_cli.main` sends SIGINT."""
    program = textwrap.dedent("""
        import builtins, signal
        from nextfire_cli import start

        real = builtins.__import__

        def interrupted(name, *args, **named):
            if name == "nextfire_cli.main":
                signal.raise_signal(signal.SIGINT)
            return real(name, *args, **named)

        builtins.__import__ = interrupted
    """)
    lines = [program, setup, "import sys; sys.argv = ['nextfire', '--version']; start.main()"]
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, cwd=tmp_path, text=True, check=False)


def test_it_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    # A background process of a shell ignores SIGINT, and so would its children.
    done = start(tmp_path, "signal.signal(signal.SIGINT, signal.default_int_handler)")

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_it_stays_ignored_in_the_background(tmp_path: Path) -> None:
    done = start(tmp_path, "signal.signal(signal.SIGINT, signal.SIG_IGN)")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nextfire ")
