"""Judges what the targets of sequences were passed about the runs of their parents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from nextfire.domain.edges import Which
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.simulation.sequences import Sequences

if TYPE_CHECKING:
    from tests.evidence import Stored
    from tests.simulation.processes import Started


@dataclass(frozen=True)
class UpstreamJudge:
    """`ever`: all stored versions of each job."""

    sequences: Sequences
    ever: Mapping[tuple[JobKey, str], list[Stored]]

    def wrong(self, started: Collection[Started]) -> Iterator[str]:
        """Check what the targets were passed about the runs of their parents."""
        for each in started:
            key = parse_execution_id(self.sequences.tenant, each.execution_id)
            seen = self.sequences.seen[key.job][key.scheduled_at][key]
            claims = [
                s.at
                for s in seen
                if s.run.state is RunState.RUNNING and s.run.attempt == each.attempt
            ]
            names = [
                {edge.job for edge in job.definition.after} for job in self._before(key, each.at)
            ]
            if not any(names) or not claims:
                continue
            passed = json.loads(each.upstream or "{}")
            jobs = self._before(key, each.at)
            if {*passed} not in names:
                yield f"{each.execution_id} was passed the parents {[*passed]}"
            for name, about in passed.items():
                edges = [job.definition.edge_from(name) for job in jobs]
                if any(edge and edge.which is not Which.SAME for edge in edges):
                    continue
                allowed = [*self._described(name, key, claims[0], each.at)]
                if about not in allowed:
                    yield f"{each.execution_id} was passed {name}: {about}, not {allowed}"

    def _described(
        self, name: str, key: RunKey, since: datetime, until: datetime
    ) -> Iterator[dict[str, object]]:
        runs = self.sequences.seen[JobKey(key.job.tenant, name)][key.scheduled_at]
        if not any(seen[0].at <= since for seen in runs.values()):
            yield {"state": "ABSENT", "executionId": None, "result": None}
        for parent, seen in runs.items():
            current = [s for s in seen if s.at <= since][-1:]
            for each in [*current, *(s for s in seen if since < s.at <= until)]:
                value = each.run.result
                result = json.loads(value.text) if value and value.text else None
                state = each.run.state.value
                yield {"state": state, "executionId": parent.execution_id, "result": result}

    def _before(self, key: RunKey, at: datetime) -> list[Job]:
        return [each.job for each in self.ever.get((key.job, key.uid), []) if each.written_at <= at]
