from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_fds.errors import (
    BatchFailedError,
    BatchRejectedError,
    ConfigurationError,
    LedgerError,
    LogRewoundError,
    SinkError,
    StreamBusyError,
    TableNotFoundError,
    TableReplacedError,
    VerificationError,
    ViolationError,
)
from airflow_provider_fds.ledger.staging.housekeeping import Retention
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.run.purge import purge_stream


def test_a_run_plans_loads_and_moves_the_offset(bench, two_appends, sink):
    session, work = bench.run_once(sink)

    assert [batch.num_files for batch in work.batches] == [5]
    assert session.result().rows == 50
    assert Offset.from_json(session.connected.state.position) == Offset.after(2, session.connected.state.table_id)
    assert session.begin(sink).status == "done"


def test_a_new_run_with_nothing_new_is_up_to_date_and_writes_no_entry(bench, two_appends, sink):
    bench.run_once(sink)
    session, work = bench.run_once(sink, "run-2")

    assert work.status == "up_to_date"
    assert session.result() is None


def test_the_next_run_continues_where_the_last_one_ended(bench, two_appends, log_builder, sink):
    first, _ = bench.run_once(sink)
    log_builder.append(1)
    second, work = bench.run_once(sink, "run-2")

    assert work.batches[0].start == first.connected.state.position
    assert second.result().to_dict()["first_version"] == 3
    assert second.result().first_batch_id == 1


def test_a_retry_works_on_the_same_frozen_batches_although_the_table_has_grown(bench, two_appends, log_builder, sink):
    first = bench.session()
    planned = first.begin(sink)
    log_builder.append(7)
    again = bench.session().begin(sink, retry=True)

    assert again.batches == planned.batches
    assert again.attempt_id != planned.attempt_id
    assert again.target == 2


# D27
def test_a_run_works_to_the_target_it_saw_first_and_no_further(bench, log_builder, sink):
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink, max_batches=2)
    assert work.is_more
    seen = 0
    while work.status == "work":
        log_builder.append(1)
        bench.report(session, work, session.job(work, sink))
        seen += len(session.collect(work).committed)
        work = session.begin(sink, max_batches=2)

    assert seen == 4
    assert work.status == "done"
    assert session.result().last_version == 4
    _, rest = bench.run_once(sink, "run-2")
    assert (rest.batches[0].first_version, rest.batches[-1].last_version) == (5, log_builder.version)


def test_a_cleared_run_returns_its_result_again_and_leaves_the_offset_alone(bench, two_appends, log_builder, sink):
    first, _ = bench.run_once(sink)
    log_builder.append(1)
    second, _ = bench.run_once(sink, "run-2")
    log_builder.append(1)
    cleared = bench.session("run-1")

    work = cleared.begin(sink, retry=True)

    assert work.status == "done"
    assert work.result == first.result()
    assert cleared.connected.state.position == second.connected.state.position


def test_batches_of_a_run_that_still_runs_are_not_touched(bench, two_appends, sink):
    bench.session("run-1").begin(sink)
    bench.running.add("run-1")

    with pytest.raises(StreamBusyError, match="run run-1, which appears to be running"):
        bench.session("run-2").begin(sink)


def test_batches_of_a_dead_run_are_taken_over_as_they_are(bench, two_appends, sink):
    planned = bench.session("run-1").begin(sink)
    session, work = bench.run_once(sink, "run-2")

    assert work.batches == planned.batches
    assert session.result().rows == 50


def test_a_late_commit_of_a_run_whose_batches_were_taken_over_is_refused(bench, two_appends, sink):
    late = bench.session("run-1")
    work = late.begin(sink)
    spec = late.job(work, sink)
    bench.session("run-2").begin(sink)
    bench.report(late, work, spec)

    with pytest.raises(StreamBusyError, match="run-2"):
        late.collect(work)


def test_batches_before_a_failed_one_are_committed(bench, two_appends, sink):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    assert len(work.batches) == 2
    only_first = replace(work, batches=work.batches[:1])
    bench.report(session, only_first, session.job(only_first, sink))

    collected = session.collect(work)

    assert [batch.batch_id for batch in collected.committed] == [0]
    assert isinstance(collected.failure, BatchFailedError)
    assert collected.failure.retryable
    assert "without a report" in str(collected.failure)
    assert session.connected.state.last_batch_id == 0


