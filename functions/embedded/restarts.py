"""Decides when a part of the embedded stack that died is started again."""

from __future__ import annotations

import signal
from collections.abc import Sequence

MOST_DEATHS = 5
"""Deaths within `WITHIN` seconds after which a part is not started again."""
WITHIN = 60.0
FIRST_PAUSE = 0.1  # seconds; doubled with each death within `WITHIN`


def pause_before_restart(deaths: Sequence[float]) -> float | None:
    """Seconds until the part is started again; None to give up.

    *deaths*: the times of its deaths in seconds, in order; the last one is now.
    """
    recent = sum(each > deaths[-1] - WITHIN for each in deaths)
    return None if recent >= MOST_DEATHS else FIRST_PAUSE * 2 ** (recent - 1)


def cause_of_death(status: int) -> str:
    """*status* in words: an exit code, or minus the number of a signal."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
