"""A schema that does not fit is described at once, side by side, with the likelier cause."""

from __future__ import annotations

from airflow_provider_fds.spark.sink_columns import describe_conflicts

BATCH = [("id", "bigint"), ("name", "string"), ("amount", "double"), ("day", "date")]


def test_missing_columns_and_other_types_are_shown_side_by_side() -> None:
    sink = [("ID", "string"), ("amount", "double"), ("day", "date"), ("note", "string")]
    text = describe_conflicts(BATCH, sink, "s3://lake/t", "DeltaTableSink")
    assert text.startswith("the batch has columns name that the sink s3://lake/t lacks, and columns of other types")
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert lines == [
        ["column", "batch", "sink"],
        ["id", "bigint", "string"],
        ["name", "string", "-"],
        ["note", "-", "string"],
    ]
    assert "merge_schema=True" in text
    assert "`fds rebind STREAM" in text
    assert "may not be the table" not in text


def test_a_sink_that_has_hardly_any_of_the_columns_is_probably_a_mistyped_one() -> None:
    text = describe_conflicts(BATCH, [("id", "bigint"), ("city", "string")], "s3://lake/t", "DeltaTableSink")
    assert "may not be the table that you mean: correct its URI, then run `fds rebind STREAM" in text


def test_wide_tables_stay_within_the_limit_of_a_report() -> None:
    batch = [(f"column_{number}_{'x' * 40}", "struct<" + "a:int," * 99 + ">") for number in range(100)]
    text = describe_conflicts(batch[:90], batch[50:], "s3://lake/t", "DeltaTableSink")
    assert "and 52 more" in text
    assert "and 42 more that the sink" in text
    assert len(text) < 1500
