"""Deletion vectors, and files that come back: whatever a file looks like by now, its rows arrive as of the commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def vectors(lab):
    """100 rows in one file, of which several commits each delete some: the later ones below random prefixes."""
    path = lab.create(
        "vectors",
        "(id LONG, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    )
    frame = lab.spark.range(100).selectExpr("id", "'x y' AS p").coalesce(1)
    frame.write.format("delta").mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id % 10 = 1", path)
    lab.sql(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.randomizeFilePrefixes' = 'true', 'delta.randomPrefixLength' = '2')",
        path,
    )
    lab.sql("DELETE FROM {} WHERE id % 10 = 2", path)
    lab.sql("UPDATE {} SET p = 'q' WHERE id = 50", path)
    return path


@pytest.fixture(scope="module")
def clone(lab, vectors):
    """A shallow clone: its log lists the files and vectors of the origin by absolute path."""
    path = lab.path("clone")
    lab.spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{vectors}`")
    lab.sql("DELETE FROM {} WHERE id = 60", path)
    return path


def vectors_of(batch):
    return [file.add.deletionVector for file in batch.files if file.add.deletionVector is not None]


# D19
def test_several_vectors_of_one_file_are_each_applied(lab, vectors):
    (batch,) = lab.batches(vectors)
    prefixes = {len(vector.pathOrInlineDv) - 20 for vector in vectors_of(batch)}
    assert prefixes == {0, 2}

    frame = lab.read(batch, vectors)

    assert lab.rows(frame) == lab.streamed(vectors)
    assert frame.count() == batch.num_rows == 100 + 90 + 80 + 79 + 1


def test_vectors_are_applied_after_the_source_dropped_the_feature(lab, vectors):
    """Delta ignores the vectors of a table that does not list the feature: all deleted rows would be back."""
    path = lab.path("dropped")
    shutil.copytree(vectors, path)
    dropped = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    newest = lab.log(path).latest()
    Path(path, "_delta_log", f"{newest + 1:020d}.json").write_text(json.dumps(dropped))

    (batch,) = lab.batches(path)

    assert batch.state.protocol.readerFeatures is None
    assert len(lab.collect(batch, path)) == 350


def test_a_shallow_clone_is_read_through_its_absolute_paths(lab, clone):
    (batch,) = lab.batches(clone)
    assert all(file.add.path.startswith("file:") for file in batch.files)
    assert {vector.storageType for vector in vectors_of(batch)} == {"p", "u"}

    assert lab.without_provenance(lab.collect(batch, clone)) == lab.streamed(clone)


def test_a_restored_file_is_in_a_separate_batch(lab):
    path = lab.create("restored", "(id LONG) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    lab.spark.range(10).coalesce(1).write.format("delta").mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id < 100", path)
    lab.sql("RESTORE TABLE {} TO VERSION AS OF 1", path)
    lab.sql("DELETE FROM {} WHERE id < 3", path)
    lab.sql("RESTORE TABLE {} TO VERSION AS OF 1", path)

    batches = lab.batches(path)
    total = lab.read_all(path)

    assert [batch.num_files for batch in batches] == [1, 2, 1]
    assert total.total() == 37
    assert total == lab.streamed(path)
