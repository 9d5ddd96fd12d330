"""The executor's client of a launcher whose keepers fork scripts."""

from __future__ import annotations

import array
import marshal
import select
import socket
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from nextfire.adapters.scripts import forked_script
from nextfire.adapters.scripts.launching import MODULES, LauncherClient


class ForkingLauncher(LauncherClient):
    """A launcher that is an interpreter of scripts. It is not replaced when it is dead."""

    forks = True

    def __init__(self, interpreter: str, environment: Mapping[str, str]) -> None:
        """Build, and start the launcher.

        Args:
            interpreter: The Python (3.11 or later) of the scripts.
            environment: The variables that all scripts have, which Python reads at its start.
        """
        self._interpreter = interpreter
        # With a HOME, Python does not look for the user's folder.
        super().__init__({**environment, "HOME": "/nonexistent"})

    @property
    def is_alive(self) -> bool:
        """Whether it has not exited."""
        return self._process.poll() is None

    def is_ready(self, within: float) -> bool:
        """Wait at most *within* seconds until it has started. False if it has not, or is dead."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(within * 1000)) and bool(self._socket.recv(16))

    def retire(self) -> None:
        """Let the launcher exit after its last program. It starts no other program."""
        self._finalizer.detach()
        self._socket.close()

    def _boot(self) -> tuple[list[str], bytes]:
        # The modules as source: the interpreter may be another version than this process.
        sources = [(each.__name__, Path(str(each.__file__)).read_text("utf-8")) for each in MODULES]
        command = [self._interpreter, "-u", "-P", "-c", forked_script.BOOT]
        return command, marshal.dumps(sources)

    def _send(self, message: bytes, descriptors: Collection[int]) -> subprocess.Popen[bytes]:
        """Send *message*, without waiting for a launcher that hangs.

        Raises:
            OSError: The launcher is dead or hangs.
        """
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self._socket.sendmsg([message], rights, socket.MSG_DONTWAIT)
        return self._process
