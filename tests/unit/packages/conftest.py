"""Scripts with packages, run by real processes with a file-based index."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
from tests.supervisors import Watch


def inline(*lines: str) -> str:
    return "\n".join(["# /// script", *(f"# {line}" for line in lines), "# ///", ""])


# Archives


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="test-packages-"))
    path.chmod(0o755)
    (path / "work").mkdir(mode=0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def plain(folder: Path) -> ProcessScriptRunner:
    """A runner that does not install packages."""
    return ProcessScriptRunner(temp_root=folder / "work")


def run(
    runner: ProcessScriptRunner,
    source: str | bytes,
    *,
    name: str = "script.py",
    tenant: str = "acme",
    watch: Watch | None = None,
    timeout: float = 20,
) -> ScriptExit:
    data = source.encode() if isinstance(source, str) else source
    call = ScriptCall(name, data, '{"n": 1}', timedelta(seconds=timeout), tenant)
    return runner.run(call, watch or Watch())
