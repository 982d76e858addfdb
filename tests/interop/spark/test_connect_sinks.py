"""The same jobs as on spark-submit, on a Spark Connect server: same plans, same results, same errors."""

from __future__ import annotations

import pytest

from tests.interop.spark import test_column_fit as column_fit
from tests.interop.spark import test_epochs as epochs
from tests.interop.spark import test_fence as fences
from tests.interop.spark import test_history as history
from tests.interop.spark import test_sink_delta as append
from tests.interop.spark import test_sink_merge as merging
from tests.interop.spark import test_sink_options as options
from tests.interop.spark import test_sink_replace as replacing
from tests.interop.spark import test_spark_job as job
from tests.interop.spark import test_where as where


@pytest.fixture(scope="session")
def spark(connect_session):
    """Instead of the classic session: one on the server."""
    return connect_session


by_provenance = replacing.by_provenance
jobs = options.jobs
sink = history.sink
random_table = where.random_table


@pytest.fixture
def desk(spark, tmp_path):
    """Ten rows are in the sink, and twenty more in the source."""
    return epochs.Desk.with_ten_rows(spark, tmp_path)


@pytest.fixture
def full_desk(spark, tmp_path):
    """All thirty rows are in the sink."""
    return epochs.Desk.with_all_rows(spark, tmp_path)


# one of each kind: the rest is the same code, asked through the same API
test_written = append.test_a_batch_is_written_with_its_transaction_and_its_metadata
test_repeated = append.test_the_same_job_again_verifies_and_writes_nothing
test_cleaned_up = append.test_a_log_that_was_cleaned_up_since_the_last_batch_does_no_harm
test_many_commits = history.test_many_commits_are_judged_as_few_are
test_mismatch = job.test_a_row_count_that_is_not_the_plans_blocks_and_a_retry_does_not_forget_it
test_lost_file = job.test_the_job_stops_at_the_first_batch_that_fails_and_keeps_what_was_done
test_manifest_gone = job.test_a_manifest_that_is_gone_is_named
test_function = job.test_a_python_function_that_fails_in_a_worker_is_named_with_line_and_file
test_misspelt = options.test_a_column_that_a_function_expects_is_reported_as_an_error_of_the_function
test_constants = options.test_constants_are_written_with_their_types_and_rows_are_still_counted
test_like_source = options.test_a_table_is_created_with_the_sources_partitions_and_properties
test_zombie = fences.test_a_zombie_that_checked_the_sink_before_the_fence_is_skipped_by_delta_and_reports_it
test_fenced = fences.test_an_existing_fence_is_found_and_not_written_again
test_cast = column_fit.test_narrower_values_go_into_wider_columns_of_every_sink
test_unfit = column_fit.test_values_that_the_sink_cannot_hold_are_refused_in_every_sink
test_replaced = replacing.test_a_later_generation_replaces_what_an_earlier_one_wrote_and_nothing_else
test_kept = merging.test_rows_are_merged_as_they_were_checked_although_what_transform_joins_changes
test_removed = epochs.test_a_rewind_with_delete_has_each_row_once
test_typed_too_late = epochs.test_a_statement_under_the_transaction_of_a_fence_changes_nothing_once_the_run_has_begun
test_filtered = where.test_random_predicates_mean_what_they_mean_to_spark_and_leave_out_no_file_with_a_row
test_filtered_by_partition = where.test_partition_values_of_each_type_leave_out_no_file_with_a_row_in_any_zone
