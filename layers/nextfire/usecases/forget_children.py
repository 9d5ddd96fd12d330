"""Removes the ids of deleted children from their parents."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore

FEW_CHILDREN = 10
"""Number of children of which deleted ones stay: an executor looks at them one by one anyway, and
sends the runs of no more than these itself.
"""
UNCHANGED_FOR = timedelta(hours=1)
"""Requests that add a child write its parent, and store the child within seconds. So all children
of a parent that was not written for this time are stored.
"""


def may_forget(parent: Job, now: datetime) -> bool:
    """Whether ids of deleted children may be removed from *parent*."""
    if parent.state.ended or len(parent.children) <= FEW_CHILDREN:
        return False
    return parent.updated_at + UNCHANGED_FOR <= now


def must_be_written(parent: Job, now: datetime) -> bool:
    """Whether a request that adds a child has to write *parent*, which lists its id already: the
    child may have been deleted, and an auditor may be about to remove the id. A change of *parent*
    makes it start again.
    """
    many = len(parent.children) > FEW_CHILDREN
    return many and parent.updated_at + UNCHANGED_FOR / 2 <= now


def forget_children(jobs: JobStore, parent: Job, now: datetime) -> None:
    """Remove the ids of children that were deleted, or lost the edge, from *parent*, if it
    `may_forget` them and is not changed meanwhile. *parent*: by a consistent read, with its
    payload.

    Raises:
        UnavailableError: The store did not answer.
    """
    if not may_forget(parent, now):
        return
    keys = [JobKey(parent.key.tenant, child) for child in parent.children]
    found = jobs.get_many(keys, consistent=True)

    def is_deleted(key: JobKey) -> bool:
        child = found.get(key)
        if child is None or isinstance(child, Exception):
            return child is None
        edge = child.definition.edge_from(parent.key.job_id)
        return edge is None or child.state is JobState.CANCELLED

    kept = tuple(key.job_id for key in keys if not is_deleted(key))
    if len(kept) < len(keys):
        changed = replace(parent, revision=parent.revision + 1, children=kept)
        jobs.update(changed, None, now)
