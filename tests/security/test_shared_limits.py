"""Limits of the kernel that count for a user: scripts may share theirs with the executor."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.security.hosts import Host, Script

USUAL = 1024
"""The usual limit of open files. The hard limit is far higher."""
IN_FLIGHT = """
import array, os, socket, time
null, kept, full = os.open(os.devnull, os.O_RDONLY), [], 0
while full < 3:
    kept.append(socket.socketpair())
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 253))
    try:
        while True:
            kept[-1][0].sendmsg([b"x"], [rights], socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass
    except OSError:
        full += 1
print("full", flush=True)
time.sleep(4)
"""
"""Sends as many descriptors as its user may have in flight, and receives none."""


@contextmanager
def usual_limit() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_in_flight_keep_no_other_script_from_starting(host: Host, folder: Path) -> None:
    with usual_limit():
        report = host.run(folder, [Script(IN_FLIGHT), Script("print('ran')", after=True)])

    [[_, other]] = report.ends
    assert (other["printed"], other["error"]) == ("ran\n", None)
