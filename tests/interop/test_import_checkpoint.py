"""A query stops, a stream continues: no row lost, none twice. The query is real, and so is its checkpoint."""

from __future__ import annotations

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession


class StoppedHereError(Exception):
    """Ends a query in the middle of a batch."""


def streamed_rows(lab, path, checkpoint, batches, **options):
    """Read some batches with a query of one file a batch; it is ended within the one after them."""
    seen = []

    def take(frame, batch_id):
        if batch_id >= batches:
            raise StoppedHereError
        seen.extend(row.id for row in frame.collect())

    stream = lab.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    for name, value in options.items():
        stream = stream.option(name, value)
    query = (
        stream.load(path)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="StoppedHereError"):
        query.awaitTermination()
    return seen


def imported_rows(lab, path, checkpoint, name):
    staging = lab.path(f"staging {name}")
    assert main(["admin", "import-checkpoint", checkpoint, path, "--stream", name, "--staging", staging, "--yes"]) == 0
    actor, owner = Actor(deployment="cli"), Owner(kind="cli", deployment="cli", run_id="plan:x")
    context = StreamContext(
        staging_uri=staging, deployment="cli", actor=actor, owner=owner, owner_is_running=lambda _owner: False
    )
    session = StreamSession(DeltaStream(name, table=path), context)
    work = session.begin(None)
    rows = []
    for batch in work.batches:
        location = open_storage(staging).root / name / batch.manifest
        rows += [row.id for row in lab.spark.read.format("delta").load(str(location)).collect()]
    return session.connected.state.epoch_start, rows


@pytest.fixture
def table(lab, request):
    """Three commits of three files, four rows each."""
    path = lab.path(f"streamed by {request.node.name}")
    for first in (0, 12, 24):
        lab.spark.range(first, first + 12, 1, 3).write.format("delta").mode("append").save(path)
    return path


def test_a_stream_continues_in_the_middle_of_a_commit(lab, table, capsys):
    checkpoint = lab.path("checkpoint of changes")
    seen = streamed_rows(lab, table, checkpoint, 4, startingVersion=0)

    start, rows = imported_rows(lab, table, checkpoint, "changes")

    assert (Offset.from_json(start).version, Offset.from_json(start).index) == (1, 0)
    assert len(seen) == 16
    assert sorted(seen + rows) == list(range(36))
    said = capsys.readouterr()
    assert "the end of batch 3 of the query" in said.out
    assert "batch 4 of the query was started but not finished" in said.out


def test_a_stream_continues_in_the_middle_of_the_initial_snapshot_and_reads_what_came_since(lab, table):
    checkpoint = lab.path("checkpoint of the snapshot")
    seen = streamed_rows(lab, table, checkpoint, 2)
    lab.spark.range(36, 40, 1, 1).write.format("delta").mode("append").save(table)

    start, rows = imported_rows(lab, table, checkpoint, "snapshot")

    assert Offset.from_json(start).is_initial_snapshot
    assert len(seen) == 8
    assert sorted(seen + rows) == list(range(40))
    assert DeltaLog(open_storage(table)).latest() == 3
