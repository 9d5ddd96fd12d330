"""A peer: how it is installed, started and given jobs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.report import tell
from benchmarks.side_by_side import SCRIPT, SLOTS

HERE = Path(__file__).resolve().parent
_CACHE = HERE.parents[1] / ".nextfire" / "peers"
POLL_SECONDS = 0.05
"""How often peers look for jobs that became due. Their defaults are 5 s and 2 s."""
_STARTS = 2.0
_STOP = 30.0
_INSTALLS = 300.0


class PeerUnavailableError(Exception):
    """A peer cannot be installed or started on this machine. The message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A scheduler on PostgreSQL.

    Attributes:
        name: Prefix of its figures.
        requirements: What is installed, with exact versions.
        settings: What differs from its defaults, in words.
        install: Installs the requirements into a folder.
        program: From that folder, the command that runs its program: with ``serve SLOTS
            POLL_SECONDS INTERPRETER SCRIPT`` its worker; with ``create`` it reads a list of jobs
            ``[due time, payload]`` from stdin. Environment variables name the database.
    """

    name: str
    requirements: Sequence[str]
    settings: str
    install: Callable[[Path], None]
    program: Callable[[Path], Sequence[str]]

    @property
    def title(self) -> str:
        """Its name with its version."""
        return " ".join(self.requirements[0].replace("@", "==").split("=="))


class RunningPeer:
    """A peer's worker and its database. Implements `Scheduler`."""

    def __init__(
        self, program: Sequence[str], folder: Path, variables: Mapping[str, str], roots: list[int]
    ) -> None:
        self.roots = roots
        self._program = program
        self._folder = folder
        self._variables = variables

    def create(self, jobs: Mapping[str, datetime], marks: Path) -> None:
        """Create a job for each of *jobs*."""
        listed = [(at.isoformat(), {"job": job, "marks": str(marks)}) for job, at in jobs.items()]
        done = subprocess.run(
            [*self._program, "create"],
            cwd=self._folder,
            env={**os.environ, **self._variables},
            input=json.dumps(listed),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"creating the jobs failed: {done.stdout[-500:]}")


@contextmanager
def running(
    peer: Peer, folder: Path, database: int, variables: Mapping[str, str], *, interpreter: str
) -> Iterator[RunningPeer]:
    """Context manager: *peer* on the database server whose process is *database*. *interpreter*
    runs its scripts.

    Raises:
        PeerUnavailableError: It cannot be installed, or it did not start.
    """
    home = _installed(peer)
    script, log = folder / "mark.py", folder / f"{peer.name}.log"
    script.write_text(SCRIPT)
    program = peer.program(home)
    with log.open("wb") as output:
        try:
            worker = subprocess.Popen(
                [*program, "serve", str(SLOTS), str(POLL_SECONDS), interpreter, str(script)],
                cwd=home,
                env={**os.environ, **variables},
                stdout=output,
                stderr=output,
            )
        except FileNotFoundError as error:
            raise PeerUnavailableError(f"{program[0]} is not installed.") from error
    try:
        time.sleep(_STARTS)
        if worker.poll() is not None:
            raise PeerUnavailableError(f"It ended at its start: {log.read_text()[-500:]}")
        yield RunningPeer(program, home, variables, [worker.pid, database])
    finally:
        worker.terminate()
        try:
            worker.wait(_STOP)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def run(command: Sequence[str], folder: Path) -> None:
    """Run a command of an installation in *folder*.

    Raises:
        PeerUnavailableError: The command does not exist or fails.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_INSTALLS,
        )
    except FileNotFoundError as error:
        raise PeerUnavailableError(f"{command[0]} is not installed.") from error
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"`{' '.join(command)}` did not end.") from error
    if done.returncode:
        raise PeerUnavailableError(f"`{' '.join(command)}` failed: {done.stdout[-500:].strip()}")


def _installed(peer: Peer) -> Path:
    """The folder of *peer*, which is installed there if it is not yet."""
    folder = _CACHE / peer.name
    marker, wanted = folder / "installed", "\n".join(peer.requirements)
    if not marker.exists() or marker.read_text() != wanted:
        tell(f"installing {', '.join(peer.requirements)} into {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        peer.install(folder)
        marker.write_text(wanted)
    return folder
