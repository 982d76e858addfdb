"""Column mapping: files of before and after renamed, dropped and added columns, read under one schema."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.errors import SchemaChangedError
from tests.manifests import commit_json

DEFINITION = """(id LONG, a STRING, st STRUCT<x: INT, y: STRING>, pt STRING) USING delta PARTITIONED BY (pt)
  TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"""


@pytest.fixture(scope="module", params=["name", "id"])
def mapped(lab, request):
    path = lab.create(f"mapped by {request.param}", DEFINITION.format(mode=request.param))
    lab.sql("INSERT INTO {} VALUES (1, 'a', struct(1, 'y'), 'p1'), (2, 'b', struct(2, 'z'), 'p 2')", path)
    lab.sql("ALTER TABLE {} RENAME COLUMN st.x TO `x 2`", path)
    lab.sql("ALTER TABLE {} RENAME COLUMN pt TO `p t`", path)
    lab.sql("ALTER TABLE {} DROP COLUMN a", path)
    lab.sql("ALTER TABLE {} ADD COLUMNS (a STRING)", path)
    lab.sql("INSERT INTO {} VALUES (4, struct(4, 'v'), 'p3', 'new a')", path)
    return path


def test_mapped_columns_are_read_under_the_schema_of_each_batch(lab, mapped):
    before = lab.read_one(mapped, target=1)
    old = lab.spark.read.format("delta").option("versionAsOf", 1).load(mapped)
    assert lab.rows(before) == lab.rows(old)

    after = lab.read_one(mapped, first_version=5)
    assert [tuple(row)[:4] for row in after.collect()] == [(4, (4, "v"), "p3", "new a")]


def test_files_of_before_a_rename_or_drop_are_read_under_the_schema_of_after_it(lab, mapped):
    (old,) = lab.batches(mapped, target=1)
    (new,) = lab.batches(mapped, first_version=5)

    frame = lab.read(replace(new, files=old.files + new.files), mapped)

    assert lab.rows(frame) == lab.table(mapped)
    assert {row._commit_version for row in frame.collect()} == {1, 6}


def test_a_batch_never_reaches_over_a_rename(lab, mapped):
    with pytest.raises(SchemaChangedError):
        lab.batches(mapped)


def test_the_added_columns_have_ids_and_physical_names_of_their_own(lab, mapped):
    (batch,) = lab.batches(mapped, first_version=5)
    manifest = build_manifest(batch, table_uri=lab.log(mapped).table_uri)

    metadata = json.loads(commit_json(manifest).splitlines()[1])["metaData"]
    fields = [field["metadata"] for field in json.loads(metadata["schemaString"])["fields"]]
    ids = [field["delta.columnMapping.id"] for field in fields]
    names = [field["delta.columnMapping.physicalName"] for field in fields]
    source_highest = int(batch.state.metadata.property("delta.columnMapping.maxColumnId"))
    assert ids[-2:] == [source_highest + 1, source_highest + 2]
    assert len(set(ids)) == len(ids)
    assert len(set(names)) == len(names)
