"""``where`` of a stream: the rows are those of Spark's filter, whatever files the planner leaves out."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from urllib.parse import unquote

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink
from airflow_provider_fds.source.filters.row_filter import RowFilter
from airflow_provider_fds.spark.application.batch_rows import batch_rows
from tests.interop.spark.conftest import ids_of

FILES = 12
ROWS_PER_FILE = 4
PREDICATES = 300

SCHEMA = (
    "id INT, i INT, l LONG, n DECIMAL(20,4), s STRING, d DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, b BOOLEAN, x DOUBLE, "
    "f FLOAT, p INT, `o'dd ``é` STRING"
)
LONG = "a text that is longer than thirty-two characters, "
VALUES = {
    "i": [-3, -2, -1, 0, 1, 2, 3],
    "l": [-(2**60), -1, 0, 2**53, 2**53 + 1, 2**60],
    "n": [Decimal(text) for text in ("-1.5", "0", "0.0001", "1.5", "9007199254740993.0001", "9007199254740993.0002")],
    "s": ["", "A", "a", "é", "🚀", "it's", LONG, LONG + "1", LONG + "\U0010ffff", "a\\b", "%"],
    "d": [dt.date(*day) for day in ((1, 1, 1), (1899, 12, 31), (2026, 1, 1), (2026, 1, 2), (9999, 12, 31))],
    "ts": [
        dt.datetime(2026, 1, 1, hour, 0, 0, micros, tzinfo=dt.UTC)
        for hour in (0, 1)
        for micros in (0, 1, 999, 1000, 1999)
    ],
    "tn": [dt.datetime(2026, 3, 29, 2, 30, 0, micros) for micros in (0, 1, 999, 1000)],
    "b": [True, False],
    "x": [float("nan"), float("-inf"), -0.0, 0.0, 0.1, 1e300],
    "f": [float("nan"), float("inf"), -1.5, 0.0, 0.1],
    "p": [0, 1, 2],
    "o'dd `é": ["x", "y"],
}
LITERALS = {
    "i": ["0", "1", "-2", "1.5", "-0.5", "12345678901234567890"],
    "l": ["0", "9007199254740992", "9007199254740993", "1152921504606846976", "0.5"],
    "n": ["0", "1.5", "1.50001", "9007199254740993.0001", "9007199254740993.0002", "0.00010"],
    "s": [
        "''",
        "'a'",
        "'é'",
        "'🚀'",
        "'it''s'",
        f"'{LONG}'",
        f"'{LONG}1'",
        "'a text that is longer than thirty'",
        "'z'",
    ],
    "d": ["DATE '2026-01-01'", "'2026-01-02'", "DATE '1899-12-31'", "'0001-01-01'"],
    "ts": [
        "TIMESTAMP '2026-01-01 00:00:00.000001'",
        "'2026-01-01 00:00:00.001'",
        "TIMESTAMP '2026-01-01 01:00:00.001999'",
        "TIMESTAMP '2026-01-01 02:00:00+01:00'",
        "DATE '2026-01-01'",
    ],
    "tn": ["TIMESTAMP '2026-03-29 02:30:00.000001'", "'2026-03-29 02:30:00.001'", "'2026-03-29 02:30:00'"],
    "b": ["true", "false"],
    "renamed": ["0", "1", "-2", "1.5"],
    "x": ["0", "0.1", "1"],
    "f": ["0", "0.1", "-1.5"],
    "p": ["0", "1", "1.5"],
    "`o'dd ``é`": ["'x'", "'z'"],
}


def predicate(random_, depth=2):
    """Return a random predicate on some of the columns."""
    kind = random_.randrange(8)
    if depth and kind < 4:
        joint = random_.choice([" AND ", " OR "])
        parts = [predicate(random_, depth - 1) for _ in range(random_.choice([2, 2, 3]))]
        whole = f"({joint.join(parts)})"
        return f"NOT {whole}" if kind == 0 else whole
    column = random_.choice([*LITERALS, "I"])
    literals = LITERALS[column.lower() if column == "I" else column]
    negation = random_.choice(["", "NOT "])
    if kind == 4:
        return f"{column} IS {negation}NULL"
    if kind == 5:
        return f"{column} {negation}IN ({', '.join(random_.choices(literals, k=random_.choice([1, 2, 3])))})"
    if kind == 6:
        return f"{column} {negation}BETWEEN {random_.choice(literals)} AND {random_.choice(literals)}"
    return f"{negation}{column} {random_.choice(['=', '!=', '<>', '<', '<=', '>', '>='])} {random_.choice(literals)}"


def row(random_, near, number):
    """Return a row whose values are close to each other within a file, so that some files can be left out."""
    values = []
    for name, choices in VALUES.items():
        at = (near[name] + random_.randrange(2)) % len(choices)
        values.append(None if near[name] % 5 == 4 or random_.random() < 0.1 else choices[at])
    return (number, *values)


@pytest.fixture(scope="module")
def random_table(spark, tmp_path_factory):
    """A table of small files with few different values each, NULLs, deletion vectors, and some without statistics."""
    random_ = random.Random(20261123)
    path = tmp_path_factory.mktemp("where") / "source"
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE delta.`{path}` ({SCHEMA}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})")
    rows = []
    for file in range(FILES):
        near = {name: random_.randrange(20) for name in VALUES}
        rows.append([row(random_, near, file * ROWS_PER_FILE + n) for n in range(ROWS_PER_FILE)])
    # Spark 3.5 asks which calendar old dates have
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    for half, collects in ((rows[: FILES // 4], "false"), (rows[FILES // 4 :], "true")):
        spark.conf.set("spark.databricks.delta.stats.collect", collects)
        try:
            flat = [one for file in half for one in file]
            frame = spark.createDataFrame(flat, SCHEMA).repartitionByRange(len(half), "id")
            frame.write.format("delta").mode("append").save(str(path))
        finally:
            spark.conf.unset("spark.databricks.delta.stats.collect")
    spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 7 = 3")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN i TO renamed")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (i INT)")
    spark.sql(f"INSERT INTO delta.`{path}` (id, i, p) VALUES (1000, 1, 0), (1001, NULL, 1)")
    return path


def in_spark(text):
    """Return the predicate as every Spark understands it: to Spark 3.5, two quotes end a string and begin the next."""
    return text.replace("it''s", r"it\'s")


def truths(spark, path, predicates, zone):
    """Return for each row whether each predicate is true, false or NULL, and the file of each row."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        table = spark.read.format("delta").load(str(path))
        columns = [f"({text}) AS `{number}`" for number, text in enumerate(predicates)]
        found = table.selectExpr("id", "_metadata.file_name", *columns).collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    return {row[0]: row[2:] for row in found}, {row[0]: row[1] for row in found}


