"""Four versions of 5, 10, 20 and 40 rows: which of them each start and end reads. Numbers: cases of earlier systems.

Rows and keys are both counted, so that a lost row and a doubled one show.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.end import known_end
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start

#: Versions 0 to 3: col1 is 0-4, 5-14, 15-34, 35-74. They are committed at 00:00, 00:01, 00:02 and 00:03.
ROWS = (5, 10, 20, 40)
#: Rows up to each version, and the lowest key of it.
UP_TO = (5, 15, 35, 75)
FIRST_KEY = (0, 5, 15, 35)


@pytest.fixture
def table(log_builder: Any) -> Any:
    for rows in ROWS:
        append(log_builder, rows)
    return log_builder


def append(builder: Any, rows: int) -> int:
    """Commit one file with the next so many keys; the first commit creates the table."""
    first = sum(pq.read_metadata(path).num_rows for path in builder.root.glob("*.parquet"))
    name = f"part-{builder.version + 1}.parquet"
    builder.root.mkdir(exist_ok=True)
    pq.write_table(pa.table({"col1": list(range(first, first + rows))}), builder.root / name)
    created = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, builder.metadata([builder.field("col1")])]
    added: int = builder.commit(*(created if builder.version < 0 else []), builder.add(name, rows=rows))
    return added


def keys(plan: Any, **given: Any) -> list[int]:
    """Return the keys that a stream with these options reads now, in order; none of them comes twice."""
    options = SourceOptions.parse(given)
    start = resolve_start(plan.log, options)
    assert start is not None
    offset = start.offset if isinstance(start, SnapshotStart) else start
    end = known_end(plan.log, options, offset)
    found = plan(offset, target=None if end is None else end.target(offset, plan.builder.version), **given)
    assert found.outcome.error is None
    seen = [key for path in found.paths for key in pq.read_table(plan.builder.root / path)["col1"].to_pylist()]
    assert len(set(seen)) == len(seen) == sum(batch.num_rows for batch in found.batches)
    return sorted(seen)


def at(minute: int, milliseconds: int = 0) -> datetime:
    return datetime(2024, 1, 1, 0, minute, milliseconds // 1000, milliseconds % 1000 * 1000, tzinfo=UTC)


# D1
@pytest.mark.parametrize("version", range(4))
def test_a_bounded_read_has_the_rows_up_to_its_version(plan: Any, table: Any, version: int) -> None:
    assert keys(plan, version_as_of=version) == list(range(UP_TO[version]))


# D2
@pytest.mark.parametrize("version", range(4))
def test_a_bounded_read_by_time_has_the_rows_of_the_last_commit_at_or_before_it(
    plan: Any, table: Any, version: int
) -> None:
    assert keys(plan, timestamp_as_of=at(version)) == list(range(UP_TO[version]))
    if version < 3:
        for later in (1, 59_999):
            assert keys(plan, timestamp_as_of=at(version, later)) == list(range(UP_TO[version]))


# D2
@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("2023-12-31T23:59:59.999Z", "before the oldest remaining commit"),
        ("2024-01-01T00:03:00.001Z", "later than the table's newest"),
    ],
)
def test_a_bounded_read_outside_of_the_log_is_refused(plan: Any, table: Any, when: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        keys(plan, timestamp_as_of=when)


# D3
@pytest.mark.parametrize(("version", "rows"), [(0, 75), (1, 70), (2, 60), (3, 40)])
def test_a_stream_has_the_rows_from_its_starting_version_on(plan: Any, table: Any, version: int, rows: int) -> None:
    found = keys(plan, starting_version=version)
    assert (len(found), min(found), max(found)) == (rows, FIRST_KEY[version], 74)


# D4
@pytest.mark.parametrize("version", range(4))
def test_a_stream_has_the_rows_of_the_first_commit_at_or_after_its_starting_timestamp(
    plan: Any, table: Any, version: int
) -> None:
    expected = list(range(FIRST_KEY[version], 75))
    assert keys(plan, starting_timestamp=at(version)) == expected
    before = at(version - 1, 1) if version else datetime(2000, 1, 1, tzinfo=UTC)
    assert keys(plan, starting_timestamp=before) == expected


# D4
def test_a_starting_timestamp_after_the_newest_commit_is_waited_for(plan: Any, table: Any) -> None:
    assert resolve_start(plan.log, SourceOptions.parse({"starting_timestamp": at(3, 1)})) is None


# D5
def test_latest_is_what_comes_after_the_newest_version_and_its_number_includes_it(plan: Any, table: Any) -> None:
    newest = table.version
    latest = resolve_start(plan.log, SourceOptions.parse({"starting_version": "latest"}))
    append(table, 80)
    assert plan(latest).paths == ["part-4.parquet"]
    assert keys(plan, starting_version=newest + 1) == list(range(75, 155))
    assert keys(plan, starting_version=newest) == list(range(35, 155))


# D10
@pytest.mark.parametrize("commits", [0, 3])
def test_a_missing_start_version_is_refused_with_the_available_ones(plan: Any, log_builder: Any, commits: int) -> None:
    log_builder.create()
    for _ in range(commits):
        log_builder.append()
    with pytest.raises(ConfigurationError, match=rf"starting_version is 9.*newest version of the table is {commits}"):
        keys(plan, starting_version=9)


# D11
def test_a_range_has_the_rows_of_its_versions_both_ends_included(plan: Any, table: Any) -> None:
    assert keys(plan, starting_version=1, ending_version=2) == list(range(5, 35))
    assert keys(plan, starting_version=2, ending_version=2) == list(range(15, 35))
    assert keys(plan, starting_version=2, ending_version=99) == list(range(15, 75))


# D11
def test_a_range_that_begins_where_it_ends_is_empty_without_an_error(plan: Any, table: Any) -> None:
    assert keys(plan, starting_timestamp=at(1, 1), ending_timestamp=at(1, 2)) == []
    assert keys(plan, starting_version="latest", ending_version=table.version + 1) == []


# D20
def test_all_new_versions_are_loaded_and_the_next_run_starts_after_them(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(13):
        log_builder.append()
    found = plan(10)
    assert [file.version for batch in found.batches for file in batch.files] == [10, 11, 12, 13]
    assert found.ends == [(14, "BASE", False)]
    again = plan(found.batches[-1].end)
    assert (again.batches, again.outcome.status) == ([], "up_to_date")


# D22
@pytest.mark.parametrize(("limit", "versions"), [(1, 1), (9, 9), (15, 9)])
def test_a_batch_has_at_most_the_given_number_of_versions(
    plan: Any, log_builder: Any, limit: int, versions: int
) -> None:
    log_builder.create()
    for _ in range(9):
        log_builder.append()
    found = plan(1, max_versions_per_batch=limit)
    assert {file.version for file in found.batches[0].files} == set(range(1, versions + 1))
    assert [file.version for batch in found.batches for file in batch.files] == list(range(1, 10))


# D22
@pytest.mark.parametrize("limit", [0, -10])
def test_a_limit_of_no_versions_is_refused_before_anything_is_read(limit: int) -> None:
    with pytest.raises(ConfigurationError, match="max_versions_per_batch"):
        SourceOptions.parse({"max_versions_per_batch": limit})
