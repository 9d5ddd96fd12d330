"""What an executor finds out of its host when it starts."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from nextfire.adapters import host_abilities
from nextfire.adapters.host_abilities import HostFeatures, probe_host


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
def test_what_is_missing_is_logged_and_the_executor_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    exit_code: int,
    found: HostFeatures,
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=exit_code))

    assert probe_host({}) == found
    assert len(caplog.messages) == (not found.namespaces) + (not found.filters)


def test_the_host_is_asked_with_nothing_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    run = subprocess.run
    seen: list[dict[str, str]] = []

    def spy(*arguments: object, **options: object) -> object:
        seen.append(options["env"])  # type: ignore[arg-type]
        return run(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(host_abilities.subprocess, "run", spy)  # type: ignore[attr-defined]

    assert probe_host({"LD_LIBRARY_PATH": "/opt"}).filters
    assert seen == [{"LD_LIBRARY_PATH": "/opt"}]
