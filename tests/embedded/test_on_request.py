"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_on_request import (
    test_a_pause_ends_by_itself_and_what_was_due_in_it_runs,
    test_a_request_that_comes_twice_is_one_run_with_the_payload_that_it_brought,
    test_a_skip_is_taken_back,
    test_an_occurrence_that_is_to_be_skipped_does_not_run_and_the_next_one_does,
    test_occurrences_of_the_past_run_once_each_and_the_backfill_is_over,
    test_the_later_of_two_concurrent_changes_is_rejected,
)

__all__ = [
    "test_a_pause_ends_by_itself_and_what_was_due_in_it_runs",
    "test_a_request_that_comes_twice_is_one_run_with_the_payload_that_it_brought",
    "test_a_skip_is_taken_back",
    "test_an_occurrence_that_is_to_be_skipped_does_not_run_and_the_next_one_does",
    "test_occurrences_of_the_past_run_once_each_and_the_backfill_is_over",
    "test_the_later_of_two_concurrent_changes_is_rejected",
]
