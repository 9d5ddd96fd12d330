"""What `nextfire up --emulator` waits for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nextfire_cli.local import health
from nextfire_cli.local.emulator import Emulator
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


@pytest.mark.parametrize("text", ["", "x", "99999"])
def test_a_damaged_file_with_the_port_of_the_emulator_is_named(tmp_path: Path, text: str) -> None:
    """The machine may have died while it was written."""
    emulator = Emulator(tmp_path)
    emulator.data.mkdir()
    (tmp_path / "port").write_text(text)

    with pytest.raises(LocalStackError, match=r"port does not hold .* nextfire down"):
        emulator.choose_port()
