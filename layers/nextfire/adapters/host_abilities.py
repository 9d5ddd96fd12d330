"""What the host of an executor allows for the isolation of scripts. Tried when it starts."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from nextfire.adapters import confinement
from nextfire.adapters.kept_program import in_memory
from nextfire.adapters.launching import BOOT, compiled

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Abilities:
    """`namespaces`: scripts can have their own. `filters`: system calls can be refused."""

    namespaces: bool = True
    filters: bool = True


def abilities_of_host(environment: Mapping[str, str]) -> Abilities:
    """Try, in a process with *environment* alone, and log what is missing.

    An executor starts all the same: a host that allows nothing still separates scripts by their
    folders, environments and, for root, users.
    """
    with ExitStack() as stack:
        code = in_memory(compiled(confinement), stack)
        denied = subprocess.run(
            [sys.executable, "-I", "-S", "-c", BOOT, str(code)],
            env=environment,
            pass_fds=[code],
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    # Whatever else it ends with, such as a signal, it has shown neither.
    known = denied in range(4)
    found = Abilities(
        namespaces=known and not denied & confinement.NO_NAMESPACES,
        filters=known and not denied & confinement.NO_FILTER,
    )
    if not found.namespaces:
        _log.warning(
            "this host allows no namespaces: scripts see its processes and temporary files, see "
            "docs/operate/security.md"
        )
    if not found.filters:
        _log.warning(
            "this host allows no seccomp filters: no system call is refused to scripts, see "
            "docs/operate/security.md"
        )
    return found
