from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_fds.delta.actions import Add, DeletionVector
from airflow_provider_fds.delta.log_checkpoint.add_rows import FILE_COLUMNS
from airflow_provider_fds.delta.reader import ordering, repeats
from airflow_provider_fds.delta.reader import snapshot as module
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import files_in_order
from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot, freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.object_store import ObjectStorage
from airflow_provider_fds.errors import LostPositionError, StorageError, TornFileError

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 34, "cardinality": 6}


@pytest.fixture
def staging(tmp_path):
    return LocalStorage(str(tmp_path / "staging"))


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(module, "_READ_ROWS", 4)


def rich_table(log_builder):
    """One file of each kind: partition values with null, deletion vectors, row tracking, no statistics."""
    log_builder.create()
    log_builder.commit(
        log_builder.add("p=x%2520y/1", partitionValues={"p": "x%20y", "é": ""}, tags={"a": "b"}),
        log_builder.add("p=__HIVE_DEFAULT_PARTITION__/2", partitionValues={"p": None, "é": " "}, size=7),
        log_builder.add("3", deletionVector={**VECTOR, "offset": 4}, dataChange=False),
        log_builder.add("4", deletionVector=VECTOR, stats=None),
        log_builder.add(
            "5", baseRowId=12, defaultRowCommitVersion=1, stats='{"numRecords":1,"minValues":{"c":"\\"é"}}'
        ),
        log_builder.add("s3://elsewhere/6", modificationTime=1),
    )
    return log_builder


def without_the_meaningless(add):
    return Add(**{name: getattr(add, name) for name in module.WHOLE_COLUMNS})


# D37
@pytest.mark.parametrize("form", [None, "classic", "v2 json"])
def test_every_field_that_a_reader_needs_survives(log_builder, checkpoint_writer, log, staging, form):
    rich_table(log_builder)
    logged = [without_the_meaningless(action.add) for action in log.commit(1).actions if action.add]
    if form is not None:
        checkpoint_writer.v2("json") if form == "v2 json" else checkpoint_writer.classic()
        log_builder.clean_up_before(2)

    snapshot = freeze_snapshot(log, 1, staging, "stream/snapshots")

    expected = sorted(logged, key=lambda add: (add.modificationTime, add.path.encode()))
    assert list(snapshot.adds(staging)) == list(enumerate(expected))
    assert (snapshot.num_files, snapshot.num_bytes) == (6, 5007)


def test_the_name_is_the_version_and_the_digest_of_the_files_in_order(log_builder, log, staging):
    rich_table(log_builder)

    snapshot = freeze_snapshot(log, 1, staging, "stream/snapshots")

    lines = []
    for batch in files_in_order(log, 1, FILE_COLUMNS):
        for row in batch.to_pylist():
            vector = DeletionVector(**row["deletionVector"]).unique_id if row["deletionVector"] else ""
            lines.append(f"{row['size']} {len(row['path'].encode())} {row['path']} {vector}\n")
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:32]
    assert snapshot == FrozenSnapshot(1, digest, f"stream/snapshots/1-{digest}.parquet", 6, 5007)
    assert staging.head(snapshot.key) is not None


# D26
def test_freezing_again_gives_the_same_and_leaves_the_file_alone(log_builder, checkpoint_writer, log, staging):
    rich_table(log_builder)
    first = freeze_snapshot(log, 1, staging, "s")
    written = (staging.root / first.key).stat()
    checkpoint_writer.parts(2)
    log_builder.clean_up_before(2)

    again = freeze_snapshot(log, 1, staging, "s")

    assert again == first
    assert (staging.root / first.key).stat() == written
    assert [path.name for path in (staging.root / "s").iterdir()] == [f"1-{first.digest}.parquet"]


