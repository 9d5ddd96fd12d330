"""Promises of the deployed stack that hold for the embedded stack too: the same tests."""

from tests.e2e.test_path import (
    test_a_deleted_job_does_not_run_and_its_id_can_be_used_again,
    test_a_failing_script_leaves_its_stderr_and_exit_code,
    test_a_job_runs_at_its_instant_and_leaves_its_record,
    test_a_missing_script_ends_the_run_with_that_reason,
    test_a_run_whose_worker_is_killed_is_run_again,
    test_a_schedule_changed_in_the_very_second_it_is_due,
    test_a_script_over_its_timeout_is_ended,
    test_bad_input_is_answered_with_field_value_and_remedy,
    test_the_api_answers_no_one_it_does_not_know,
)

__all__ = [
    "test_a_deleted_job_does_not_run_and_its_id_can_be_used_again",
    "test_a_failing_script_leaves_its_stderr_and_exit_code",
    "test_a_job_runs_at_its_instant_and_leaves_its_record",
    "test_a_missing_script_ends_the_run_with_that_reason",
    "test_a_run_whose_worker_is_killed_is_run_again",
    "test_a_schedule_changed_in_the_very_second_it_is_due",
    "test_a_script_over_its_timeout_is_ended",
    "test_bad_input_is_answered_with_field_value_and_remedy",
    "test_the_api_answers_no_one_it_does_not_know",
]