def test_random_predicates_mean_what_they_mean_to_spark_and_leave_out_no_file_with_a_row(spark, stream, random_table):
    random_ = random.Random(1123)
    predicates = [predicate(random_) for _ in range(PREDICATES)]
    log = DeltaLog(LocalStorage(str(random_table)))
    version = log.latest()
    metadata = log.state_at(version).metadata
    bound = [RowFilter(text).bind(metadata, table="t") for text in predicates]
    adds = [add for _, add in freeze_snapshot(log, version, stream.staging, "snapshots").adds(stream.staging)]
    assert len(adds) > FILES

    # the option takes times without a zone as UTC, whatever the session's zone is
    wanted, files = truths(spark, random_table, list(map(in_spark, predicates)), "UTC")
    found, _ = truths(spark, random_table, [one.sql for one in bound], "America/New_York")

    for number, text in enumerate(predicates):
        differ = [key for key in wanted if wanted[key][number] is not found[key][number]]
        assert not differ, (text, bound[number].sql)
    left_out = 0
    for number, (text, one) in enumerate(zip(predicates, bound, strict=True)):
        kept = {unquote(add.path).rpartition("/")[2] for add in adds if one.may_match(add)}
        left_out += len(adds) - len(kept)
        assert {files[key] for key, row in wanted.items() if row[number] is True} <= kept, text
    # most files have rows for a random predicate, but not all of them
    assert left_out > PREDICATES