# D26
def test_another_process_with_a_checkpoint_at_hand_finds_the_same_files_in_the_same_order(
    log_builder, checkpoint_writer, log, staging
):
    log_builder.create()
    for _ in range(3):
        log_builder.append(20)
    first = freeze_snapshot(log, 3, staging, "a")
    checkpoint_writer.parts(2)
    log_builder.clean_up_before(3)
    code = (
        "import sys; from airflow_provider_fds.delta.storage.local import LocalStorage; "
        "from airflow_provider_fds.delta.reader.log import DeltaLog; "
        "from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot; "
        "print(freeze_snapshot(DeltaLog(LocalStorage(sys.argv[1])), 3, LocalStorage(sys.argv[2]), 'b').key)"
    )
    command = [sys.executable, "-c", code, str(log_builder.root), str(staging.root)]
    key = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    second = replace(first, key=key)
    assert key == first.key.replace("a/", "b/")
    assert list(second.adds(staging)) == list(first.adds(staging))
    assert [index for index, _ in second.adds(staging)] == list(range(60))


@pytest.mark.parametrize("longest_run_bytes", [1_000, 5_000])
@pytest.mark.parametrize("form", ["commits", "classic", "parts", "v2", "v2 json"])
def test_files_that_are_sorted_through_the_disk_freeze_to_the_same_digest(
    log_builder, checkpoint_writer, log, staging, monkeypatch, form, longest_run_bytes
):
    log_builder.create()
    for _ in range(5):
        log_builder.append(40)
    first = freeze_snapshot(log, 5, staging, "a")
    if form != "commits":
        write = {"classic": checkpoint_writer.classic, "parts": lambda: checkpoint_writer.parts(3)}
        write.get(form, lambda: checkpoint_writer.v2("json" if form == "v2 json" else "parquet", sidecars=3))()
        log_builder.clean_up_before(5)
    monkeypatch.setattr(ordering, "RUN_BYTES", 1_000)
    monkeypatch.setattr(ordering, "LONGEST_RUN_BYTES", longest_run_bytes)
    monkeypatch.setattr(ordering, "_RUNS_BEFORE_LONGER", 3)
    monkeypatch.setattr(ordering, "BLOCK_BYTES", 500)
    monkeypatch.setattr(repeats, "_KEPT_BYTES", 100)

    second = freeze_snapshot(log, 5, staging, "b")

    assert (second.digest, second.num_files) == (first.digest, 200)
    assert list(second.adds(staging)) == list(first.adds(staging))


@pytest.mark.parametrize("what", ["the hashes of paths", "the sorted rows", "the snapshot"])
def test_a_snapshot_that_does_not_fit_on_the_local_disk_is_an_error_that_names_the_folder(
    log_builder, log, staging, monkeypatch, tmp_path, disk_of, what
):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    log_builder.create()
    log_builder.append(400)
    if what == "the hashes of paths":
        monkeypatch.setattr(repeats, "_KEPT_BYTES", 2_000)
    if what == "the sorted rows":
        monkeypatch.setattr(ordering, "RUN_BYTES", 1_000)

    with disk_of(1_000), pytest.raises(StorageError, match=f"temporary folder {scratch}: File too large.*TMPDIR"):
        freeze_snapshot(log, 1, staging, "s")

    assert not list(scratch.iterdir())
    assert not staging.root.exists()


@pytest.mark.parametrize("moment", ["the runs are merged", "the snapshot is uploaded"])
def test_a_process_that_is_killed_while_it_freezes_leaves_nothing_in_the_temporary_folder(
    log_builder, log, staging, tmp_path, moment
):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    log_builder.create()
    log_builder.append(400)
    code = f"""
import os, signal, sys
from airflow_provider_fds.delta.reader import ordering, repeats, snapshot
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

ordering.RUN_BYTES = repeats._KEPT_BYTES = 1_000
if {moment!r} == "the runs are merged":
    ordering._Spill.merged = kill
else:
    LocalStorage.put_file = kill
snapshot.freeze_snapshot(DeltaLog(LocalStorage(sys.argv[1])), 1, LocalStorage(sys.argv[2]), "s")
"""
    command = [sys.executable, "-c", code, str(log_builder.root), str(staging.root)]
    done = subprocess.run(command, env=os.environ | {"TMPDIR": str(scratch)}, check=False)

    assert done.returncode == -signal.SIGKILL
    assert not list(scratch.iterdir())
    assert not staging.root.exists()


