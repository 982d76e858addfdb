"""Manifests of the change data feed: where ``_change_type`` stands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.delta.actions import Protocol
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.planned import ChangedFile
from tests.manifests import commit_json

ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]


def built(found, feed, **given):
    manifest = build_manifest(replace(found, feed=feed), table_uri="file:///lake/t", **given)
    protocol, metadata, *files = (json.loads(line) for line in commit_json(manifest).splitlines())
    return protocol["protocol"], metadata["metaData"], [line["add"] for line in files]


def fields(metadata):
    return json.loads(metadata["schemaString"])["fields"]


def whole(path, kind, **given):
    return ChangedFile(path, 10, change_type=kind, **given)


def test_whole_files_have_the_change_type_as_a_partition_column(batch, metadata):
    state = metadata(("id", "long"), ("p", "string"), partition_columns=("p",))
    found = batch(whole("a", "insert", partitionValues={"p": "x"}), whole("b", "delete"), state=state)
    _, meta, files = built(found, "whole_files")

    assert [field["name"] for field in fields(meta)] == ["id", "p", *ADDED]
    assert meta["partitionColumns"] == ["p", *ADDED]
    assert [file["partitionValues"]["_change_type"] for file in files] == ["insert", "delete"]
    assert files[0]["partitionValues"]["p"] == "x"
    assert all(file["dataChange"] for file in files)


def test_change_files_have_it_as_a_column_of_their_own_and_the_schema_is_the_same(batch):
    found = batch(ChangedFile("_change_data/a", 10))
    _, meta, files = built(found, "change_files")

    assert fields(meta) == fields(built(batch(whole("a", "insert")), "whole_files")[1])
    assert meta["partitionColumns"] == ADDED[1:]
    assert list(files[0]["partitionValues"]) == ADDED[1:]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_in_a_mapped_table_the_column_of_change_files_has_the_name_it_was_written_with(batch, metadata, mode):
    state = metadata(delta__columnMapping__mode=mode, delta__columnMapping__maxColumnId="8")
    _, meta, _ = built(batch(ChangedFile("a", 10), state=state), "change_files")
    names = [field["metadata"]["delta.columnMapping.physicalName"] for field in fields(meta)[1:]]

    assert names[0] == "_change_type"
    assert all(name.startswith("col-") for name in names[1:])
    assert [field["metadata"]["delta.columnMapping.id"] for field in fields(meta)[1:]] == [9, 10, 11]
    # the file has no field id for it
    assert meta["configuration"] == {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "11"}

    _, meta, files = built(batch(whole("a", "insert"), state=state), "whole_files")
    names = [field["metadata"]["delta.columnMapping.physicalName"] for field in fields(meta)[1:]]
    assert files[0]["partitionValues"][names[0]] == "insert"
    assert names[0].startswith("col-")
    assert meta["configuration"]["delta.columnMapping.mode"] == mode


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version"])
def test_a_source_with_a_column_of_that_name_is_refused(batch, metadata, name):
    found = batch(whole("a", "insert"), state=metadata(("id", "long"), (name, "string")))
    with pytest.raises(ConfigurationError, match=f"has the column {name} at version 7; a batch adds _change_type, "):
        built(found, "whole_files")


def test_without_the_feed_a_column_named_change_type_is_an_ordinary_column(batch, metadata):
    found = batch(whole("a", None), state=metadata(("_change_type", "string")))
    assert [field["name"] for field in fields(built(found, None)[1])] == ADDED


def test_rows_of_the_feed_have_no_row_ids(batch, metadata):
    state = metadata(
        delta__enableRowTracking="true",
        delta__rowTracking__materializedRowIdColumnName="_row-id-col-1",
        delta__rowTracking__materializedRowCommitVersionColumnName="_row-commit-version-col-1",
    )
    protocol = Protocol(3, 7, (), ("rowTracking", "domainMetadata"))
    found = batch(whole("a", "insert", baseRowId=0, defaultRowCommitVersion=7), protocol=protocol, state=state)

    assert "rowTracking" in built(found, None)[0]["writerFeatures"]
    assert "rowTracking" not in built(found, "whole_files")[0]["writerFeatures"]
