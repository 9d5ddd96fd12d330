"""What was requested in a history and must show in its records, and what was seen of them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run
from tests.evidence import Stored
from tests.simulation.flow import KeyedCreation, ManualRunRequest


class Requested:
    """The requests of a history, with their answers, and all that was ever stored."""

    def __init__(self) -> None:
        self.changes: Counter[JobKey] = Counter()
        self.cancelled: dict[RunKey, int] = {}
        """The runs whose cancel request was answered, with the number of attempts at that time."""
        self.asked_to_cancel: set[RunKey] = set()
        self.ever: dict[tuple[JobKey, str], list[Stored]] = {}
        """All stored versions of each job."""
        self.removed: dict[tuple[JobKey, str], datetime] = {}
        """When jobs were removed after their retention."""
        self.vanished: dict[RunKey, Run] = {}
        """The records that were deleted, as they were."""
        self.decided: dict[tuple[RunKey, datetime], datetime] = {}
        """By run and sending time: the instant for which a watcher decided to send it."""
        self.unreadable: set[JobKey] = set()
        """Jobs that were undecodable for a while."""
        self.redriven: dict[RunKey, int] = {}
        """The runs whose redrive was answered, with the dispatch number in the answer."""
        self.hastened: dict[RunKey, int] = {}
        """The runs whose retry was brought forward, with the dispatch number in the answer."""
        self.asked: list[ManualRunRequest] = []
        self.keyed: list[KeyedCreation] = []
        self.skipped: set[RunKey] = set()
        """The occurrences whose skip was acknowledged."""
        self.unskipped: set[RunKey] = set()
        """The skips that were undone, even before they were acknowledged, and not requested again.
        """
        self.asked_to_skip: set[JobKey] = set()
        self.asked_to_unskip: set[JobKey] = set()
        self.drained: list[tuple[Job, datetime]] = []
        """Jobs as they were when reported as drained, with the time of the report."""
        self.backfills: dict[str, Job | None] = {}
        """By backfill id, the job in the answer; None: not answered."""
