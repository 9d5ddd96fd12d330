"""A package index, and scripts whose packages their executor installs from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.packages import PackagePolicy
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
from tests.indexes import Index, serving, wheel
from tests.places import open_folder
from tests.supervisors import Watch

PASSWORD = "pa55-of-the-index-b41c"
CREDENTIALS = f"reader:{PASSWORD}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can access."""
    with open_folder("test-security-packages-") as path:
        yield path


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as index:
        index.add("demo-pkg", wheel("demo-pkg"))
        yield index


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that runs scripts as its own user, and sees all processes."""
    usual = os.geteuid() or 1000
    monkeypatch.setattr("nextfire.adapters.scripts.sandboxes.os.geteuid", lambda: usual)
    monkeypatch.setattr(
        "nextfire.adapters.scripts.sandboxes.probe_host", lambda _: HostFeatures(namespaces=False)
    )


def runner(folder: Path, index: Index, **policy: Any) -> ProcessScriptRunner:
    secret = index.credentials
    return ProcessScriptRunner(
        packages="inline",
        package_index=PackageIndex(index.url, None if secret is None else lambda: str(secret)),
        package_policy=PackagePolicy(**policy),
        temp_root=folder,
    )


def script(*dependencies: str, locked: list[str] | None = None, body: str = "") -> str:
    lines = ["# /// script", f"# dependencies = {list(dependencies)!r}"]
    if locked is not None:
        lines += ["# [tool.nextfire]", f"# locked = {locked!r}"]
    return "\n".join([*lines, "# ///", body or "print('ran')", ""])


def run(of: ProcessScriptRunner, source: str, *, tenant: str = "acme") -> ScriptExit:
    call = ScriptCall("script.py", source.encode(), "{}", timedelta(seconds=60), tenant)
    return of.run(call, Watch())


def refused(end: ScriptExit, why: str, *, permanent: bool = True) -> None:
    assert (end.exit_code, end.stdout) == (None, "")
    assert end.error is not None
    assert why in end.error
    assert end.permanent is permanent
