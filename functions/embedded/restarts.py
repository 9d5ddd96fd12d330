"""Decides when a part of the embedded stack that died is started again."""

from __future__ import annotations

import signal
from collections.abc import Sequence

MOST_DEATHS = 8
"""Deaths within `WITHIN` seconds after which a part is not started again."""
WITHIN = 60.0
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
"""Seconds. The pause doubles with each death within `WITHIN`."""
_BY_SIGNAL = 128
"""Added to the number of a signal: how a worker's supervisor, like a shell, reports a child that
was killed.
"""


def pause_before_restart(deaths: Sequence[float]) -> float | None:
    """Seconds until the part is started again; None to give up.

    *deaths*: the times of its deaths in seconds, in order; the last one is now.
    """
    recent = sum(each > deaths[-1] - WITHIN for each in deaths)
    return None if recent >= MOST_DEATHS else min(FIRST_PAUSE * 2 ** (recent - 1), MAX_PAUSE)


def cause_of_death(status: int) -> str:
    """*status* in words: an exit code, or minus the number of a signal."""
    number = -status if status < 0 else status - _BY_SIGNAL
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}" if status < 0 else f"exited with code {status}"