def test_batches_are_committed_while_spark_works_on_the_next_and_the_result_has_all_of_them(bench, two_appends, sink):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    first, second = (replace(work, batches=(batch,)) for batch in work.batches)
    assert session.collect(work, is_running=True).committed == ()

    bench.report(session, first, session.job(first, sink))
    collected = session.collect(work, is_running=True)
    assert [batch.batch_id for batch in collected.committed] == [0]
    assert collected.failure is None
    assert session.connected.state.last_batch_id == 0

    bench.report(session, second, session.job(second, sink))
    collected = session.collect(work)
    assert [batch.batch_id for batch in collected.committed] == [0, 1]
    assert len(collected.reports) == 2
    assert collected.failure is None
    assert session.result().batches == 2


def test_the_measurements_of_the_driver_are_in_the_result_of_the_run_and_its_retry(bench, two_appends, sink):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    # one that leaves rows out: as many are written as are left
    sink = replace(sink, where="id > 10")
    work = session.begin(sink)
    measured = {"rows_read": 30, "rows_written": 20, "files_written": 1, "bytes_written": 100}
    seconds = {"check": 0.25, "write": 1.5, "total": 1.75}
    bench.report(session, work, session.job(work, sink), **measured, seconds=seconds)
    session.collect(work)

    batches = len(work.batches)
    for run in (session, bench.session(stream=session.stream)):
        result = run.begin(sink, retry=True).result if run is not session else session.result()
        assert (result.rows_read, result.rows) == (30 * batches, 20 * batches)
        assert (result.files_written, result.bytes_written) == (batches, 100 * batches)
        assert result.seconds == {"check": 0.25 * batches, "write": 1.5 * batches}
    last = session.status().last_commit
    assert (last["rows_read"], last["rows"], last["seconds"]) == (30, 20, {"check": 0.25, "write": 1.5})


def test_the_error_of_a_batch_is_raised_after_spark_ends(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), outcome="mismatch")
    assert session.collect(work, is_running=True).reports == ()
    with pytest.raises(VerificationError):
        session.collect(work)


def test_a_failure_that_a_retry_cannot_fix_is_not_retryable(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(
        session,
        work,
        session.job(work, sink),
        outcome="failed",
        retryable=False,
        error_class="AnalysisException",
        error_message="no such column: x",
    )

    failure = session.collect(work).failure

    assert isinstance(failure, BatchRejectedError)
    assert not failure.retryable
    assert "AnalysisException: no such column: x" in str(failure)
    assert session.connected.state.last_batch_id is None


def test_rows_that_do_not_match_the_log_block_the_stream_until_a_person_accepts(bench, two_appends, sink):
    from airflow_provider_fds.ledger.entries.commit_entries import Accepted

    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), outcome="mismatch", rows_written=49)
    with pytest.raises(VerificationError, match="The plan has 50 rows, but the sink's version 1 has 49"):
        session.collect(work)

    retry = bench.session()
    again = retry.begin(sink, retry=True)
    bench.report(retry, again, retry.job(again, sink), outcome="mismatch", rows_written=49, sink_version=1)
    with pytest.raises(VerificationError):
        retry.collect(again)

    retry.connected.execute(Accepted(epoch=1, batch_id=0, why="the source counts wrongly"))
    assert [batch.batch_id for batch in retry.collect(again).committed] == [0]


def test_a_commit_file_that_changes_between_plan_and_commit_blocks_the_batch(bench, two_appends, log_builder, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    path = log_builder.log / f"{2:020d}.json"
    path.write_text(path.read_text().replace("part-00002-00000", "part-00002-0000X"))

    with pytest.raises(VerificationError, match="not those that the batch was planned from"):
        session.collect(work)
    assert session.connected.state.blocked is not None


# D37
def test_52_a_commit_file_that_vanishes_between_plan_and_commit_blocks_the_batch(bench, two_appends, log_builder, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    (log_builder.log / f"{2:020d}.json").unlink()

    with pytest.raises(VerificationError, match="log changed while the batch was loaded"):
        session.collect(work)


# D15
def test_the_good_prefix_is_delivered_and_the_next_run_stops_before_the_bad_version(
    bench, two_appends, log_builder, sink
):
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), operation="DELETE")
    session, work = bench.run_once(sink)

    assert work.batches[-1].last_version == 2
    assert isinstance(work.warning, ViolationError)
    assert not work.warning.retryable
    assert Offset.from_json(session.connected.state.position).version == 3
    with pytest.raises(ViolationError, match="version 3 \\(DELETE"):
        bench.session("run-2").begin(sink)


# D16
def test_a_range_without_data_moves_the_offset_without_spark(bench, two_appends, log_builder, sink):
    bench.run_once(sink)
    log_builder.commit(operation="OPTIMIZE")
    log_builder.commit(operation="VACUUM END")
    session, work = bench.run_once(sink, "run-2")

    assert work.status == "up_to_date"
    assert Offset.from_json(session.connected.state.position).version == 5
    assert session.connected.state.prev_txn_version == (1 << 32) + 1


