"""What a manifest's files say: paths, vectors, provenance, statistics, the checksum beside them."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from airflow_provider_fds.batch.manifest import manifest as manifest_module
from airflow_provider_fds.batch.manifest.manifest import Manifest, build_manifest
from airflow_provider_fds.delta.actions import Add, Metadata, Protocol
from airflow_provider_fds.errors import ConfigurationError, FdsError, StorageError, UnsupportedFeatureError
from airflow_provider_fds.source.planned import PlannedFile
from tests.manifests import commit_json

TABLE = "file:///lake/a%20b%25"
STATS = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0},"tightBounds":false}'


def lines(manifest: Manifest) -> list[dict]:
    return [json.loads(line) for line in commit_json(manifest).splitlines()]


def adds(manifest: Manifest) -> list[dict]:
    return [line["add"] for line in lines(manifest)[2:]]


def row_tracking(metadata, **other: str) -> Metadata:
    return metadata(
        delta__enableRowTracking="true",
        delta__rowTracking__materializedRowIdColumnName="_row-id-col-1",
        delta__rowTracking__materializedRowCommitVersionColumnName="_row-commit-version-col-1",
        **other,
    )


def test_a_commit_is_protocol_then_metadata_then_the_files_in_planned_order(batch):
    manifest = build_manifest(batch(Add("b.parquet", 5), Add("a.parquet", 6)), table_uri=TABLE)

    assert [next(iter(line)) for line in lines(manifest)] == ["protocol", "metaData", "add", "add"]
    assert [a["path"] for a in adds(manifest)] == [f"{TABLE}/b.parquet", f"{TABLE}/a.parquet"]
    assert commit_json(manifest).endswith(b"}\n")


@pytest.mark.parametrize(
    ("table_uri", "logged", "expected"),
    [
        (TABLE, "p=a%2520b/f%2B.parquet", f"{TABLE}/p=a%2520b/f%2B.parquet"),
        (TABLE + "/", "f.parquet", f"{TABLE}/f.parquet"),
        (TABLE, "file:/other/f.parquet", "file:/other/f.parquet"),
        (TABLE, "/other/f.parquet", "/other/f.parquet"),
        ("s3://lake/t", "f.parquet", "s3a://lake/t/f.parquet"),
        ("s3n://lake/t", "f.parquet", "s3a://lake/t/f.parquet"),
        ("S3://lake/t", "f.parquet", "s3a://lake/t/f.parquet"),
        ("s3a://lake/t", "f.parquet", "s3a://lake/t/f.parquet"),
        ("gs://lake/t", "f.parquet", "gs://lake/t/f.parquet"),
        ("abfss://box@acc.dfs.core.windows.net/t", "f.parquet", "abfss://box@acc.dfs.core.windows.net/t/f.parquet"),
        # The origin of a clone: Spark reads the source by this name, so it has a file system for it.
        ("s3://lake/t", "s3://origin/f.parquet", "s3://origin/f.parquet"),
    ],
)
def test_a_logged_path_is_joined_textually_and_absolute_ones_stay(batch, table_uri, logged, expected):
    manifest = build_manifest(
        batch(Add(logged, 1)), table_uri=table_uri, allowed_roots=["s3://origin", "file:///other"]
    )

    assert adds(manifest)[0]["path"] == expected


def test_a_relative_deletion_vector_becomes_an_absolute_one(batch, vector):
    manifest = build_manifest(batch(Add("f.parquet", 1, deletionVector=vector)), table_uri="s3://lake/t")

    assert adds(manifest)[0]["deletionVector"] == {
        "storageType": "p",
        "pathOrInlineDv": "s3a://lake/t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }


@pytest.mark.parametrize("kind", ["i", "p"])
def test_inline_and_absolute_deletion_vectors_are_copied(batch, vector, kind):
    logged = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L" if kind == "i" else "file:/x/deletion_vector_1.bin"
    given = msgspec.structs.replace(vector, storageType=kind, pathOrInlineDv=logged, offset=None)

    manifest = build_manifest(batch(Add("f.parquet", 1, deletionVector=given)), table_uri=TABLE)

    assert adds(manifest)[0]["deletionVector"] == {
        "storageType": kind,
        "pathOrInlineDv": logged,
        "sizeInBytes": 40,
        "cardinality": 6,
    }


def test_vectors_are_declared_even_when_the_source_dropped_the_feature_since(batch, vector):
    manifest = build_manifest(
        batch(Add("f.parquet", 1, deletionVector=vector), Add("g.parquet", 1), protocol=Protocol(1, 2)),
        table_uri=TABLE,
    )

    assert lines(manifest)[0]["protocol"]["readerFeatures"] == ["deletionVectors"]
    assert "deletionVectors" in lines(manifest)[0]["protocol"]["writerFeatures"]


def test_each_file_carries_version_and_time_of_its_commit_as_partition_values(batch):
    manifest = build_manifest(
        batch((7, Add("f.parquet", 1, {"p": "x", "q": None})), (9, Add("g.parquet", 1))), table_uri=TABLE
    )

    assert [a["partitionValues"] for a in adds(manifest)] == [
        {"p": "x", "q": None, "_commit_version": "7", "_commit_timestamp": "2026-01-01T12:00:00.123000Z"},
        {"_commit_version": "9", "_commit_timestamp": "2026-01-01T12:00:02.123000Z"},
    ]


def test_times_before_the_epoch_and_at_it_are_written_out(batch):
    plain = batch(Add("f.parquet", 1), Add("g.parquet", 1))
    files = tuple(PlannedFile(f.version, f.index, ms, f.add) for f, ms in zip(plain.files, (0, -1), strict=True))

    manifest = build_manifest(replace(plain, files=files), table_uri=TABLE)

    assert [a["partitionValues"]["_commit_timestamp"] for a in adds(manifest)] == [
        "1970-01-01T00:00:00.000000Z",
        "1969-12-31T23:59:59.999000Z",
    ]


def test_partition_values_of_a_mapped_table_are_keyed_by_physical_names(batch, metadata):
    field = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}
    mapped = metadata(
        {"name": "id", "type": "long", "nullable": True, "metadata": field},
        delta__columnMapping__mode="name",
        delta__columnMapping__maxColumnId="1",
    )

    manifest = build_manifest(batch(Add("f.parquet", 1), protocol=Protocol(2, 5), state=mapped), table_uri=TABLE)

    schema = json.loads(lines(manifest)[1]["metaData"]["schemaString"])
    physical = [f["metadata"]["delta.columnMapping.physicalName"] for f in schema["fields"][1:]]
    assert list(adds(manifest)[0]["partitionValues"]) == physical
    assert lines(manifest)[1]["metaData"]["partitionColumns"] == ["_commit_version", "_commit_timestamp"]


def test_only_what_a_reader_needs_of_a_file_is_kept(batch):
    add = Add("f.parquet", 0, {}, 0, dataChange=None, stats=STATS, baseRowId=4, defaultRowCommitVersion=7)

    manifest = build_manifest(batch(add), table_uri=TABLE)

    assert adds(manifest) == [
        {
            "path": f"{TABLE}/f.parquet",
            "partitionValues": {
                "_commit_version": "7",
                "_commit_timestamp": "2026-01-01T12:00:00.123000Z",
            },
            "size": 0,
            "modificationTime": 0,
            "dataChange": True,
            "stats": STATS,
        }
    ]


def test_row_ids_are_kept_when_the_source_tracks_them(batch, metadata):
    manifest = build_manifest(
        batch(
            Add("f.parquet", 1, baseRowId=0, defaultRowCommitVersion=7),
            protocol=Protocol(1, 7, None, ("domainMetadata", "rowTracking", "appendOnly")),
            state=row_tracking(metadata, delta__enableChangeDataFeed="true"),
        ),
        table_uri=TABLE,
    )

    protocol, meta, add = lines(manifest)
    assert protocol["protocol"]["writerFeatures"] == ["domainMetadata", "fdsManifest", "rowTracking"]
    assert sorted(meta["metaData"]["configuration"]) == [
        "delta.enableRowTracking",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.rowTracking.materializedRowIdColumnName",
    ]
    assert (add["add"]["baseRowId"], add["add"]["defaultRowCommitVersion"]) == (0, 7)


def test_row_ids_are_left_out_when_a_file_is_older_than_row_tracking(batch, metadata):
    manifest = build_manifest(
        batch(
            Add("old.parquet", 1),
            Add("new.parquet", 1, baseRowId=0, defaultRowCommitVersion=8),
            protocol=Protocol(1, 7, None, ("domainMetadata", "rowTracking")),
            state=row_tracking(metadata),
        ),
        table_uri=TABLE,
    )

    assert lines(manifest)[0]["protocol"]["writerFeatures"] == ["fdsManifest"]
    assert lines(manifest)[1]["metaData"]["configuration"] == {}
    assert all("baseRowId" not in a for a in adds(manifest))


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        (STATS, '{"numRecords":3}'),
        ('{"minValues":{"id":1}}', None),
        ('{"numRecords":"many"}', None),
        ("torn{", None),
        (None, None),
    ],
)
def test_without_stats_a_file_keeps_its_number_of_rows_only(batch, logged, expected):
    manifest = build_manifest(batch(Add("f.parquet", 1, stats=logged)), table_uri=TABLE, stats=False)

    assert adds(manifest)[0].get("stats") == expected


def test_the_checksum_is_made_from_the_same_objects_as_the_commit(batch):
    manifest = build_manifest(batch(Add("f.parquet", 5), Add("g.parquet", 6)), table_uri=TABLE)

    protocol, meta, *_ = lines(manifest)
    assert json.loads(manifest.checksum_json) == {
        "tableSizeBytes": 11,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": meta["metaData"],
        "protocol": protocol["protocol"],
    }


def test_the_same_batch_gives_the_same_bytes_and_another_one_another_name(batch):
    one, again = (build_manifest(batch(Add("f.parquet", 5)), table_uri=TABLE) for _ in range(2))
    other = build_manifest(batch(Add("f.parquet", 6)), table_uri=TABLE)

    assert one == again
    assert other.digest != one.digest
    assert lines(other)[1]["metaData"]["id"] != lines(one)[1]["metaData"]["id"]
    assert len(one.digest) == 32


def test_a_batch_without_files_is_a_table_without_rows(batch):
    manifest = build_manifest(batch(), table_uri=TABLE)

    assert len(lines(manifest)) == 2
    assert json.loads(manifest.checksum_json)["numFiles"] == 0


def test_the_same_path_with_a_different_vector_is_a_different_file(batch, vector):
    manifest = build_manifest(
        batch(Add("f.parquet", 1), Add("f.parquet", 1, deletionVector=vector), protocol=Protocol(1, 2)),
        table_uri=TABLE,
    )

    assert len(adds(manifest)) == 2


def test_a_large_manifest_goes_through_a_file_to_the_same_bytes(batch, monkeypatch):
    files = batch(*(Add(f"f{number}.parquet", number) for number in range(50)))
    expected = build_manifest(files, table_uri=TABLE)
    monkeypatch.setattr(manifest_module, "_KEPT_BYTES", 1_000)
    monkeypatch.setattr(manifest_module, "_CHUNK_BYTES", 500)
    found = build_manifest(files, table_uri=TABLE)

    assert isinstance(found.commit.fileno(), int)
    assert commit_json(found) == commit_json(expected)
    assert found == expected
    with pytest.raises(FdsError, match="twice"):
        build_manifest(batch(*[Add("f.parquet", 1)] * 50), table_uri=TABLE)


def test_a_manifest_for_which_the_temporary_folder_is_full_is_an_error_that_names_it(batch, monkeypatch, disk_of):
    monkeypatch.setattr(manifest_module, "_KEPT_BYTES", 100)
    with disk_of(200), pytest.raises(StorageError, match=r"temporary folder .*: File too large.*set TMPDIR"):
        build_manifest(batch(*(Add(f"f{number}.parquet", number) for number in range(50))), table_uri=TABLE)


def test_a_file_listed_twice_is_refused_because_delta_would_read_it_once(batch, vector):
    absolute = msgspec.structs.replace(
        vector,
        storageType="p",
        pathOrInlineDv=f"{TABLE}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
    )
    twice = batch(Add("f.parquet", 1, deletionVector=vector), Add(f"{TABLE}/f.parquet", 1, deletionVector=absolute))

    with pytest.raises(FdsError, match=r"f\.parquet of version 8 twice, first for version 7"):
        build_manifest(twice, table_uri=TABLE)


@pytest.mark.parametrize(
    "path", ["s3://key:secret@origin/f.parquet", "https://acc.blob.core.windows.net/f.parquet?sig=secret"]
)
def test_a_logged_path_with_a_credential_is_refused_without_repeating_it(batch, path):
    with pytest.raises(ConfigurationError, match="must not contain credentials") as caught:
        build_manifest(batch(Add(path, 1)), table_uri=TABLE)

    assert "secret" not in str(caught.value)


def test_a_logged_vector_with_a_credential_is_refused(batch, vector):
    leaky = msgspec.structs.replace(vector, storageType="p", pathOrInlineDv="s3://k:secret@origin/v.bin")

    with pytest.raises(ConfigurationError, match="must not contain credentials"):
        build_manifest(batch(Add("f.parquet", 1, deletionVector=leaky)), table_uri=TABLE)


def test_a_vector_of_an_unknown_kind_is_refused(batch, vector):
    strange = msgspec.structs.replace(vector, storageType="r")

    with pytest.raises(UnsupportedFeatureError, match=r"file:///lake/a%20b%25 has a deletion vector in version 7"):
        build_manifest(batch(Add("f.parquet", 1, deletionVector=strange)), table_uri=TABLE)


def test_an_unknown_reader_feature_is_refused_by_name(batch):
    unknown = Protocol(3, 7, ("deletionVectors", "timeTravelBackwards"), ("deletionVectors", "timeTravelBackwards"))

    with pytest.raises(UnsupportedFeatureError, match=r"file:///lake/a%20b%25 .* timeTravelBackwards at version 7"):
        build_manifest(batch(Add("f.parquet", 1), protocol=unknown), table_uri=TABLE)
