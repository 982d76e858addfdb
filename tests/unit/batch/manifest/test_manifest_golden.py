"""Manifests to the byte. A change here changes the digest, so the name, of every manifest that is built again."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_fds.batch.manifest.manifest import Manifest, build_manifest
from airflow_provider_fds.delta.actions import Add, Protocol
from tests.manifests import commit_json

GOLDEN = Path(__file__).parents[3] / "golden" / "batch"

STATS = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0},"tightBounds":false}'


def column(name: str, kind: object, number: int, **metadata: object) -> dict:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": False, "metadata": {**mapping, **metadata}}


@pytest.fixture
def plain(batch, metadata) -> Manifest:
    state = metadata(("id", "long"), ("p t", "string"), partition_columns=("p t",))
    adds = (
        (7, Add("p%20t=a%2520b/f-0.parquet", 1000, {"p t": "a b"}, 1767268799000, stats=STATS)),
        (7, Add("p%20t=__HIVE_DEFAULT_PARTITION__/f-1.parquet", 500, {"p t": None}, 1767268799001)),
        (9, Add("p%20t=%C3%A9/f-2.parquet", 200, {"p t": 'é"\\\n'}, 1767268801000, stats=STATS)),
    )
    return build_manifest(batch(*adds, state=state), table_uri="file:///lake/or%20ders")


@pytest.fixture
def full(batch, metadata, vector) -> Manifest:
    inner = {"type": "struct", "fields": [column("x", "integer", 3)]}
    state = metadata(
        column("id", "long", 1, **{"delta.identity.start": 1, "comment": "key"}),
        column("s", {"type": "array", "elementType": inner, "containsNull": False}, 2),
        column("p", "date", 4),
        partition_columns=("p",),
        delta__columnMapping__mode="name",
        delta__columnMapping__maxColumnId="4",
        delta__enableRowTracking="true",
        delta__rowTracking__materializedRowIdColumnName="_row-id-col-1",
        delta__rowTracking__materializedRowCommitVersionColumnName="_row-commit-version-col-1",
        delta__enableDeletionVectors="true",
    )
    features = ("columnMapping", "deletionVectors", "v2Checkpoint")
    protocol = Protocol(3, 7, features, (*features, "rowTracking", "domainMetadata", "identityColumns"))
    adds = (
        Add("f-0.parquet", 9, {"col-4": "2026-01-01"}, 5, stats=STATS, baseRowId=0, defaultRowCommitVersion=7),
        Add("f-0.parquet", 9, {"col-4": "2026-01-01"}, 5, stats=STATS, deletionVector=vector, baseRowId=0,
            defaultRowCommitVersion=7),
        Add("s3://origin/f-1.parquet", 8, {"col-4": None}, 6, baseRowId=3, defaultRowCommitVersion=9),
    )  # fmt: skip
    planned = batch(*adds, protocol=protocol, state=state)
    return build_manifest(planned, table_uri="s3://lake/orders", stats=False, allowed_roots=["s3://origin"])


@pytest.mark.parametrize("name", ["plain", "full"])
def test_the_manifest_is_the_golden_file(request, name):
    manifest = request.getfixturevalue(name)

    assert commit_json(manifest).decode() == (GOLDEN / f"manifest_{name}.json").read_text()
    assert manifest.checksum_json.decode() + "\n" == (GOLDEN / f"manifest_{name}.crc").read_text()


def test_the_digests_are_the_ones_that_name_folders(plain, full):
    assert plain.digest == "99d43847f08ee8c10f4c13cd4c3b4275"
    assert full.digest == "6e0e523b2bd274e050f8704e2185df02"
