"""The script runner with real processes, in a folder that is empty after each test. If the tests
run as root, test_other_hosts.py runs them again as another user.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from nextfire.adapters.scripts import launchers, process_table, sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner, ScriptLimits
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.places import open_folder
from tests.supervisors import Watch

AS_ROOT = os.geteuid() == 0
CAP = 1000
BASE_UID = 60_000
NAMESPACES = "TEST_NAMESPACES"
"""If this variable is ``no``, the tests run as on a host without namespaces."""
WITHOUT_NAMESPACES = os.environ.get(NAMESPACES) == "no"
START = "TEST_START"
"""If this variable is ``fork``, launchers fork all scripts that they may fork."""
only_root = pytest.mark.skipif(not AS_ROOT, reason="only root has users to give")
only_others = pytest.mark.skipif(AS_ROOT, reason="root gives scripts another user")


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if WITHOUT_NAMESPACES:
            patched.setattr(sandboxes, "probe_host", lambda _: HostFeatures(namespaces=False))
        patched.setattr(launchers, "OFTEN", 1 if os.environ.get(START) == "fork" else sys.maxsize)
        yield


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """The folder for the runners' working folders; every user can enter it. All files share it, and
    with it the runners.
    """
    with open_folder("test-runner-") as path:
        yield path


@cache
def runner(
    folder: Path, grace: float, limits: ScriptLimits, path: str | None
) -> ProcessScriptRunner:
    return ProcessScriptRunner(
        output_cap=CAP,
        grace=timedelta(seconds=grace),
        environment={} if path is None else {"PATH": path},
        limits=limits,
        temp_root=folder,
    )


class Runner:
    """A runner with a small output cap and a short grace period, for short scripts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self,
        source: str,
        *,
        ask: Callable[[], Directive] = lambda: Directive.CONTINUE,
        watch: Watch | None = None,
        payload: str = "{}",
        timeout: float = 20,
        grace: float = 0.3,
        name: str = "script.py",
        environment: Mapping[str, str] | None = None,
        limits: ScriptLimits = ScriptLimits(),  # noqa: B008 - it is immutable
        path: str | None = None,
        tenant: str = "acme",
    ) -> ScriptExit:
        call = ScriptCall(
            name,
            dedent(source).encode(),
            payload,
            timedelta(seconds=timeout),
            tenant,
            environment or {},
        )
        return runner(self._folder, grace, limits, path).run(call, watch or Watch(ask))

    def living(self) -> list[int]:
        """The ids of the scripts' living processes."""
        return processes_in(self._folder)


@pytest.fixture
def run(folder: Path) -> Iterator[Runner]:
    yield Runner(folder)
    for thread in threading.enumerate():
        if thread.name == "removal":  # on a busy machine, removal continues in the background
            thread.join()
    assert list(folder.iterdir()) == []  # after any outcome
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[int]:
    """The ids of living processes of scripts in *folder*, identified by the HOME they inherit, or
    by their arguments, if they are forks of a launcher.
    """
    living = [pid for pid, _, fields in process_table.processes() if fields[0] not in b"ZX"]
    home, script = f"HOME={folder}/".encode(), f"-P\0{folder}/".encode()
    found = []
    for pid in living:
        with suppress(OSError):
            if home in Path(f"/proc/{pid}/environ").read_bytes() or (
                script in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found.append(pid)
    return found
