"""The settings of the workers of an embedded stack."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nextfire.settings import set_worker_environment


def test_a_worker_has_all_settings_of_its_pool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pools = {"a": {"pool": "a", "lease": "PT20S"}, "b": {"pool": "b"}}
    settings = {"PARENT": "1", "PORT": "8080", "LOGS": str(tmp_path), "POOLS": json.dumps(pools)}
    for name, value in settings.items():
        monkeypatch.setenv(f"NEXTFIRE_SERVER_{name}", value)
    for name in ("NEXTFIRE_POOL", "NEXTFIRE_LEASE"):
        monkeypatch.setenv(name, "before")

    set_worker_environment("a")

    environment = os.environ  # noqa: TID251 — read by the worker, started next
    assert (environment["NEXTFIRE_POOL"], environment["NEXTFIRE_LEASE"]) == ("a", "PT20S")
