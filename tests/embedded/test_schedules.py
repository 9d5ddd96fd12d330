"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_schedules import test_each_type_of_schedule_runs_at_the_instants_that_were_named

__all__ = [
    "test_each_type_of_schedule_runs_at_the_instants_that_were_named",
]
