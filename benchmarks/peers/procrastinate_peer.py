"""procrastinate: Python, PostgreSQL."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.peer import HERE, POLL_SECONDS, Peer, run

_REQUIREMENTS = ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9")


def _install(folder: Path) -> None:
    run([sys.executable, "-m", "venv", "--clear", "venv"], folder)
    run(["venv/bin/python", "-m", "pip", "install", "--quiet", *_REQUIREMENTS], folder)


def _program(folder: Path) -> Sequence[str]:
    return [str(folder / "venv" / "bin" / "python"), str(HERE / "procrastinate_app.py")]


PEER = Peer(
    name="procrastinate",
    requirements=_REQUIREMENTS,
    settings=f"fetch_job_polling_interval={POLL_SECONDS}, a task that awaits asyncio's subprocess",
    install=_install,
    program=_program,
)
