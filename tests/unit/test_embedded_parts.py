"""The loops of the embedded stack's parts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from functions.auditor import handler as auditor
from functions.embedded import parts
from nextfire.domain.errors import UnavailableError
from nextfire.wiring import embedded


class StoppedError(Exception):
    """The part is stopped here."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_a_watcher_lives_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AWS the next invocation continues; here no one starts it, unless it dies."""
    lives: list[object] = []

    def live(life: object) -> None:
        lives.append(life)
        if len(lives) == 3:
            raise StoppedError

    settings = SimpleNamespace(life="PT125S")
    monkeypatch.setattr(parts, "WatcherSettings", SimpleNamespace(read=lambda: settings))
    monkeypatch.setattr(parts, "watcher_ports", lambda _: None)
    monkeypatch.setattr(parts, "config_of", lambda *_: None)
    monkeypatch.setattr(parts, "build_watcher", lambda *_: SimpleNamespace(live=live))

    with pytest.raises(StoppedError):
        parts._watch()  # noqa: SLF001
    assert lives == ["PT125S"] * 3


def test_an_audit_that_fails_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def audit(*_: Any) -> None:
        done.append("audit")
        if done == ["audit"]:
            raise UnavailableError("the disk is busy")

    def sleep(_: object) -> None:
        if len(done) >= 4:
            raise StoppedError

    monkeypatch.setattr(auditor, "handler", audit)
    monkeypatch.setattr(parts, "SystemClock", lambda: SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(parts, "EmbeddedSettings", SimpleNamespace(read=lambda: None))
    monkeypatch.setattr(embedded, "forget_expired", lambda _: done.append("forget"))

    with pytest.raises(StoppedError):
        parts._audit()  # noqa: SLF001
    assert done == ["audit", "audit", "forget", "audit", "forget"]
