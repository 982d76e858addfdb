"""The allow-lists: what of the source's protocol and properties a manifest keeps, drops, or refuses."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.manifest.manifest_protocol import (
    GUARD_FEATURE,
    has_row_ids,
    kept_properties,
    manifest_protocol,
)
from airflow_provider_fds.delta.actions import Protocol
from airflow_provider_fds.delta.protocol import CATALOG_FEATURES, DATA_FEATURES, LOG_FEATURES
from airflow_provider_fds.errors import UnsupportedFeatureError

ROW_IDS = {
    "delta__enableRowTracking": "true",
    "delta__rowTracking__materializedRowIdColumnName": "_row-id-col-1",
    "delta__rowTracking__materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}


def built(protocol: Protocol, *, with_vectors: bool = False, with_row_ids: bool = False):
    result = manifest_protocol(
        protocol, with_vectors=with_vectors, with_row_ids=with_row_ids, table="file:///t", version=4
    )
    return (result.min_reader_version, result.min_writer_version, result.reader_features, result.writer_features)


@pytest.mark.parametrize("legacy", [(1, 1), (1, 2), (1, 4), (1, 6)])
def test_a_legacy_protocol_needs_nothing_but_the_guard(legacy):
    assert built(Protocol(*legacy)) == (1, 7, None, (GUARD_FEATURE,))


@pytest.mark.parametrize("writer", [2, 5, 6])
def test_reader_version_2_is_column_mapping(writer):
    assert built(Protocol(2, writer)) == (3, 7, ("columnMapping",), ("columnMapping", GUARD_FEATURE))


@pytest.mark.parametrize("name", sorted(DATA_FEATURES))
def test_a_feature_that_changes_reading_is_listed_for_readers_and_writers(name):
    source = Protocol(3, 7, (name,), (name, "appendOnly", "invariants"))

    assert built(source) == (3, 7, (name,), tuple(sorted((name, GUARD_FEATURE))))


@pytest.mark.parametrize("name", sorted(LOG_FEATURES | CATALOG_FEATURES))
def test_a_feature_of_the_log_alone_is_dropped(name):
    assert built(Protocol(3, 7, (name,), (name,))) == (1, 7, None, (GUARD_FEATURE,))


def test_writer_features_are_dropped():
    source = Protocol(1, 7, None, ("identityColumns", "checkConstraints", "clustering", "inCommitTimestamp", "fooNew"))

    assert built(source) == (1, 7, None, (GUARD_FEATURE,))


def test_vectors_in_the_batch_are_listed_whatever_the_protocol_says():
    assert built(Protocol(1, 2), with_vectors=True)[2] == ("deletionVectors",)


def test_row_ids_bring_both_of_their_features():
    assert built(Protocol(1, 2), with_row_ids=True) == (
        1,
        7,
        None,
        ("domainMetadata", GUARD_FEATURE, "rowTracking"),
    )


@pytest.mark.parametrize(
    "name",
    ["redirectReaderWriter-preview", "adaptiveMetadata-preview", "geospatial", "geospatial-dev", "x"],
)
def test_any_other_reader_feature_is_refused_by_name(name):
    with pytest.raises(UnsupportedFeatureError) as caught:
        built(Protocol(3, 7, ("deletionVectors", name), ("deletionVectors", name)))

    assert caught.value.features == (name,)
    assert (caught.value.table, caught.value.version) == ("file:///t", 4)
    assert name in str(caught.value)


def test_a_newer_reader_version_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="reader version 4 at version 4, but FDS supports at most 3"):
        built(Protocol(4, 8))


def test_properties_of_mapping_stay_and_all_others_go(metadata):
    source = metadata(
        delta__columnMapping__mode="id",
        delta__columnMapping__maxColumnId="7",
        delta__appendOnly="true",
        delta__enableIcebergCompatV2="true",
        fs__s3a__secret__key="hidden",
        **ROW_IDS,
    )

    assert kept_properties(source, with_row_ids=False) == {
        "delta.columnMapping.maxColumnId": "7",
        "delta.columnMapping.mode": "id",
    }
    assert len(kept_properties(source, with_row_ids=True)) == 5


@pytest.mark.parametrize(
    ("features", "properties", "expected"),
    [
        (("rowTracking", "domainMetadata"), ROW_IDS, True),
        (("domainMetadata",), ROW_IDS, False),
        (None, ROW_IDS, False),
        (("rowTracking",), ROW_IDS | {"delta__enableRowTracking": "false"}, False),
        (("rowTracking",), {"delta__enableRowTracking": "true"}, False),
    ],
)
def test_row_ids_are_there_when_row_tracking_is_listed_enabled_and_named(metadata, features, properties, expected):
    assert has_row_ids(Protocol(1, 7, None, features), metadata(**properties)) is expected