@pytest.mark.parametrize(
    "change", [{"path": "2"}, {"size": 3}, {"deletionVector": VECTOR}, {"deletionVector": {**VECTOR, "offset": 1}}]
)
def test_another_file_size_or_vector_is_another_digest(log_builder, log, staging, change):
    log_builder.create()
    log_builder.commit(log_builder.add("1"))
    log_builder.commit(log_builder.remove("1"), log_builder.add(**{"path": "1", "modificationTime": 1, **change}))

    assert freeze_snapshot(log, 1, staging, "s").digest != freeze_snapshot(log, 2, staging, "s").digest


@pytest.mark.parametrize("first_index", [0, 1, 9, 10, 11, 19, 20, 33, 34, 35, 1000])
def test_reading_resumes_at_any_index(log_builder, log, staging, small_groups, first_index):
    log_builder.create()
    for _ in range(2):
        log_builder.append(17)
    snapshot = freeze_snapshot(log, 2, staging, "s")
    everything = list(snapshot.adds(staging))

    assert [index for index, _ in everything] == list(range(34))
    assert list(snapshot.adds(staging, first_index)) == everything[first_index:]


def test_rows_with_huge_statistics_make_small_row_groups(log_builder, log, staging, monkeypatch):
    monkeypatch.setattr(module, "_ROW_GROUP_BYTES", 5_000)
    log_builder.create()
    log_builder.append(30, stats=json.dumps({"numRecords": 1, "minValues": {"c": "x" * 1_000}}))

    snapshot = freeze_snapshot(log, 1, staging, "s")

    assert pq.read_metadata(staging.root / snapshot.key).num_row_groups > 6
    assert [index for index, _ in snapshot.adds(staging, 7)] == list(range(7, 30))


def test_a_snapshot_can_be_read_by_its_fields_alone(log_builder, log, staging):
    rich_table(log_builder)
    snapshot = freeze_snapshot(log, 1, staging, "s")

    again = FrozenSnapshot(**json.loads(json.dumps(asdict(snapshot))))

    assert again == snapshot
    assert len(list(again.adds(LocalStorage(str(staging.root))))) == 6


def test_a_table_without_files_freezes_to_no_files(log_builder, log, staging):
    log_builder.create()

    snapshot = freeze_snapshot(log, 0, staging, "s")

    assert (snapshot.num_files, snapshot.num_bytes) == (0, 0)
    assert list(snapshot.adds(staging)) == []


def test_a_snapshot_missing_from_staging_is_a_lost_position(log_builder, log, staging):
    rich_table(log_builder)
    snapshot = freeze_snapshot(log, 1, staging, "s")
    staging.delete(snapshot.key)

    with pytest.raises(
        LostPositionError,
        match=r"frozen snapshot of version 1 .*is missing from staging.*`fds rewind STREAM --to start",
    ):
        next(snapshot.adds(staging))


@pytest.mark.parametrize("damage", ["cut", "foreign", "other rows"])
def test_a_file_that_is_not_the_snapshot_is_refused(log_builder, log, staging, damage):
    rich_table(log_builder)
    snapshot = freeze_snapshot(log, 1, staging, "s")
    path = staging.root / snapshot.key
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "foreign":
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    else:
        log_builder.append()
        other = freeze_snapshot(log, 2, staging, "s")
        path.write_bytes((staging.root / other.key).read_bytes())

    with pytest.raises(TornFileError, match=rf"expected 6 files with digest {snapshot.digest}"):
        next(snapshot.adds(staging))


