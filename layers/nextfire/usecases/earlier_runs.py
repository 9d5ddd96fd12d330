"""Read the runs of a job before one of its runs."""

from __future__ import annotations

from collections.abc import Iterator

from nextfire.domain.decisions import EARLIER
from nextfire.domain.ids import RunKey, first_run_id
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run


def earlier_runs(runs: RunStore, key: RunKey) -> Iterator[Run]:
    """The records of the job's runs before *key*, the latest first, without those that do not
    decode. Few are needed, so pages are small.

    Raises:
        UnavailableError: The store did not answer.
    """
    last = first_run_id(key.scheduled_at)
    return runs.between(key.job, "0", last, newest_first=True, page=EARLIER, lenient=True)
