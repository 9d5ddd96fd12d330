"""Attempts of HTTP callbacks with a gate, secrets and a transport in memory."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.masking import Masker
from nextfire.domain.ports.targets import AttemptResult, Hold
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.role import Credentials
from tests.builders import NOON
from tests.callbacks import LONGEST, Control, MemoryTransport, a_callback, a_running_run, response
from tests.fakes import Clock, MemorySecrets

TOKEN = "planted-token-8d1f"
SIGNING = "whsec_" + base64.b64encode(b"s" * 24).decode()
REFERENCE = {"secret": "token"}
GRANTED = response(200, b'{"access_token": "granted-9c2e", "expires_in": 120}')


class Role:
    """`RoleCredentials`."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:  # noqa: ARG002
        found = Credentials("AKIDEXAMPLE", f"secret-{TOKEN}", f"session-{TOKEN}")
        masker.add(found.secret_key, found.token)
        return found


class Identity:
    """`WebIdentity`."""

    def token(self, job: JobKey, audience: str, masker: Masker) -> str:  # noqa: ARG002
        masker.add(f"jwt-{TOKEN}")
        return f"jwt-{TOKEN}"


@dataclass
class MemoryGate:
    """`DestinationGate`."""

    hold: Hold | None = None
    reports: list[tuple[object, ...]] = field(default_factory=list)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    left: list[tuple[object, ...]] = field(default_factory=list)

    def admit(self, *asked: object, first: bool, timeout: timedelta) -> Hold | None:
        assert first
        assert timeout > timedelta()
        self.asked.append(asked)
        return self.hold

    def leave(self, *left: object, unused: bool) -> None:
        self.left.append((*left, unused))

    def report(self, *reported: object) -> None:
        self.reports.append(reported)


class Callbacks:
    """The runner, with what it uses."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.secrets = MemorySecrets()
        self.secrets.values |= {"acme/token": TOKEN, "acme/signing": SIGNING}
        self.gate = MemoryGate()
        self.seconds = 0.0
        self.target = HttpTarget(
            transport=self.transport,  # type: ignore[arg-type] # the part that is used
            secrets=self.secrets,
            authentication=Authentication(
                self.secrets, Role(), Identity(), monotonic=lambda: self.seconds
            ),
            clock=Clock(NOON),
            gate=self.gate,
            monotonic=lambda: self.seconds,
        )

    def attempt(self, job: Job | None = None, control: Control | None = None) -> AttemptResult:
        return self.target.attempt(
            job or a_callback(), a_running_run(), control or Control(), LONGEST
        )

    def headers(self, **http: Any) -> dict[str, str]:
        """The headers of a call that succeeds."""
        found = self.attempt(a_callback(**http))
        assert found.result.outcome is AttemptOutcome.SUCCEEDED, found
        assert TOKEN not in repr(found)
        return {name.lower(): value for name, value in self.transport.sent[-1].headers.items()}


@pytest.fixture
def callbacks() -> Callbacks:
    return Callbacks()
