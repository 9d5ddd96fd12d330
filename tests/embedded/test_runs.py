"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_runs import (
    test_a_checkpoint_outlives_its_worker_and_a_result_is_on_record,
    test_a_run_that_waits_for_its_next_attempt_is_cancelled_at_once,
    test_a_run_that_waits_for_its_retry_starts_now_on_request,
    test_a_running_script_is_cancelled_and_not_tried_again,
    test_a_script_that_fails_is_tried_again_later_and_later,
    test_fifty_runs_end_once_each_though_their_workers_are_killed,
    test_what_a_script_prints_is_seen_while_it_runs_and_all_of_it_afterwards,
)

__all__ = [
    "test_a_checkpoint_outlives_its_worker_and_a_result_is_on_record",
    "test_a_run_that_waits_for_its_next_attempt_is_cancelled_at_once",
    "test_a_run_that_waits_for_its_retry_starts_now_on_request",
    "test_a_running_script_is_cancelled_and_not_tried_again",
    "test_a_script_that_fails_is_tried_again_later_and_later",
    "test_fifty_runs_end_once_each_though_their_workers_are_killed",
    "test_what_a_script_prints_is_seen_while_it_runs_and_all_of_it_afterwards",
]
