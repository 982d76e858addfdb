"""The driver's shorter way to the rows of a manifest, and when it is not gone; that they are the same is in ``Lab``."""

from __future__ import annotations

from uuid import uuid4

import pytest

from airflow_provider_fds.spark.application import batch_rows as module
from airflow_provider_fds.spark.application.batch_rows import listed_rows


@pytest.fixture
def manifest(lab, request):
    """A manifest of two files, and its frame."""
    path = lab.create(f"listed-{request.node.name}", "(id LONG) USING delta")
    lab.sql("INSERT INTO {} VALUES (1)", path)
    lab.sql("INSERT INTO {} VALUES (2)", path)
    (batch,) = lab.batches(path)
    uri = lab.publish(batch, path)
    return uri, lab.spark.read.format("delta").load(uri)


def jobs_of(context, frame) -> int:
    """Read the frame and return how many Spark jobs that took."""
    group = f"listed-{uuid4()}"
    context.setJobGroup(group, "reading")
    frame.write.format("noop").mode("overwrite").save()
    context.setLocalProperty("spark.jobGroup.id", None)
    return len(context.statusTracker().getJobIdsForGroup(group))


def test_the_listed_files_are_read_in_one_job(lab, manifest):
    uri, frame = manifest
    listed = listed_rows(lab.spark, frame, uri, 2)
    assert sorted(row.id for row in listed.collect()) == [1, 2]
    context = lab.spark.sparkContext
    assert jobs_of(context, listed) == 1
    assert jobs_of(context, frame) > 1


def test_another_number_of_files_than_planned_is_left_to_delta(lab, manifest):
    uri, frame = manifest
    assert listed_rows(lab.spark, frame, uri, 3) is frame


def test_a_log_that_begins_unlike_a_manifest_is_left_to_delta(lab, manifest, monkeypatch):
    uri, frame = manifest
    monkeypatch.setattr(module, "_HEAD", ("Protocol", "CommitInfo"))
    assert listed_rows(lab.spark, frame, uri, 2) is frame


def test_a_schema_that_delta_does_not_write_is_left_to_delta(lab, manifest):
    uri, frame = manifest
    other = frame.withColumnRenamed("id", "other")
    assert listed_rows(lab.spark, other, uri, 2) is other


def test_a_session_that_is_not_active_is_left_to_delta(lab, manifest):
    uri, _ = manifest
    other = lab.spark.newSession()
    frame = other.read.format("delta").load(uri)
    assert listed_rows(other, frame, uri, 2) is frame


@pytest.mark.parametrize("method", ["getChanges", "createDataFrame"])
def test_a_delta_without_one_of_the_methods_is_read_the_public_way(lab, manifest, monkeypatch, method):
    uri, frame = manifest
    call = module._with_defaults

    def missing(target, name, *given):
        return call(target, "notThere" if name == method else name, *given)

    monkeypatch.setattr(module, "_with_defaults", missing)
    assert listed_rows(lab.spark, frame, uri, 2) is frame
