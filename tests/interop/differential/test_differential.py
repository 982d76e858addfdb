"""FDS beside Structured Streaming, on random tables with random options, row by row.

A case is one table and one set of options. ``FDS_FUZZ_TABLES``, ``FDS_FUZZ_SEED`` and ``FDS_FUZZ_OPTIONS`` say how many
tables, from which seed on, and how many sets of options for each; `make fuzz` sets them. ``FDS_FUZZ_BY_TIME`` is the
share of the sets whose start, and often end, is a time. Each case is planned by path, by the table's name in a catalog,
and by its name in a catalog that alone knows its newest commits: the plans must be the same, and Spark reads one of
them. A failure prints the seed, the operations and the options; the same seed alone makes the same table again.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.source.offset import Offset
from tests.interop.differential.by_name import KINDS, NamedTables, plans_differ, readings
from tests.interop.differential.reading import TwoReaders, random_limits, random_options, random_times
from tests.interop.differential.tables import RandomTable, write_random_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = int(os.environ.get("FDS_FUZZ_TABLES", "2"))
FIRST_SEED = int(os.environ.get("FDS_FUZZ_SEED", "101"))
OPTION_SETS = int(os.environ.get("FDS_FUZZ_OPTIONS", "5"))
COMMITS = 9

#: Share of the cases whose start, and often end, is a time.
BY_TIME = float(os.environ.get("FDS_FUZZ_BY_TIME", "0.4"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + TABLES))
def test_fds_reads_the_rows_that_structured_streaming_reads(quick_spark, catalog, tmp_path, seed):
    table = write_random_table(quick_spark, tmp_path, seed, COMMITS)
    readers = TwoReaders(quick_spark, tmp_path)
    random_ = random.Random(seed)
    print(f"seed {seed}: {len(table.operations)} operations, {OPTION_SETS} cases")
    seen: set[str] = set()
    while len(seen) < OPTION_SETS:
        options = random_options(random_, table)
        if random_.random() < BY_TIME:
            # without its first commits, the copy of an older state cannot be read
            has_end = table.log.earliest() == 0
            options = random_times(random_, options, readers.commit_times(table), has_end=has_end)
        limits = random_limits(random_, options) if random_.random() < 0.5 else []
        if (text := f"options {options}, limits {limits}") in seen:
            continue
        seen.add(text)
        if (found := _difference(readers, catalog, table, options, limits)) is not None:
            table, found = _shrunk(quick_spark, tmp_path, readers, catalog, table, found, options, limits)
            pytest.fail("\n".join([f"seed {seed}", *table.operations, text, found]))
    shutil.rmtree(tmp_path)


def _difference(
    readers: TwoReaders,
    catalog: NamedTables,
    table: RandomTable,
    options: dict[str, Any],
    limits: list[dict[str, int]],
) -> str | None:
    until_end = readers.until_end(table, options)
    streamed = readers.by_streaming(until_end, options)
    read = random.Random(f"read {table.seed} {options} {limits}").choices(KINDS, weights=(1, 1, 2))[0]
    found = readings(readers, catalog, table, options, limits, read=read)
    if (difference := plans_differ(found)) is not None:
        return difference
    ours = found[read]
    rows = f"{ours.rows.total()} rows {read}, {streamed.rows.total()} rows of the stream"
    print(f"  {options}, {limits}: {rows}, stopped at {ours.stopped_at}")
    if ours.stopped_at != streamed.stopped_at:
        return f"stopped at {ours.stopped_at}, not at {streamed.stopped_at}"
    if streamed.stopped_at is not None:
        # a stream drops the whole trigger that meets such a commit; FDS delivers what is good before it
        return None if streamed.rows <= ours.rows else f"rows that FDS lacks: {streamed.rows - ours.rows}"
    if ours.rows != streamed.rows:
        return f"rows too many: {ours.rows - streamed.rows}; rows that lack: {streamed.rows - ours.rows}"
    expected = _as_fds_writes_it(streamed.offset, until_end, options)
    return None if ours.offset == expected else f"offset {ours.offset}, not {expected}"


def _shrunk(
    spark: SparkSession,
    folder: Path,
    readers: TwoReaders,
    catalog: NamedTables,
    table: RandomTable,
    found: str,
    options: dict[str, Any],
    limits: list[dict[str, int]],
) -> tuple[RandomTable, str]:
    """Return the shortest beginning of the table's history that still shows a difference.

    A table that is written again has other commit times, so a case with times is returned as it is.
    """
    if "starting_timestamp" in options:
        return table, found
    for commits in range(COMMITS):
        shorter = write_random_table(spark, folder, table.seed, commits)
        if options.get("starting_version", 0) <= shorter.log.latest():
            difference = _difference(readers, catalog, shorter, options, limits)
            if difference is not None:
                return shorter, difference
    return table, found


def _as_fds_writes_it(offset: Offset | None, table: RandomTable, options: dict[str, Any]) -> Offset | None:
    """Return the position as FDS writes it, where docs/differences.md lists that the two do not say it alike.

    Behind a commit with change files Delta stays in it, at its last file. Before one of which ``exclude_regex`` leaves
    no change file it stays, until there is something behind it; FDS moves over it.
    """
    if offset is None or offset.is_initial_snapshot:
        return offset
    paths = _change_files(table, offset.version)
    if offset.next_index and paths and offset.next_index >= len(paths):
        offset = Offset.after(offset.version, offset.table_id)
    excluded = re.compile(options.get("exclude_regex", "$^"))
    while not offset.next_index and (paths := _change_files(table, offset.version)):
        if not all(excluded.search(path) for path in paths):
            break
        offset = Offset.after(offset.version, offset.table_id)
    return offset


def _change_files(table: RandomTable, version: int) -> list[str]:
    """Return the change files of a commit; none if there is no such commit."""
    if version > table.log.latest():
        return []
    return [action.cdc.path for action in table.log.commit(version).actions if action.cdc is not None]
