"""How an executor probes the isolation features of its host at startup."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from nextfire.adapters.scripts import host_abilities
from nextfire.adapters.scripts.host_abilities import HostFeatures, probe_host


@pytest.mark.parametrize(
    ("exit_code", "found"),
    [
        (0, HostFeatures(namespaces=True, filters=True)),
        (1, HostFeatures(namespaces=False, filters=True)),
        (2, HostFeatures(namespaces=True, filters=False)),
        (3, HostFeatures(namespaces=False, filters=False)),
        (-9, HostFeatures(namespaces=False, filters=False)),
    ],
)
def test_missing_host_features_are_logged_and_do_not_stop_the_executor(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    exit_code: int,
    found: HostFeatures,
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=exit_code))

    assert probe_host({}) == found
    assert len(caplog.messages) == (not found.namespaces) + (not found.filters)


def test_the_host_probe_inherits_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    run = subprocess.run
    environments: list[dict[str, str]] = []

    def spy(*arguments: object, **options: object) -> object:
        environments.append(options["env"])  # type: ignore[arg-type]
        return run(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(host_abilities.subprocess, "run", spy)  # type: ignore[attr-defined]

    assert probe_host({"LD_LIBRARY_PATH": "/opt"}).filters
    assert environments == [{"LD_LIBRARY_PATH": "/opt"}]
