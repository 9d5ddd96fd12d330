"""Probes which isolation features the host allows. Runs when an executor starts."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack

from nextfire.adapters.scripts import confinement
from nextfire.adapters.scripts.kept_program import in_memory
from nextfire.adapters.scripts.launching import BOOT, compiled
from nextfire.dataclass import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """`namespaces`: scripts can have their own. `filters`: seccomp filters work."""

    namespaces: bool = True
    filters: bool = True


def probe_host(environment: Mapping[str, str]) -> HostFeatures:
    """Probe the host in a child process with *environment* only, and log missing features.

    The executor starts in any case: without these features, scripts are still separated by folders,
    environments and, if the executor is root, users.
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
    # Any other exit code, such as that of a signal, proves neither feature.
    known = denied in range(4)
    found = HostFeatures(
        namespaces=known and not denied & confinement.NO_NAMESPACES,
        filters=known and not denied & confinement.NO_FILTER,
    )
    if not found.namespaces:
        _log.warning(
            "this host does not allow namespaces: scripts see its processes and temporary files, "
            "see docs/operate/security.md"
        )
    if not found.filters:
        _log.warning(
            "this host does not allow seccomp filters: scripts may use all system calls, see "
            "docs/operate/security.md"
        )
    return found
