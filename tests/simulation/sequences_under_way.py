"""Judges how many sequences of a job were under way at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.simulation.deadline_judge import CLOCKS
from tests.simulation.sequences import Seen, Sequences


@dataclass(frozen=True)
class SequencesUnderWay:
    """`unchanged`: the jobs whose edges never changed."""

    sequences: Sequences
    unchanged: Collection[Job]

    def too_many(self, root: Job) -> Iterator[str]:
        """No more than `maxParallel` sequences were under way at once: from the first start of the
        first run until it, and its children that wait for nothing else, have ended the first time.
        """
        most = root.definition.max_parallel
        if most is None:
            return
        children = [
            job
            for job in self.unchanged
            if job.definition.type == "AFTER"
            and [edge.job for edge in job.definition.after] == [root.key.job_id]
        ]
        spans = []
        for at, runs in self.sequences.seen[root.key].items():
            first = [seen for key, seen in runs.items() if key.uid == root.uid]
            begun = [s.at for seen in first for s in seen if s.run.state is RunState.RUNNING]
            if begun:
                root_end = max(self._first_end(seen) for seen in first)
                ends = [root_end]
                for child in children:
                    # One that no executor takes is not awaited for longer than a join.
                    wait = child.definition.join_timeout + child.definition.after[0].delay - CLOCKS
                    below = self.sequences.seen[child.key][at].values()
                    ends += [min(self._first_end(seen), root_end + wait) for seen in below]
                # At rest, one that ends in the instant in which it begins was before the others.
                if max(ends) > begun[0]:
                    spans.append((begun[0], max(ends), at))
        for begun_at, _, at in spans:
            others = [t for since, until, t in spans if t != at and since <= begun_at < until]
            if len(others) >= most:
                yield f"{root.key.job_id} of {at} began while {others} were under way"

    def _first_end(self, seen: Collection[Seen]) -> datetime:
        """When the run ended first, by its record; long ago, if it never did."""
        return min(
            (s.at for s in seen if s.run.state.ended), default=datetime.min.replace(tzinfo=UTC)
        )
