"""The strict stand-in for AWS between the emulated stack's parts and the emulator.

Its program, `python -m tests.strict`, is part of the checkout, which the emulated stack needs too.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.health import await_answer
from nextfire_cli.local.processes import Processes

NAME = "strict"
SCALE = 0.05
"""The emulator and the stack together do about a twentieth of what AWS allows per partition."""
ACCOUNT_CONCURRENCY = 10
"""Concurrent executions of a new account; the emulator counts them, as it makes most of them."""
_HOST = "127.0.0.1"
_PATIENCE = timedelta(seconds=30)


class StandIn:
    """Chooses an address at once, so that the emulator can hand it to functions.

    Args:
        settings: Of `tests/strict/strictness.py`, for example ``("seed=7",)``.
    """

    def __init__(self, root: Path, settings: Sequence[str]) -> None:
        self._root = root
        self._settings = (f"scale={SCALE}", *settings)
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            self._port = probe.getsockname()[1]

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self._port}"

    def emulator_settings(self) -> dict[str, str]:
        """Environment of the emulator: it hands the address to the functions that it runs."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "LAMBDA_ACCOUNT_CONCURRENCY": str(ACCOUNT_CONCURRENCY),
        }

    def start(self, processes: Processes, upstream: str, *, cwd: Path, log: Path) -> None:
        """Start it in front of *upstream*, and wait until it answers.

        Raises:
            LocalStackError: It did not start.
        """
        process = processes.spawn(
            NAME,
            [
                sys.executable, "-P", "-m", "tests.strict", "--upstream", upstream,
                "--port", str(self._port),
                *(part for setting in self._settings for part in ("--set", setting)),
            ],
            environment={
                **inherited_environment(), "PYTHONPATH": str(self._root), "TMPDIR": str(cwd),
            },
            cwd=cwd,
            log=log,
        )  # fmt: skip
        url = f"{self.address}/_strict"
        await_answer(process, url, what="The strict stand-in", within=_PATIENCE, log=log)
