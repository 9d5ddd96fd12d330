"""The host under attack, and a folder on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.hosts import Host, hosts


@pytest.fixture(params=hosts(), ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.param
    return found


@pytest.fixture
def folder(host: Host) -> Iterator[Path]:
    """Where the host's executor works: its own."""
    path = Path(tempfile.mkdtemp(prefix="test-security-"))
    path.chmod(0o711)
    if host.user is not None:
        shutil.chown(path, host.user)
    yield path
    shutil.rmtree(path)
