"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_policies import (
    test_a_job_that_drains_ends_what_runs_and_begins_nothing,
    test_runs_that_wait_for_each_other_never_overlap,
    test_what_was_due_in_a_pause_falls_under_the_misfire_policy,
)

__all__ = [
    "test_a_job_that_drains_ends_what_runs_and_begins_nothing",
    "test_runs_that_wait_for_each_other_never_overlap",
    "test_what_was_due_in_a_pause_falls_under_the_misfire_policy",
]
