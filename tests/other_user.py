"""Runs code as a user who is not root, for tests of permissions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

OTHER_USER = 65534


def as_other_user(act: Callable[[], None]) -> int:
    """*act* in another process, without the rights of root. Returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        if os.geteuid() == 0:
            os.setuid(OTHER_USER)
        act()
        status = 0
    except BaseException:  # noqa: BLE001 — the process ends here
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
