"""Forked child processes that run tests in a copy of the project, and their results.

The parent has imported the heavy libraries but nothing of the project, so a child imports only the
project's own modules. Each child works in its own copy: mutated source is never in the work tree.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LOG = "child.log"

HEAVY = (
    *("boto3", "botocore.client", "botocore.auth", "pydantic", "aws_lambda_powertools"),
    *("aws_lambda_powertools.event_handler", "aws_lambda_powertools.utilities.batch"),
    *("pytest", "_pytest.runner", "hypothesis", "hypothesis.strategies", "hypothesis.stateful"),
    *("coverage", "croniter", "cronsim", "greenlet", "time_machine", "httpx2", "yaml"),
    *("typer", "rich.console", "rich.table"),
    *(f"moto.{name}" for name in ("core", "dynamodb", "events", "s3", "secretsmanager", "sqs")),
    *(f"moto.{name}.models" for name in ("dynamodb", "events", "s3", "secretsmanager", "sqs")),
    *(f"moto.{name}.responses" for name in ("dynamodb", "events", "s3", "secretsmanager", "sqs")),
    *("moto.ssm.models", "moto.ssm.responses", "moto.sts.models", "moto.sts.responses"),
)
_TICK, _ENDING_TICKS = 0.005, 1000  # seconds; how often to poll a child that is ending
_LIBC = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_MEMORY = 6 << 30  # of a child: an endless one must not exhaust the machine


class ChildError(Exception):
    """A child failed to do its work: the mutant remains without a verdict."""


def warm_up() -> None:
    """Import what every child needs."""
    for name in HEAVY:
        importlib.import_module(name)


def copied(root: Path, folder: Path) -> None:
    """Copy the project's files, as git lists them, from *root* to *folder*, which is recreated."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of *task* in *folder*. `answer`: None if the child was ended after `seconds` or
    died of a signal.
    """

    task: T
    folder: Path
    answer: Any
    seconds: float


@dataclass(slots=True)
class _Child(Generic[T]):
    task: T
    pid: int
    folder: Path
    pipe: int
    started: float
    until: float
    data: bytes = b""


def fan_out(
    tasks: Iterable[T],
    work: Callable[[T, Path], object],
    folders: list[Path],
    *,
    limit: Callable[[T], float],
) -> Iterator[Outcome[T]]:
    """Run *work* for each of *tasks* in a child process, one per folder at a time.

    Args:
        tasks: Taken one by one, when a folder is free.
        work: Called with the task and the folder, the working directory; its result becomes JSON.
        folders: Copies of the project.
        limit: Maximum duration of a task in seconds.

    Raises:
        ChildError: *work* raised an exception.

    Yields:
        The outcomes, in the order of completion. The folder of an outcome is not reused before the
            next outcome is requested.
    """
    waiting = iter(tasks)
    free = list(folders)
    selector = selectors.DefaultSelector()
    running: dict[int, _Child[T]] = {}
    try:
        while True:
            while free and (task := next(waiting, None)) is not None:
                child = _start(task, work, free.pop(), limit(task))
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            if not running:
                return
            for key, _ in selector.select(timeout=0.5):
                child = running[key.fd]
                data = os.read(key.fd, 1 << 16)
                child.data += data
                if not data:
                    child.until = 0
            for child in [*running.values()]:
                if time.monotonic() >= child.until:
                    selector.unregister(child.pipe)
                    del running[child.pipe]
                    status = _end(child)
                    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                        raise ChildError(f"{str(child.task)[:100]}: see {child.folder / LOG}")
                    free.append(child.folder)
                    answer = json.loads(child.data) if child.data.endswith(b"\n") else None
                    yield Outcome(
                        child.task, child.folder, answer, time.monotonic() - child.started
                    )
    finally:
        for child in running.values():
            _end(child)


def _start(task: T, work: Callable[[T, Path], object], folder: Path, limit: float) -> _Child[T]:
    reader, writer = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            _move_to_copy(folder)
            answer = json.dumps(work(task, folder)) + "\n"
            with os.fdopen(writer, "w") as pipe:
                pipe.write(answer)
            status = 0
        except BaseException:  # noqa: BLE001 — logged, since a child has no caller
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    return _Child(task, pid, folder, reader, started, started + limit)


def _move_to_copy(folder: Path) -> None:
    """Detach this process, and move it to the copy in *folder*."""
    os.setsid()
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if Path.cwd() != folder:
        here = str(Path.cwd())
        of_the_tree = {"", here, f"{here}/layers", f"{here}/cli"}
        sys.path[:] = [each for each in sys.path if each not in of_the_tree]
        os.chdir(folder)
    with Path(os.devnull).open("r+b") as nothing, Path(LOG).open("ab") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.argv[:] = ["pytest"]


def _end(child: _Child[Any]) -> int:
    """End the child and its process group. Returns its status as from `wait`; a child that was
    already ending keeps its own status.
    """
    os.close(child.pipe)
    for _ in range(_ENDING_TICKS if child.until == 0 else 0):
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            _end_group(child.pid)
            return status
        time.sleep(_TICK)
    _end_group(child.pid)
    return os.waitpid(child.pid, 0)[1]


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with suppress(ProcessLookupError):  # the group is gone, or the child has not created it yet
            os.kill(pid, signal.SIGKILL)
