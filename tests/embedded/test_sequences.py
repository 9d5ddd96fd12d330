"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_sequences import (
    test_a_dead_link_is_fixed_and_the_chain_continues_from_there,
    test_a_sequence_is_redriven_from_a_link,
    test_jobs_with_a_schedule_run_after_their_parents,
    test_the_preview_names_the_parents_of_a_day_with_23_hours,
    user,
)

__all__ = [
    "test_a_dead_link_is_fixed_and_the_chain_continues_from_there",
    "test_a_sequence_is_redriven_from_a_link",
    "test_jobs_with_a_schedule_run_after_their_parents",
    "test_the_preview_names_the_parents_of_a_day_with_23_hours",
    "user",
]
