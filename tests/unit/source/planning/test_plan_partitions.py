"""Plans of streams with ``where`` on partition columns. Numbers: conformance cases."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError, StoppedError

DE = {"where": "country = 'DE'"}


@pytest.fixture
def table(log_builder: Any) -> Any:
    fields = [log_builder.field("id"), log_builder.field("country", "string"), log_builder.field("day", "date")]
    log_builder.create(fields, ["country", "day"])
    return log_builder


def add(builder: Any, path: str, country: str | None, day: str = "2026-01-01", **overrides: Any) -> dict[str, Any]:
    return dict(builder.add(path, partitionValues={"country": country, "day": day}, **overrides))


def append(builder: Any, *countries: str | None, **kw: Any) -> int:
    version = builder.version + 1
    found = builder.commit(
        *(add(builder, f"{version}{country}{i}", country) for i, country in enumerate(countries)), **kw
    )
    return int(found)


def test_files_are_pruned_and_keep_their_indexes(plan: Any, table: Any) -> None:
    append(table, "FR", "DE", None, "DE")
    found = plan(1, **DE)
    assert found.paths == ["1DE1", "1DE3"]
    assert [file.index for file in found.batches[0].files] == [1, 3]
    assert found.ends == [(2, "BASE", False)]


def test_limits_count_only_what_passes(plan: Any, table: Any) -> None:
    append(table, *["FR"] * 5, "DE", *["FR"] * 5, "DE", "DE", "FR")
    append(table, "FR")
    append(table, "DE")
    for limits in ({"max_files_per_batch": 2}, {"max_bytes_per_batch": 2000}):
        found = plan(1, **DE, **limits)
        assert found.files == [["1DE5", "1DE11"], ["1DE12", "3DE0"]]
        assert found.ends == [(1, 11, False), (4, "BASE", False)]
    found = plan(1, **DE, max_versions_per_batch=1)
    assert found.files == [["1DE5", "1DE11", "1DE12"], ["3DE0"]]
    found = plan(1, **DE, whole_commits=True, max_files_per_batch=3)
    assert found.files == [["1DE5", "1DE11", "1DE12"], ["3DE0"]]


def test_a_commit_that_is_left_out_whole_is_named_as_skipped_and_one_in_part_is_not(plan: Any, table: Any) -> None:
    append(table, "FR", "DE")
    append(table, "FR", "FR")
    append(table, None)
    found = plan(1, **DE)
    assert found.skipped == {2: "where", 3: "where"}
    (batch,) = found.batches
    assert [skip.reason for skip in batch.skipped] == [
        "where excludes all of its 2 data files, by partition values and statistics",
        "where excludes all of its 1 data files, by partition values and statistics",
    ]


def test_a_range_that_is_left_out_moves_the_offset_without_files(plan: Any, table: Any) -> None:
    append(table, "FR")
    append(table, "FR")
    found = plan(1, **DE)
    assert found.files == [[]]
    assert found.ends == [(3, "BASE", False)]
    assert len(found.batches[0].skipped) == 2


def test_the_initial_snapshot_is_pruned_and_taken_up_at_its_own_indexes(plan: Any, table: Any) -> None:
    append(table, "FR", "DE", "FR", "DE", "DE")
    append(table, "FR")
    start = plan.snapshot_start()
    whole = plan(start)
    indexes = [file.index for file in whole.batches[0].files if file.add.path.startswith("1DE")]
    append(table, "DE")
    found = plan(start, **DE, max_files_per_batch=2)
    assert found.files == [["1DE1", "1DE3"], ["1DE4", "3DE0"]]
    assert [file.index for batch in found.batches for file in batch.files] == [*indexes, 0]
    assert plan(found.batches[0].end, **DE).files == [["1DE4", "3DE0"]]


def test_an_initial_snapshot_that_is_left_out_whole_costs_nothing_and_is_named(plan: Any, table: Any) -> None:
    append(table, "FR", "FR")
    start = plan.snapshot_start()
    append(table, "DE")
    found = plan(start, **DE, max_versions_per_batch=1)
    assert found.files == [["2DE0"]]
    assert found.skipped == {1: "where"}


def test_both_filters_together_leave_out_what_either_does(plan: Any, table: Any) -> None:
    append(table, "FR", "DE", "DE")
    append(table, "FR", "DE")
    found = plan(1, **DE, exclude_regex="^1DE2$|^2DE")
    assert found.paths == ["1DE1"]
    assert found.skipped == {2: "exclude_regex"}


def test_a_commit_the_stream_may_not_pass_stops_it_whatever_its_partitions(plan: Any, table: Any) -> None:
    append(table, "DE")
    table.commit(table.remove("x", partitionValues={"country": "FR", "day": "2026-01-01"}), operation="DELETE")
    found = plan(1, **DE)
    assert found.paths == ["1DE0"]
    assert isinstance(found.outcome.error, StoppedError)


@pytest.mark.parametrize("text", ["nothing = 1", "country = 1"])
def test_a_predicate_that_does_not_fit_fails_the_first_plan_even_without_data(plan: Any, table: Any, text: str) -> None:
    for start in (plan.snapshot_start(), 0):
        if start != 0:
            append(table, "DE")
        with pytest.raises(ConfigurationError, match="where"):
            plan(start, where=text)


def test_changes_are_pruned_too(plan: Any, log_builder: Any) -> None:
    fields = [log_builder.field("id"), log_builder.field("country", "string")]
    log_builder.create(fields, ["country"], {"delta.enableChangeDataFeed": "true"})
    values = {country: {"partitionValues": {"country": country}} for country in ("DE", "FR")}
    log_builder.commit(log_builder.add("a", **values["DE"]), log_builder.add("b", **values["FR"]))
    log_builder.commit(log_builder.remove("a", **values["DE"]), log_builder.remove("b", **values["FR"]))
    log_builder.commit(
        *({"cdc": {"path": f"c{country}", "size": 1, **values[country]}} for country in ("FR", "DE")),
        log_builder.add("z", **values["DE"]),
    )
    log_builder.commit({"cdc": {"path": "d", "size": 1, **values["FR"]}})
    found = plan(1, **DE, read_change_feed=True)
    assert found.paths == ["a", "a", "cDE"]
    assert found.skipped == {4: "where"}
    assert [file.index for batch in found.batches for file in batch.files] == [0, 0, 1]


@pytest.mark.parametrize("options", [{}, DE, {"where": "country = 'DE' AND day > DATE '2026-01-01'"}], ids=str)
def test_79_a_table_with_several_partition_columns_is_taken_up_at_every_file(
    plan: Any, table: Any, options: dict[str, str]
) -> None:
    for version in (1, 2):
        table.commit(*(add(table, f"{version}{c}{d}", c, f"2026-01-0{d}") for c in ("DE", "FR", None) for d in (1, 2)))
    whole = plan(1, **options)
    assert len(whole.paths) == (12 if not options else 4 if options == DE else 2)
    for version in (1, 2):
        for index in range(-1, 6):
            position = plan.at(version, index) if index >= 0 else plan.at(version)
            rest = [f.add.path for b in whole.batches for f in b.files if (f.version, f.index) > (version, index)]
            assert plan(position, **options).paths == rest


def test_a_table_that_is_replaced_without_data_under_the_same_id_is_not_news(plan: Any, table: Any) -> None:
    append(table, "DE")
    fields = [table.field("id"), table.field("country", "string"), table.field("day", "date")]
    table.commit(table.metadata(fields, ["country", "day"]), operation="CREATE OR REPLACE TABLE")
    append(table, "DE")
    assert plan(1).paths == ["1DE0", "3DE0"]
    assert plan(2).batches[0].first_version == 2


def test_a_file_that_a_restore_adds_again_arrives_twice_in_two_batches(plan: Any, table: Any) -> None:
    append(table, "DE")
    table.commit(table.remove("1DE0"), operation="DELETE")
    table.commit(add(table, "1DE0", "DE"), operation="RESTORE")
    found = plan(1, **DE, ignore_deletes=True)
    assert found.files == [["1DE0"], ["1DE0"]]
    assert found.skipped == {2: "ignore_deletes"}


def test_a_plan_that_resumes_at_excluded_files_of_a_commit_does_not_record_it_as_skipped(plan: Any, table: Any) -> None:
    table.commit(add(table, "a", "DE"), add(table, "b", "DE"))
    found = plan(1, exclude_regex="^b", max_files_per_batch=1)
    assert found.ends == [(1, 0, False), (2, "BASE", False)]
    assert found.skipped == {}
    assert plan(found.batches[0].end, exclude_regex="^b", max_files_per_batch=1).batches == found.batches[1:]
    assert plan(plan.at(1, 0), where="country = 'FR' OR day IS NULL").skipped == {1: "where"}


def test_spark_filters_the_rows_only_where_the_log_does_not_tell_what_a_value_means(
    plan: Any, log_builder: Any
) -> None:
    log_builder.create([log_builder.field("id"), log_builder.field("at", "timestamp")], ["at"])
    log_builder.commit(log_builder.add("a", partitionValues={"at": "2026-01-02T00:00:00Z"}))
    log_builder.commit(log_builder.add("b", partitionValues={"at": "2026-01-01 20:00:00"}))
    options = {"where": "at >= '2026-01-02'", "max_versions_per_batch": 1}
    certain, unsure = plan(1, **options).batches
    assert (certain.where, certain.num_rows) == ("", 10)
    assert (unsure.where, unsure.num_rows) == ("`at` >= TIMESTAMP '2026-01-02 00:00:00.000000Z'", None)

    assert plan(1, 1, columns=["id"], **options).files == [["a"]]
    with pytest.raises(ConfigurationError, match="where uses 'at', which option 'columns' leaves out"):
        plan(1, columns=["id"], **options)


def test_a_file_without_partition_values_has_null(plan: Any, table: Any) -> None:
    table.commit(add(table, "a", None), table.add("b", partitionValues=None))
    assert plan(1, where="country IS NULL").paths == ["a", "b"]
    assert plan(1, **DE).paths == []