def test_the_chain_of_after_has_no_gap_although_commits_without_data_lie_between(bench, two_appends, log_builder, sink):
    first, _ = bench.run_once(sink)
    log_builder.commit(operation="OPTIMIZE")
    bench.run_once(sink, "run-2")
    log_builder.append(1)
    third = bench.session("run-3")
    (spec,) = third.scope.specs(third.begin(sink).batches)

    assert spec.after == first.result().end
    assert Offset.from_json(spec.start).version == 4


# D9
def test_an_initial_snapshot_is_frozen_and_cut_by_index(bench, two_appends, log_builder, sink):
    stream = bench.stream("snap", starting_version=None, max_files_per_batch=2)
    session = bench.session(stream=stream)
    work = session.begin(sink)
    log_builder.append(1)

    assert [b.num_files for b in work.batches] == [2, 2, 1]
    assert Offset.from_json(work.batches[0].end).is_initial_snapshot
    assert Offset.from_json(work.batches[-1].end) == Offset.after(2, session.connected.state.table_id)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    _, rest = bench.run_once(sink, "run-2", stream=stream)
    assert [b.first_version for b in rest.batches] == [3]


def test_latest_is_resolved_once_and_keeps_what_arrives_before_the_first_batch(bench, two_appends, log_builder, sink):
    stream = bench.stream("tail", starting_version="latest")
    bench.session(stream=stream).ensure_open()
    log_builder.append(1)
    _, work = bench.run_once(sink, "run-2", stream=stream)

    assert [b.first_version for b in work.batches] == [3]


def test_a_start_in_the_future_waits_until_a_commit_reaches_it(bench, two_appends, log_builder, sink):
    stream = bench.stream("later", starting_version=None, starting_timestamp="2024-01-01T00:03:00Z")
    session = bench.session(stream=stream)
    assert session.begin(sink).status == "waiting"
    log_builder.append(1)

    assert bench.session(stream=stream).begin(sink).batches[0].first_version == 3


def test_another_table_under_the_same_stream_name_is_refused(bench, two_appends, tmp_path, sink):
    bench.run_once(sink)
    other = DeltaStream("orders", table=str(tmp_path / "other"), starting_version=0)

    with pytest.raises(LedgerError, match="A position belongs to one table"):
        bench.session("run-2", stream=other).begin(sink)


def test_another_sink_for_the_same_stream_is_refused(bench, two_appends, tmp_path, sink):
    bench.run_once(sink)

    with pytest.raises(SinkError, match="elsewhere"):
        bench.session("run-2").begin(DeltaAppendSink(str(tmp_path / "elsewhere")))


@pytest.mark.parametrize("where", ["table", "staging"])
def test_a_sink_inside_the_table_or_the_staging_is_refused(bench, two_appends, where):
    folder = bench.table if where == "table" else bench.staging
    with pytest.raises(SinkError, match="overlaps"):
        bench.session().begin(DeltaAppendSink(str(folder / "sink")))


def test_staging_inside_the_table_is_refused(bench, two_appends):
    bench.staging = bench.table / "staging"
    with pytest.raises(ConfigurationError, match="overlap"):
        bench.session()


def test_no_stream_is_created_for_a_missing_table(bench, tmp_path, sink):
    bench.table = tmp_path / "nothing"
    with pytest.raises(TableNotFoundError, match="nothing"):
        bench.session().begin(sink)
    assert not (bench.staging / "orders").exists()


# D39
def test_a_table_restored_to_an_older_version_is_a_lost_position(bench, two_appends, log_builder, sink):
    bench.run_once(sink)
    for version in (1, 2):
        (log_builder.log / f"{version:020d}.json").unlink()

    with pytest.raises(LogRewoundError, match="0"):
        bench.session("run-2").begin(sink)


def test_a_copy_of_the_table_with_other_content_is_detected(bench, two_appends, log_builder, sink):
    bench.run_once(sink)
    path = log_builder.log / f"{2:020d}.json"
    path.write_text(path.read_text() + "\n")
    log_builder.append(1)

    with pytest.raises(TableReplacedError, match="not the commit that this stream has read"):
        bench.session("run-2").begin(sink)


def test_two_installations_cannot_share_a_stream(bench, two_appends, sink):
    bench.run_once(sink)
    with pytest.raises(LedgerError, match="fds transfer"):
        bench.session("run-2", deployment="copy").begin(sink)