@pytest.mark.parametrize("layout", ["struct only", "both", "struct without count"])
def test_statistics_that_exist_as_a_struct_only_keep_the_number_of_rows(
    log_builder, checkpoint_writer, log, staging, layout
):
    log_builder.create()
    log_builder.append(2, rows=11)
    log_builder.commit(log_builder.add("unknown", stats=None))
    for add in log_builder.live.values():
        known = add["stats"] is not None
        fields = (
            {"minValues": {"id": 1}} if layout == "struct without count" else {"numRecords": 11, "minValues": {"id": 1}}
        )
        add["stats_parsed"] = fields if known else None
    counted = {} if layout == "struct without count" else {"numRecords": pa.int64()}
    checkpoint_writer.add["stats_parsed"] = pa.struct({**counted, "minValues": pa.struct({"id": pa.int64()})})
    if layout != "both":
        del checkpoint_writer.add["stats"]
    checkpoint_writer.classic()
    log_builder.clean_up_before(3)

    stats = [add.stats for _, add in freeze_snapshot(log, 2, staging, "s").adds(staging)]

    expected = {"struct only": '{"numRecords":11}', "both": '{"numRecords": 11}', "struct without count": None}[layout]
    assert stats == [expected, expected, None]


def test_columns_that_a_writer_leaves_out_or_types_otherwise_are_read(log_builder, checkpoint_writer, log, staging):
    rich_table(log_builder)
    before = freeze_snapshot(log, 1, staging, "before")
    text = pa.large_string()
    checkpoint_writer.add |= {
        "path": text,
        "partitionValues": pa.map_(text, text),
        "modificationTime": pa.int64(),
        "stats": pa.dictionary(pa.int32(), pa.string()),
        "deletionVector": pa.struct(
            {
                "cardinality": pa.int32(),
                "pathOrInlineDv": text,
                "storageType": text,
                "offset": pa.int32(),
                "sizeInBytes": pa.int64(),
            }
        ),
    }
    checkpoint_writer.classic()
    log_builder.clean_up_before(2)

    after = freeze_snapshot(log, 1, staging, "after")

    assert after.digest == before.digest
    assert list(after.adds(staging)) == list(before.adds(staging))


def test_a_checkpoint_from_before_deletion_vectors_and_row_tracking_is_read(
    log_builder, checkpoint_writer, log, staging
):
    log_builder.create()
    log_builder.append(3)
    before = list(freeze_snapshot(log, 1, staging, "before").adds(staging))
    for name in ("deletionVector", "baseRowId", "defaultRowCommitVersion"):
        del checkpoint_writer.add[name]
    checkpoint_writer.classic()
    log_builder.clean_up_before(2)

    assert list(freeze_snapshot(log, 1, staging, "after").adds(staging)) == before


def test_a_table_of_deltalake_freezes_with_the_values_deltalake_reads(tmp_path, staging):
    values = ["plain", "a b", "50%", "x/y", "é ü", "%20", "", None]
    root = tmp_path / "table"
    for _ in range(2):
        write_deltalake(
            root, pa.table({"id": range(8), "p": pa.array(values, pa.string())}), partition_by=["p"], mode="append"
        )
        DeltaTable(str(root)).create_checkpoint()
    oracle = {
        row["path"]: (row["partition"]["p"], row["num_records"])
        for row in pa.table(DeltaTable(str(root)).get_add_actions()).to_pylist()
    }

    snapshot = freeze_snapshot(DeltaLog(LocalStorage(str(root))), 1, staging, "s")

    found = {
        add.path: (add.partitionValues["p"] or None, json.loads(add.stats)["numRecords"])
        for _, add in snapshot.adds(staging)
    }
    # an empty partition value is a null by the protocol; the log has either
    assert found == {path: (value or None, rows) for path, (value, rows) in oracle.items()}


def test_freezing_works_the_same_in_an_object_store(log_builder, checkpoint_writer, log, staging):
    rich_table(log_builder)
    checkpoint_writer.v2("parquet")
    log_builder.append()
    store = obstore.store.MemoryStore()
    for path in sorted(log_builder.log.rglob("*.*")):
        obstore.put(store, f"some table/{path.relative_to(log_builder.root)}", path.read_bytes())
    table = ObjectStorage(store, "memory:///some%20table", "some table")
    bucket = ObjectStorage(store, "memory:///staging", "staging")

    snapshot = freeze_snapshot(DeltaLog(table), 2, bucket, "s")

    assert snapshot == freeze_snapshot(log, 2, staging, "s")
    assert list(snapshot.adds(bucket, 2)) == list(snapshot.adds(staging, 2))
