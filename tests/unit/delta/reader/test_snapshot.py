from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_fds.delta.log_checkpoint.add_rows import FILE_COLUMNS
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import files_in_order, transactions
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import LogGapError, LogRewoundError, LogTruncatedError

ODD_VALUES = ["plain", "a b", "50%", "p=q", "x/y", "é ü", "a+b", "%20", "#?", "", None]


def files(log, version):
    """The snapshot as (modificationTime, path, size, deletion vector)."""
    rows = [row for batch in files_in_order(log, version, FILE_COLUMNS) for row in batch.to_pylist()]
    return [(row["modificationTime"], row["path"], row["size"], row["deletionVector"]) for row in rows]


def paths(log, version):
    return [path for _, path, _, _ in files(log, version)]


def vector(name, offset=1, **fields):
    return {"storageType": "u", "pathOrInlineDv": name, "offset": offset, "sizeInBytes": 36, "cardinality": 2, **fields}


def by_deltalake(path, version=None):
    table = pa.table(DeltaTable(str(path), version=version).get_add_actions())
    rows = table.select(["modification_time", "path", "size_bytes"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_files_come_by_modification_time_then_by_path(log_builder, log):
    log_builder.create()
    adds = [("b", 5), ("a", 5), ("d", 1), ("c", 9), ("B", 5)]
    log_builder.commit(*(log_builder.add(path, modificationTime=time) for path, time in adds))

    assert [(time, path) for time, path, _, _ in files(log, 1)] == [(1, "d"), (5, "B"), (5, "a"), (5, "b"), (9, "c")]


def test_paths_compare_by_their_utf_8_bytes_not_as_java_compares_strings(log_builder, log):
    log_builder.create()
    names = ["\uffee", "\U0001f600", "z", "é", "a%20b", "a b"]
    log_builder.commit(*(log_builder.add(name, modificationTime=1) for name in names))

    assert paths(log, 1) == sorted(names, key=str.encode)
    assert paths(log, 1) != sorted(names, key=lambda name: name.encode("utf-16-be"))


def test_without_checkpoint_the_whole_log_is_replayed(log_builder, log):
    log_builder.create()
    for _ in range(3):
        log_builder.append(2)
    log_builder.commit(log_builder.remove("part-00002-00001.parquet"), operation="DELETE")

    expected = ["part-00001-00000.parquet", "part-00001-00001.parquet", "part-00002-00000.parquet"]
    assert paths(log, 4) == [*expected, "part-00003-00000.parquet", "part-00003-00001.parquet"]
    assert paths(log, 2) == [*expected, "part-00002-00001.parquet"]
    assert paths(log, 0) == []


def overridden_table(log_builder, checkpoint):
    """Files that the tail removes, adds again, updates in place, and leaves alone; ``checkpoint`` is called at 1."""
    log_builder.create()
    log_builder.commit(*(log_builder.add(name, size=1) for name in ("kept", "removed", "restored", "updated", "twice")))
    checkpoint()
    log_builder.commit(log_builder.remove("removed"), log_builder.remove("restored"), log_builder.remove("twice"))
    log_builder.commit(log_builder.add("restored", size=2), log_builder.add("twice", size=2), operation="RESTORE")
    log_builder.commit(log_builder.add("updated", size=2, dataChange=False), log_builder.remove("twice"))
    return log_builder


@pytest.mark.parametrize("form", [None, "classic", "parts", "v2 parquet", "v2 json"])
def test_the_tail_overrides_the_checkpoint(log_builder, checkpoint_writer, log, form):
    write = {
        None: lambda: None,
        "classic": checkpoint_writer.classic,
        "parts": lambda: checkpoint_writer.parts(4),
        "v2 parquet": lambda: checkpoint_writer.v2("parquet"),
        "v2 json": lambda: checkpoint_writer.v2("json", inline=2),
    }
    overridden_table(log_builder, write[form])
    if form is not None:
        log_builder.clean_up_before(2)

    assert {path: size for _, path, size, _ in files(log, 4)} == {"kept": 1, "restored": 2, "updated": 2}


def test_a_table_of_checkpoint_and_tail_is_what_deltalake_reads(log_builder, checkpoint_writer, log):
    overridden_table(log_builder, checkpoint_writer.classic)

    assert [file[:3] for file in files(log, 4)] == by_deltalake(log_builder.root)


@pytest.mark.parametrize("kind", ["classic", "v2"])
def test_a_generated_table_is_what_deltalake_reads(tmp_path, write_big_checkpoint, kind):
    version = write_big_checkpoint(tmp_path / "table", 700, kind)

    found = files(DeltaLog(LocalStorage(str(tmp_path / "table"))), version)

    assert [file[:3] for file in found] == by_deltalake(tmp_path / "table")
    assert len(found) == 700


def test_a_table_of_deltalake_with_odd_partition_values_is_what_deltalake_reads(tmp_path):
    for number in range(6):
        data = pa.table({"id": list(range(len(ODD_VALUES))), "p": pa.array(ODD_VALUES, pa.string())})
        write_deltalake(tmp_path, data, partition_by=["p"], mode="append")
        if number == 3:
            DeltaTable(str(tmp_path)).create_checkpoint()
    DeltaTable(str(tmp_path)).delete("p = 'a b'")
    log = DeltaLog(LocalStorage(str(tmp_path)))

    for version in (2, 3, 5, 6):
        # deltalake decodes nothing either: both have the paths as the log has them
        assert [file[:3] for file in files(log, version)] == by_deltalake(tmp_path, version)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_an_absolute_path_without_scheme_names_the_same_file_as_one_with_it(
    log_builder, checkpoint_writer, log, has_checkpoint
):
    log_builder.create()
    log_builder.commit(log_builder.add("/a"), log_builder.add("/b"), log_builder.add("/c"), log_builder.add("d"))
    if has_checkpoint:
        checkpoint_writer.classic()
    log_builder.commit(log_builder.add("file:/a"), log_builder.remove("file:/b"), log_builder.add("file:///c"))

    assert sorted(paths(log, 2)) == ["d", "file:///c", "file:/a", "file:/c"]


def test_a_file_with_another_deletion_vector_is_another_file(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.commit(log_builder.add("f"), log_builder.add("g", deletionVector=vector("g1")), log_builder.add("h"))
    checkpoint_writer.classic()
    log_builder.commit(
        log_builder.add("g", deletionVector=vector("g2", None)),
        log_builder.remove("g", deletionVector=vector("g1")),
        log_builder.remove("h", deletionVector=vector("never there")),
        operation="DELETE",
    )

    assert [(path, dv) for _, path, _, dv in files(log, 2)] == [("f", None), ("h", None), ("g", vector("g2", None))]
    assert [(path, dv) for _, path, _, dv in files(log, 1)] == [("f", None), ("g", vector("g1")), ("h", None)]


def test_a_vector_at_another_offset_of_the_same_file_is_another_vector(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.commit(log_builder.add("f", deletionVector=vector("x", 1)))
    checkpoint_writer.v2("json", sidecars=1)
    log_builder.commit(log_builder.remove("f", deletionVector=vector("x", 100)))
    log_builder.commit(log_builder.remove("f", deletionVector=vector("x", 1)))

    assert paths(log, 2) == ["f"]
    assert paths(log, 3) == []


@pytest.mark.parametrize("prefix", ["", "s3://lake/some%20table/_delta_log/_sidecars/"])
def test_sidecars_are_found_by_name_or_by_full_uri(log_builder, checkpoint_writer, log, prefix):
    log_builder.create()
    log_builder.append(5)
    checkpoint_writer.v2("parquet", prefix=prefix, name=f"{1:020d}.checkpoint.parquet", inline=1)
    log_builder.clean_up_before(2)

    assert len(paths(log, 1)) == 5


def test_a_checkpoint_with_missing_parts_falls_back_to_the_one_before(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append(3)
    checkpoint_writer.classic()
    log_builder.append(3)
    checkpoint_writer.parts(2, without=[1])
    checkpoint_writer.hint(2)

    assert len(paths(log, 2)) == 6


def test_a_newer_checkpoint_does_not_change_an_index(log_builder, checkpoint_writer, log):
    log_builder.create()
    rng = random.Random(1)
    for version in (1, 2, 3):
        names = [f"{version}-{i}" for i in rng.sample(range(9), 9)]
        log_builder.commit(*(log_builder.add(name, modificationTime=rng.randrange(5)) for name in names))
    before = files(log, 3)
    checkpoint_writer.v2("parquet")
    log_builder.clean_up_before(4)
    log_builder.append()
    checkpoint_writer.classic()
    checkpoint_writer.hint(4)

    assert len(before) == 27
    assert files(log, 3) == before


def test_two_processes_find_the_same_index_for_every_file(tmp_path, write_big_checkpoint):
    version = write_big_checkpoint(tmp_path / "table", 300, "v2")
    script = (
        "import hashlib, sys\n"
        "from airflow_provider_fds.delta.reader.log import DeltaLog\n"
        "from airflow_provider_fds.delta.storage.local import LocalStorage\n"
        "from airflow_provider_fds.delta.log_checkpoint.add_rows import FILE_COLUMNS\n"
        "from airflow_provider_fds.delta.reader.replay import files_in_order\n"
        "log = DeltaLog(LocalStorage(sys.argv[1]))\n"
        "batches = files_in_order(log, int(sys.argv[2]), FILE_COLUMNS)\n"
        "rows = [p for b in batches for p in b.column('path').to_pylist()]\n"
        "print(hashlib.sha256(repr(list(enumerate(rows))).encode()).hexdigest())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "table"), str(version)],
        check=True,
        capture_output=True,
        text=True,
        # another order of every set and dict of strings than here
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )

    here = list(enumerate(paths(DeltaLog(LocalStorage(str(tmp_path / "table"))), version)))
    assert result.stdout.strip() == hashlib.sha256(repr(here).encode()).hexdigest()


def test_a_log_that_neither_checkpoint_nor_commits_cover_is_truncated(log_builder, checkpoint_writer, log):
    log_builder.create()
    for _ in range(6):
        log_builder.append()
    checkpoint_writer.classic()
    log_builder.clean_up_before(3)

    with pytest.raises(LogTruncatedError, match="no complete checkpoint at or before version 4") as error:
        files(log, 4)
    assert (error.value.table, error.value.version) == (log_builder.uri, 4)
    assert len(paths(log, 6)) == 6


def test_a_hole_after_the_checkpoint_is_a_gap(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append()
    checkpoint_writer.classic()
    for _ in range(4):
        log_builder.append()
    log_builder.path_of(3).unlink()

    with pytest.raises(LogGapError):
        files(log, 5)
    assert len(paths(log, 2)) == 2


def test_a_version_above_the_newest_is_refused(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append()
    checkpoint_writer.classic()

    with pytest.raises(LogRewoundError):
        files(log, 3)


def test_a_missing_sidecar_is_refused_and_nothing_is_left_out_in_silence(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append(6)
    checkpoint_writer.v2("parquet", sidecars=3)
    next((log_builder.log / "_sidecars").iterdir()).unlink()

    with pytest.raises(LogTruncatedError, match=r"_sidecars/.* is missing"):
        files(log, 1)


def test_the_newest_transaction_of_each_application_is_found(log_builder, checkpoint_writer, log):
    def commit(**apps):
        log_builder.commit(*({"txn": {"appId": app, "version": version}} for app, version in apps.items()))

    log_builder.create()
    commit(a=1, b=1, c=1)
    commit(a=2)
    checkpoint_writer.more = [{"txn": {"appId": app, "version": version}} for app, version in (("a", 2), ("b", 1))]
    checkpoint_writer.classic()
    commit(b=7)
    commit(b=5)
    log_builder.clean_up_before(2)

    assert transactions(log, 4, ["a", "b", "c", "d"]) == {"a": 2, "b": 5}
    assert transactions(log, 3, {"b"}) == {"b": 7}
    assert transactions(log, 4, []) == {}


def test_a_snapshot_has_the_documented_columns(log_builder, log):
    log_builder.create()
    log_builder.commit(log_builder.add("f", deletionVector=vector("x"), stats=json.dumps({"numRecords": 1})))

    (batch,) = files_in_order(log, 1, FILE_COLUMNS)

    assert batch.schema.names == ["path", "size", "modificationTime", "deletionVector", "vectorId"]
    assert batch.to_pylist()[0]["deletionVector"] == vector("x")