def test_a_lost_ledger_is_noticed_by_the_traces_in_the_sink(bench, two_appends, tmp_path, sink):
    from tests.conftest import LogBuilder

    _session, work = bench.run_once(sink)
    (spec,) = list(work.batches)
    from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
    from airflow_provider_fds.batch.spec import BatchSpec

    batch = BatchSpec("orders", "u", 1, 0, spec.start, spec.end, spec.start, 0, 2, "m", spec.digest, 5, 1, 50, None)
    written = LogBuilder(tmp_path / "sink")
    written.create()
    written.commit(
        {"commitInfo": {"operation": "WRITE", "userMetadata": commit_metadata(batch, "t", {})}}, operation=None
    )
    bench.staging = tmp_path / "empty-staging"

    with pytest.raises(LedgerError, match="The ledger was lost"):
        bench.session("run-9").begin(sink)


def test_status_shows_the_position_of_the_stream_and_writes_nothing(bench, two_appends, log_builder, sink):
    bench.run_once(sink)
    log_builder.append(1)
    before = sorted(path for path in bench.staging.rglob("*"))

    status = bench.session("looker").status()

    assert (status.newest_version, status.lag_versions, status.last_batch_id, status.planned_batches) == (3, 1, 0, 0)
    assert sorted(path for path in bench.staging.rglob("*")) == before


def test_a_checkpoint_that_a_dead_run_left_behind_is_written_again(bench, two_appends, tmp_path, sink):
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    store = FileCheckpointStore(tmp_path / "checkpoint.json")
    session = bench.session(checkpoints=store)
    work = session.begin(sink)
    stale = store.read()
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    committed = store.read()
    store.write(committed)
    (tmp_path / "checkpoint.json").write_text(stale.to_json())

    assert bench.session("run-2", checkpoints=store).begin(sink).status == "up_to_date"
    assert store.read() == committed


def test_old_batches_leave_staging_and_the_next_run_continues(bench, two_appends, log_builder, sink):
    stream = bench.stream(max_versions_per_batch=1)
    session, _ = bench.run_once(sink, stream=stream)
    manifests = bench.staging / "orders" / "manifests" / "1"
    assert len(list(manifests.rglob("*.json"))) == 2

    purge_stream(session.connected, Retention(batches=1, age=timedelta(0)))

    assert len(list(manifests.rglob("*.json"))) == 1
    log_builder.append(1)
    assert bench.run_once(sink, "run-2", stream=stream)[0].result().batches == 1


@pytest.mark.parametrize(("kept", "left"), [("interval 0 hours", 1), (None, 2), ("interval 400 days", 2)])
def test_manifests_are_removed_with_the_source_files_that_they_list(bench, log_builder, sink, kept, left):
    log_builder.create(configuration={"delta.deletedFileRetentionDuration": kept} if kept else None)
    log_builder.append(2)
    session, work = bench.run_once(sink, stream=bench.stream(max_files_per_batch=1))
    assert len(work.batches) == 2
    purge_stream(session.connected, Retention(batches=1, age=timedelta(days=14)))

    manifests = bench.staging / "orders" / "manifests" / "1"
    assert len(list(manifests.rglob("*.json"))) == left


# D37
def test_an_initial_snapshot_continues_in_the_middle_although_its_log_was_cleaned_up(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(4)
    stream = bench.stream("snap", starting_version=None, max_files_per_batch=1)
    session = bench.session(stream=stream)
    work = session.begin(sink, max_batches=1)
    time_of_first = session.connected.state.snapshot.timestamp_ms
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    for _ in range(3):
        log_builder.append(1)
    checkpoint_everything(log_builder)
    for version in (0, 1):
        (log_builder.log / f"{version:020d}.json").unlink()

    again = bench.session(stream=stream).begin(sink, retry=True)

    assert time_of_first is not None
    assert [b.num_files for b in again.batches] == [1, 1, 1]
    assert again.target == 1


def checkpoint_everything(log_builder):
    """Let deltalake write a checkpoint of the newest version."""
    from deltalake import DeltaTable

    DeltaTable(str(log_builder.root)).create_checkpoint()


def test_a_new_stream_can_start_at_the_version_that_broke_the_schema(bench, two_appends, log_builder, sink):
    broken = log_builder.commit(log_builder.metadata([log_builder.field("id", "string")]), operation="SET SCHEMA")
    log_builder.append(1)
    _, work = bench.run_once(sink, stream=bench.stream("new", starting_version=broken))

    assert work.batches[0].first_version == broken
    assert work.warning is None


def test_a_retry_after_a_good_prefix_returns_the_result_although_a_bad_version_is_next(
    bench, two_appends, log_builder, sink
):
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), operation="DELETE")
    first, _ = bench.run_once(sink)

    again = bench.session().begin(sink, retry=True)

    assert again.status == "done"
    assert again.result == first.result()
    assert isinstance(again.warning, ViolationError)