PARTITIONS = {
    "ts": ("TIMESTAMP", ["TIMESTAMP '2026-01-01 00:00:00Z'", "TIMESTAMP '2026-01-01 05:30:00.000001Z'"]),
    "tn": ("TIMESTAMP_NTZ", ["'2026-01-01 00:00:00'", "TIMESTAMP_NTZ '2026-01-01 05:30:00.000001'"]),
    "d": ("DATE", ["DATE '2026-01-01'", "DATE '1500-02-28'", "DATE '0001-01-01'"]),
    "n": ("DECIMAL(38,10)", ["1", "1.0000000001", "-1"]),
    "l": ("BIGINT", ["9007199254740993", "-1", "0"]),
    "x": ("DOUBLE", ["double('NaN')", "double('-Infinity')", "-0.0D", "0.1D"]),
    "f": ("FLOAT", ["float('NaN')", "0.1F", "-0.0F"]),
    "b": ("BOOLEAN", ["true", "false"]),
    "s": ("STRING", ["''", "' a'", "'é%/='", "'a'", "'A'", "'__HIVE_DEFAULT_PARTITION__'"]),
}
PARTITION_LITERALS = {
    "ts": ["'2026-01-01'", "'2026-01-01 05:30:00.000001'", "DATE '2025-12-31'", "'2026-01-01 12:00'"],
    "tn": ["'2026-01-01'", "'2026-01-01 05:30:00.000001'", "DATE '2025-12-31'"],
    "d": ["'2026-01-01'", "'1500-02-28'", "'0001-01-01'"],
    "n": ["1", "1.00000000001", "1.0000000001", "0.99999999999999999999999999999999999"],
    "l": ["9007199254740993", "9007199254740992", "0.5", "0.00000000000000000001"],
    "x": ["0", "0.1", "1"],
    "f": ["0", "0.1"],
    "b": ["true", "false"],
    "s": ["''", "'a'", "' a'", "'é%/='", "'__HIVE_DEFAULT_PARTITION__'"],
}


