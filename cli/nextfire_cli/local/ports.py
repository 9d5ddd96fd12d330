"""The port on which the embedded stack listens."""

import socket
from pathlib import Path

from nextfire.client.folder import write_private


def lasting_port(host: str, file: Path) -> int:
    """The port in *file*, of the last start, if it is free, so that the address stays; else a free
    one, which is written to *file*.

    Raises:
        OSError: *file* cannot be written.
    """
    wanted = _number_in(file)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError:
            probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    if port != wanted:
        write_private(file, str(port))
    return port


def _number_in(file: Path) -> int:
    """The port in *file*; 0 if it has none: the machine may have died while it was written."""
    try:
        port = int(file.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 <= port < 2**16 else 0
