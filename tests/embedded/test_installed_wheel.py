"""The wheel, installed alone, calls the embedded stack: as a command and as a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.conftest import Stack
from tests.infra.test_wheel import environment, run, wheel  # noqa: F401 — fixtures

_CALL = """
import sys
from nextfire import Client

with Client(sys.argv[1], open(sys.argv[2]).read().strip()) as client:
    client.delete_job(client.create_job({"type": "MANUAL", "target": {"handler": "count"}}).job_id)
    print(client.get_health().status, len(client.list_jobs().items))
"""


@pytest.mark.parametrize("environment", ["highest"], indirect=True)
def test_an_installed_wheel_calls_the_stack(
    stack: Stack,
    environment: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    endpoint, key = stack.info.endpoint, tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(stack.info.api_key)

    said = run(environment, "python", "-c", _CALL, endpoint, str(key), folder=tmp_path)
    login = ("login", endpoint, "--key-file", str(key), "--name", "local")
    run(environment, "nextfire", *login, folder=tmp_path)
    quotas = run(environment, "nextfire", "quotas", folder=tmp_path)

    assert said.startswith("ok ")
    assert "runsPerMinute" in quotas
