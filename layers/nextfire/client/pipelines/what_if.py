"""What the jobs of pipelines would do if some of them failed, without a call to the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nextfire.client.errors import Fault
from nextfire.client.pipelines.document import Pipeline, PipelineError
from nextfire.client.pipelines.graph import parents_first
from nextfire.client.pipelines.plan import declare
from nextfire.dataclass import dataclass
from nextfire.domain.errors import shorten
from nextfire.domain.what_if import Foreseen, what_if

_NAMED = 10  # jobs that a message names


@dataclass(frozen=True)
class WhatIf:
    """What each job would do, by id, parents before their children. `fail`: the jobs that fail.
    `outside`: parents that are not part of the pipelines; unless they fail, they succeed.
    """

    fail: Collection[str]
    outside: Collection[str]
    jobs: Mapping[str, Foreseen]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "fail": sorted(self.fail),
            "outside": sorted(self.outside),
            "items": [
                {
                    "jobId": name,
                    "action": each.action.value,
                    "ends": each.ends.value,
                    "reason": each.reason,
                }
                for name, each in self.jobs.items()
            ],
        }


def foresee(pipelines: Iterable[Pipeline], fail: Iterable[str]) -> WhatIf:
    """Decide what the jobs of *pipelines* would do if the jobs *fail* failed.

    Raises:
        PipelineError: One of *fail* is neither a job nor a parent of one; a job is declared twice;
            or the edges have a cycle.
    """
    declared, failing = declare(pipelines), frozenset(fail)
    outside = declared.outside()
    known = [*sorted(declared.jobs), *sorted(outside)]
    if unknown := sorted(failing - {*known}):
        more = f" and {len(known) - _NAMED} more" if known[_NAMED:] else ""
        remedy = f"Available: {', '.join(known[:_NAMED])}{more}."
        problem = "not a job of the pipelines"
        faults = [Fault("fail", shorten(each), problem, remedy) for each in unknown]
        raise PipelineError("A job that is to fail does not exist.", faults)
    jobs = {name: declared.jobs[name] for name in parents_first(declared.jobs)}
    return WhatIf(failing, outside, what_if(jobs, failing))
