"""The plan of a cancel of a sequence: which of its runs end, which stay, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from nextfire.dataclass import dataclass
from nextfire.domain.run import Run, RunState
from nextfire.domain.run_graph import HAS_NO_RUN, RunNode


class CancelAction(StrEnum):
    """What a cancel does with a run."""

    CANCEL = "CANCEL"
    KEEP = "KEEP"  # stays as it is


@dataclass(frozen=True, slots=True)
class CancelStep:
    """What happens to the run of *node*, and why."""

    node: RunNode
    action: CancelAction
    reason: str


def plan_cancel(nodes: Sequence[RunNode], link: str) -> list[CancelStep]:
    """Plan the cancel of the run of the job *link*, one of *nodes*, and of all runs below it that
    have not ended. *nodes*: the runs of the sequence, each after its parents.
    """
    steps, below = list[CancelStep](), {link}
    for node in nodes:
        name = node.key.job.job_id
        if name != link and not below & {*node.parents}:
            steps.append(CancelStep(node, CancelAction.KEEP, f"not below {link}"))
            continue
        below.add(name)
        if node.created_late:
            steps.append(CancelStep(node, CancelAction.KEEP, HAS_NO_RUN))
        else:
            steps.append(CancelStep(node, *_decide(node.run)))
    return steps


def _decide(run: Run | None) -> tuple[CancelAction, str]:
    if run is None:
        return CancelAction.CANCEL, "has no run yet: it will not start"
    if run.state.ended:
        return CancelAction.KEEP, f"has ended: {run.state}"
    if run.state is RunState.RUNNING:
        return CancelAction.CANCEL, "is running: its worker is asked to end it"
    return CancelAction.CANCEL, "waits: it will not start"
