"""What `nextfire up --emulator` waits for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nextfire_cli.local import health
from nextfire_cli.local.state import LocalStackError


def test_an_emulator_that_has_ended_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_HEALTHY_WITHIN", 0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"

        with pytest.raises(LocalStackError, match=r"See .*emulator\.log"):
            health.await_health(endpoint, log=tmp_path / "emulator.log")