def test_partition_values_of_each_type_leave_out_no_file_with_a_row_in_any_zone(spark, stream):
    table = f"delta.`{stream.folder / 'source'}`"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in PARTITIONS.items())
    spark.sql(f"CREATE TABLE {table} (id INT, {columns}) USING delta PARTITIONED BY ({', '.join(PARTITIONS)})")
    rows, number = [], 0
    for at in range(max(len(values) for _, values in PARTITIONS.values())):
        values = (f"CAST({v[at % len(v)]} AS {kind}) AS {name}" for name, (kind, v) in PARTITIONS.items())
        rows.append(", ".join(values))
    rows.append(", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in PARTITIONS.items()))
    # with and without a zone in the partition values of times
    for in_utc in ("true", "false"):
        spark.conf.set("spark.databricks.delta.write.utcTimestampPartitionValues", in_utc)
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            selects = (f"SELECT {number + n} AS id, {row}" for n, row in enumerate(rows))
            spark.sql(f"INSERT INTO {table} {' UNION ALL '.join(selects)}")
        finally:
            spark.conf.unset("spark.databricks.delta.write.utcTimestampPartitionValues")
            spark.conf.unset("spark.sql.session.timeZone")
        number += len(rows)
    log = DeltaLog(LocalStorage(str(stream.folder / "source")))
    version = log.latest()
    metadata = log.state_at(version).metadata
    adds = [add for _, add in freeze_snapshot(log, version, stream.staging, "snapshots").adds(stream.staging)]
    forms = ("{0} {1} {2}", "NOT {0} {1} {2}")
    predicates = [
        form.format(name, mark, literal)
        for name, literals in PARTITION_LITERALS.items()
        for literal in literals
        for mark in ("=", "!=", "<", "<=", ">", ">=")
        for form in forms
    ]
    predicates += [f"{name} IS {negation}NULL" for name in PARTITIONS for negation in ("", "NOT ")]
    bound = [RowFilter(text).bind(metadata, table="t") for text in predicates]
    left_out = 0
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        found, files = truths(spark, stream.folder / "source", [one.sql for one in bound], zone)
        for n, one in enumerate(bound):
            kept = {unquote(add.path).rpartition("/")[2] for add in adds if one.may_match(add)}
            left_out += len(adds) - len(kept)
            assert {files[key] for key, row in found.items() if row[n] is True} <= kept, (zone, one.sql)
    assert left_out > len(predicates)


@pytest.mark.parametrize("where", ["s = 'it''s' OR ts < TIMESTAMP '2026-01-01 00:00:00.001'", "n > 1.5 AND NOT p = 1"])
def test_a_snapshot_read_with_where_has_the_rows_of_the_filtered_table(spark, stream, random_table, where):
    stream.source = random_table
    stream.options = {"where": where}
    (batch,) = stream.plan(from_snapshot=True)
    table = spark.read.format("delta").load(str(random_table))
    assert sorted(row.id for row in batch_rows(spark, batch).collect()) == sorted(
        row.id for row in table.where(in_spark(where)).collect()
    )
    assert 0 < batch.num_files < len(table.inputFiles())


def load(spark, stream, sink, *batches):
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, {report.outcome for report in reports}) == (0, {"written"}), reports
    return spark.read.format("delta").load(str(stream.sink_path)), reports


@pytest.fixture(scope="module")
def feed(spark, tmp_path_factory):
    """A table with a change feed: rows that enter and leave what ``n > 5`` chooses."""
    path = tmp_path_factory.mktemp("where feed") / "source"
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (id INT, n INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
        "'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} SELECT int(id), int(id) FROM range(0, 10, 1, 1)")
    spark.sql(f"UPDATE {table} SET n = CASE id WHEN 3 THEN 7 WHEN 7 THEN 11 ELSE 0 END WHERE id IN (3, 7, 8)")
    spark.sql(f"DELETE FROM {table} WHERE id = 9")
    return path


def test_a_merge_of_the_changes_has_the_rows_of_the_filtered_table(spark, stream, feed):
    stream.source = feed
    stream.options = {"read_change_feed": True, "where": "n > 5"}
    batches = stream.plan()
    assert {batch.num_rows for batch in batches} == {None}
    frame, _ = load(spark, stream, DeltaMergeSink(str(stream.sink_path), keys=["id"]), *batches)
    assert sorted(map(tuple, frame.collect())) == [(3, 7), (6, 6), (7, 11)]


def test_an_appended_batch_is_filtered_before_the_sink_filters_and_counts_what_it_wrote(spark, stream, feed):
    stream.source = feed
    stream.options = {"where": "n BETWEEN 2 AND 5", "skip_change_commits": True}
    (batch,) = stream.plan()
    frame, (report,) = load(spark, stream, DeltaAppendSink(str(stream.sink_path), where="id % 2 = 0"), batch)
    assert (report.rows_planned, report.rows_written) == (None, 2)
    assert sorted(row.id for row in frame.collect()) == [2, 4]


def test_a_replaced_interval_is_filtered(spark, stream, feed):
    stream.source = feed
    stream.options = {"where": "n = 1", "skip_change_commits": True}
    (batch,) = stream.plan()
    interval = replace(batch, interval="2026-01-01T00:00:00.000Z/2026-01-02T00:00:00.000Z")
    sink = DeltaReplaceSink(str(stream.sink_path), provenance=True).for_versions(0, 9)
    frame, _ = load(spark, stream, sink, interval)
    assert [row.id for row in frame.collect()] == [1]