def test_an_acceptance_does_not_cover_another_problem_of_the_batch(bench, two_appends, log_builder, sink):
    from airflow_provider_fds.ledger.entries.commit_entries import Accepted

    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), outcome="mismatch", rows_written=49)
    with pytest.raises(VerificationError):
        session.collect(work)
    session.connected.execute(Accepted(epoch=1, batch_id=0, why="looked"))
    (log_builder.log / f"{2:020d}.json").unlink()

    with pytest.raises(VerificationError, match="log changed while the batch was loaded"):
        session.collect(work)


@pytest.mark.parametrize("uri", ["s3://key:s3cr3t@lake/x", "s3://lake/x?sig=s3cr3t"])
def test_a_credential_in_any_uri_is_refused_and_not_repeated(bench, two_appends, uri):
    for make in (
        lambda: DeltaStream("s", uri),
        lambda: DeltaStream("s", "s3://lake/t", staging=uri),
        lambda: DeltaAppendSink(uri),
    ):
        with pytest.raises((ConfigurationError, ValueError)) as caught:
            make()
        assert "s3cr3t" not in str(caught.value)
        assert "s3cr3t" not in str(getattr(caught.value, "table", ""))
    bench.staging = uri
    with pytest.raises(ConfigurationError):
        bench.session()


def test_staging_inside_the_table_is_noticed_under_another_spelling_of_s3():
    from airflow_provider_fds.stream.connected_stream import lie_inside_each_other

    assert lie_inside_each_other("s3://lake/orders", "s3a://lake/orders/staging")
    assert not lie_inside_each_other("s3://lake/orders", "s3a://lake/orders2")


def test_a_stream_of_changes_is_not_opened_where_none_are_recorded(bench, two_appends, sink):
    with pytest.raises(ConfigurationError, match="not true at version 0, where the stream would start"):
        bench.run_once(sink, stream=bench.stream(read_change_feed=True))
    with pytest.raises(ConfigurationError, match="not true at version 2"):
        bench.run_once(sink, stream=bench.stream(read_change_feed=True, starting_version="latest"))
    # nothing was opened, so the same stream starts as soon as the options can work
    _, work = bench.run_once(sink)
    assert [batch.num_files for batch in work.batches] == [5]


def test_changes_are_planned_as_batches_of_one_kind_and_the_count_of_change_files_is_unknown(bench, log_builder, sink):
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append(2)
    change = {"cdc": {"path": "_change_data/x", "size": 7, "partitionValues": {}}}
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), log_builder.add("y"), change, operation="UPDATE")
    session, work = bench.run_once(sink, stream=bench.stream(read_change_feed=True))

    assert [(batch.num_files, batch.num_rows) for batch in work.batches] == [(2, 20), (1, None)]
    assert Offset.from_json(session.connected.state.position).version == 3


@pytest.mark.parametrize(
    "listed",
    [
        {"path": "s3://stranger/part-0.parquet"},
        {"path": "../payroll/part-0.parquet"},
        {
            "deletionVector": {
                "storageType": "p",
                "pathOrInlineDv": "s3://stranger/deletion_vector.bin",
                "offset": 1,
                "sizeInBytes": 34,
                "cardinality": 1,
            }
        },
    ],
)
def test_a_commit_that_lists_files_elsewhere_is_not_read_unless_their_place_is_allowed(
    bench, log_builder, sink, listed
):
    log_builder.create(
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    )
    log_builder.append(1)
    log_builder.commit(log_builder.add(**listed))

    work = bench.session().begin(sink)
    assert [batch.last_version for batch in work.batches] == [1]
    assert isinstance(work.warning, ConfigurationError)
    assert "is outside the table" in str(work.warning)
    allowed = bench.stream("other", allowed_roots="s3://stranger" if "s3:" in str(listed) else "*")
    assert bench.session(stream=allowed).begin(sink).batches[-1].last_version == 2


def test_changes_by_other_writers_are_in_log_result_and_status(bench, two_appends, sink, caplog):
    stream = bench.stream(max_versions_per_batch=1)
    session = bench.session(stream=stream)
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), warnings=("version 7 took out rows",))

    session.collect(work)

    assert caplog.messages.count("Stream orders: version 7 took out rows") == len(work.batches) == 2
    assert session.result().to_dict()["warnings"] == ["version 7 took out rows"]
    assert bench.session("looker", stream=stream).status().last_commit["warnings"] == ["version 7 took out rows"]