#: So many frames are read in one Spark job.
WHERES_AT_ONCE = 10

# from, to, values of the files written before and after, and literals
WIDENED = {
    "b": ("BYTE", "INT", [-128, 127], [128, 2**31 - 1], ["127", "128", "-128.5"]),
    "i": ("INT", "LONG", [0, 2**31 - 1], [2**31, 2**53 + 1], ["2147483647", "2147483647.5", "9007199254740992"]),
    "x": ("INT", "DOUBLE", [0, 2**31 - 1], [0.5, float("nan")], ["0", "0.5", "2147483647"]),
    "n": ("INT", "DECIMAL(20,4)", [0, 7], [Decimal("0.5"), Decimal("7.0001")], ["0", "7.0001", "7"]),
    "m": ("DECIMAL(5,2)", "DECIMAL(9,4)", [Decimal("1.25")], [Decimal("1.2501")], ["1.25", "1.2501", "1.24999"]),
    "f": ("FLOAT", "DOUBLE", [0.1, -1.5], [0.1, float("inf")], ["0.1", "-1.5"]),
    "d": (
        "DATE",
        "TIMESTAMP_NTZ",
        [dt.date(2026, 1, 1), dt.date(1899, 12, 31)],
        [dt.datetime(2026, 1, 1, 0, 0, 0, 1), dt.datetime(2026, 1, 2)],
        ["'2026-01-01 00:00:00'", "'2026-01-01 00:00:00.000001'", "'1899-12-31 00:00:00'"],
    ),
}


@pytest.mark.parametrize(
    ("names", "is_partition"),
    [("f", False), ("binmdx", False), ("bdfimnx", True)],
    ids=["statistics", "more statistics", "partition values"],
)
def test_a_filter_on_a_widened_column_reads_the_files_of_the_narrow_type(spark, stream, tmp_path, names, is_partition):
    if spark.version.startswith("3."):
        pytest.skip("the Delta of Spark 3.5 cannot widen these types")
    path = tmp_path / "source"
    columns = {name: WIDENED[name] for name in names}
    schema = ", ".join(f"{name} {narrow}" for name, (narrow, *_) in columns.items())
    partitions = f"PARTITIONED BY ({', '.join(columns)})" if is_partition else ""
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, {schema}) USING delta {partitions} "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    for at in (0, 1):
        kinds = ", ".join(f"{name} {column[at]}" for name, column in columns.items())
        for name, (_, wide, *_) in columns.items() if at else ():
            spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {name} TYPE {wide}")
        values = [column[2 + at] for column in columns.values()]
        rows = [tuple(each[number % len(each)] for each in values) for number in range(max(map(len, values)))]
        rows.append((None,) * len(values))
        frame = spark.createDataFrame([(10 * at + number, *row) for number, row in enumerate(rows)], f"id INT, {kinds}")
        # a file for each row
        frame.coalesce(1).write.format("delta").mode("append").option("maxRecordsPerFile", 1).save(str(path))
    stream.source = path
    assert len(list(path.rglob("*.parquet"))) == 6
    wheres = [
        where
        for name, (*_, literals) in columns.items()
        for literal in literals
        for where in (f"{name} = {literal}", f"{name} < {literal}", f"{name} >= {literal}", f"NOT {name} <= {literal}")
    ]
    # not as filters: statistics of a float, which are rounded, mislead a read of the table as a double
    table = spark.read.format("delta").load(str(path)).selectExpr("id", *wheres).collect()
    expected = {where: sorted(row[0] for row in table if row[number]) for number, where in enumerate(wheres, 1)}
    for first in range(0, len(wheres), WHERES_AT_ONCE):
        frames = {}
        for where in wheres[first : first + WHERES_AT_ONCE]:
            stream.options = {"where": where}
            frames[where] = [batch_rows(spark, batch) for batch in stream.plan(from_snapshot=True)]
        assert ids_of(frames) == {where: expected[where] for where in frames}
