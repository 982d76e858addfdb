"""Data intervals: each run reads its own versions, in any order, as often as it likes."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import (
    ConfigurationError,
    LedgerError,
    LostPositionError,
    SinkError,
    SourceFilesGoneError,
    StreamBusyError,
    TableReplacedError,
    TornFileError,
    UnsupportedFeatureError,
    VerificationError,
    ViolationError,
)
from airflow_provider_fds.ledger.entries.commit_entries import Accepted
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.housekeeping import Retention
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.run.purge import purge_stream
from tests.moves import requested
from tests.unit.stream.conftest import FUTURE, UNREADABLE

if TYPE_CHECKING:
    from pathlib import Path

#: The log builder's version 0.
START = datetime(2024, 1, 1, tzinfo=UTC)


def minutes(first: float, last: float) -> DataInterval:
    """The interval from minute ``first`` to minute ``last``; version ``v`` is committed in minute ``v``."""
    return DataInterval(START + timedelta(minutes=first), START + timedelta(minutes=last))


@pytest.fixture
def append(tmp_path: Path) -> DeltaAppendSink:
    return DeltaAppendSink(str(tmp_path / "sink"))


@pytest.fixture
def replacing(tmp_path: Path) -> DeltaReplaceSink:
    return DeltaReplaceSink(str(tmp_path / "sink"), replace_where="true")


@pytest.fixture
def six_commits(log_builder):
    log_builder.create()
    for _ in range(5):
        log_builder.append(1)
    return log_builder


def session_of(bench: Any, interval: DataInterval, run: str = "run-1", **options: Any) -> StreamSession:
    context = bench.session(run).context
    options.setdefault("name", "days")
    return StreamSession(DeltaStream(table=str(bench.table), read="data_interval", **options), context, interval)


def job_of(bench: Any, session: StreamSession, work: Any, sink: Any) -> JobSpec:
    storage = open_storage(str(bench.staging))
    uri = session.job(work, sink)
    return JobSpec.from_json(storage.get(uri.removeprefix(storage.uri + "/"))[0])


def load(
    bench: Any, interval: DataInterval, sink: Any, run: str = "run-1", *, report: Any = None, **options: Any
) -> Any:
    """Work an interval as a run does, with a driver that writes all; return its work and result."""
    session = session_of(bench, interval, run, **options)
    work = session.begin(sink)
    if work.status == "work":
        leave_reports(bench, session, work, sink, **(report or {}))
        session.collect(work)
    return work, session.result()


def leave_reports(bench: Any, session: StreamSession, work: Any, sink: Any, **changes: Any) -> None:
    from airflow_provider_fds.batch.report import AttemptReport, report_name
    from tests.unit.stream.conftest import SINK_ID, leave_commit

    storage = open_storage(str(bench.staging))
    job = job_of(bench, session, work, sink)
    reports = job.reports.removeprefix(storage.uri + "/")
    for batch in job.batches:
        bench.sink_version += 1
        fields = {
            "uuid": batch.uuid,
            "epoch": batch.epoch,
            "batch_id": batch.batch_id,
            "manifest_digest": batch.manifest_digest,
            "attempt_id": job.attempt_id,
            "outcome": "written",
            "sink_version": bench.sink_version,
            "sink_table_id": SINK_ID,
            "rows_planned": batch.num_rows,
            "rows_written": batch.num_rows,
            **changes,
        }
        report = AttemptReport(**fields)
        storage.put(f"{reports}/{report_name(batch.epoch, batch.batch_id, job.attempt_id)}", report.to_json())
        leave_commit(job, batch, report)


def clean_up(builder: Any, before: int) -> None:
    """Clean up the log as Delta does: there is a checkpoint that holds what went."""
    deltalake.DeltaTable(str(builder.root)).create_checkpoint()
    builder.clean_up_before(before)


def versions(work: Any) -> list[int]:
    return [v for batch in work.batches for v in range(batch.first_version, batch.last_version + 1)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_intervals_in_any_order_read_each_version_once(bench, six_commits, append, order):
    works = {k: load(bench, minutes(2 * k, 2 * k + 2), append, f"run-{k}")[0] for k in order}
    assert [versions(works[k]) for k in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_a_commit_exactly_on_a_boundary_belongs_to_what_begins_there(bench, six_commits, append):
    assert versions(load(bench, minutes(1, 3), append)[0]) == [1, 2]
    assert versions(load(bench, minutes(2.5, 3.000001), append)[0]) == [3]


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_an_interval_that_ended_before_a_commit_that_cannot_be_read_is_loaded(
    bench, six_commits, append, leave_unreadable
):
    first = leave_unreadable(six_commits)
    assert first == 6
    assert versions(load(bench, minutes(0, 2), append)[0]) == [0, 1]
    assert versions(load(bench, minutes(2, 5), append, "run-2")[0]) == [2, 3, 4]

    # whether version 6 belongs to it is unknown
    for _ in range(2):
        with pytest.raises((UnsupportedFeatureError, TornFileError), match=r"version [67] of"):
            load(bench, minutes(5, 6), append, "run-3")
    assert [one.version for one in session_of(bench, minutes(5, 6)).connected.load().boundaries] == [0, 2, 5]


def test_an_interval_is_not_closed_by_what_a_commit_that_cannot_be_read_says_about_times(bench, log_builder, append):
    log_builder.create(configuration={"delta.enableInCommitTimestamps": "true"})
    log_builder.write_raw(0, log_builder.path_of(0).read_text().replace('"timestamp"', '"inCommitTimestamp"'))
    for version in (1, 2, 3):
        log_builder.commit(log_builder.add(), inCommitTimestamp=log_builder.time_of(version))
    log_builder.commit({"protocol": FUTURE}, inCommitTimestamp=log_builder.time_of(99))

    assert versions(load(bench, minutes(0, 3), append)[0]) == [0, 1, 2]
    with pytest.raises(UnsupportedFeatureError):
        load(bench, minutes(3, 9), append, "run-2")


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_another_table_is_found_out_although_its_newest_commit_cannot_be_read(
    bench, six_commits, append, leave_unreadable
):
    load(bench, minutes(0, 2), append)
    six_commits.table_id, six_commits.version = "another", -1
    for path in six_commits.log.iterdir():
        path.unlink()
    six_commits.with_appends(5)
    leave_unreadable(six_commits)

    with pytest.raises(TableReplacedError):
        load(bench, minutes(2, 4), append, "run-2")


def test_the_transaction_carries_the_interval(bench, six_commits, append):
    session = session_of(bench, minutes(1, 3))
    (batch,) = job_of(bench, session, session.begin(append), append).batches
    uuid = session.connected.state.uuid
    assert batch.txn_app_id == f"fds:{uuid}:2024-01-01T00:01:00.000Z/2024-01-01T00:03:00.000Z"
    assert batch.txn_version == txn_version(1, 0)


def test_appended_rows_are_not_appended_again(bench, six_commits, append):
    _, first = load(bench, minutes(0, 6), append)
    again, second = load(bench, minutes(0, 6), append, "run-2")
    assert (again.status, second) == ("done", first)
    assert (first.rows, first.first_version, first.last_version) == (50, 0, 5)


def test_an_interval_that_overlaps_another_one_is_not_appended(bench, six_commits, append):
    load(bench, minutes(0, 2), append)
    # a run by hand, or a timetable that was changed
    for interval in (minutes(1, 3), minutes(0, 6), minutes(1, 2)):
        with pytest.raises(LedgerError, match=r"in interval 2024-01-01T00:00:00\.000Z/.* appends, .* duplicated"):
            load(bench, interval, append, run="run-2")
    assert versions(load(bench, minutes(2, 4), append, run="run-3")[0]) == [2, 3]
    # nothing but time in common
    assert load(bench, minutes(3.2, 3.4), append, run="run-4")[0].status == "up_to_date"


def test_an_interval_that_overlaps_another_one_replaces_its_rows(bench, six_commits, replacing):
    load(bench, minutes(0, 2), replacing)
    assert versions(load(bench, minutes(1, 3), replacing, run="run-2")[0]) == [1, 2]


def test_a_cleared_interval_is_replaced_under_a_higher_transaction(bench, six_commits, replacing):
    _, first = load(bench, minutes(0, 6), replacing)
    session = session_of(bench, minutes(0, 6))
    work = session.begin(replacing, retry=True)
    (batch,) = job_of(bench, session, work, replacing).batches
    leave_reports(bench, session, work, replacing)
    session.collect(work)
    assert (first.generation, session.result().generation) == (1, 2)
    assert batch.txn_version == txn_version(2, 0)
    assert (session.result().rows, first.rows) == (50, 50)


def test_a_late_run_of_an_earlier_generation_commits_nothing(bench, six_commits, replacing):
    old = session_of(bench, minutes(0, 6))
    stale = old.begin(replacing)
    leave_reports(bench, old, stale, replacing)
    load(bench, minutes(0, 6), replacing)
    with pytest.raises(LedgerError, match="generation 2"):
        old.collect(stale)


def test_all_batches_of_an_interval_are_one_transaction_of_a_sink_that_replaces(bench, six_commits, replacing):
    session = session_of(bench, minutes(0, 6), max_files_per_batch=2)
    work = session.begin(replacing, max_batches=1)
    (batch,) = job_of(bench, session, work, replacing).batches
    assert (len(work.batches), len(batch.more_manifests), batch.num_rows, work.is_more) == (3, 2, 50, False)
    leave_reports(bench, session, work, replacing)
    assert len(session.collect(work).committed) == 3
    assert session.result().batches == 3


def test_batches_of_an_interval_are_appended_in_order_over_several_applications(bench, six_commits, append):
    session = session_of(bench, minutes(0, 6), max_files_per_batch=2)
    work = session.begin(append, max_batches=2)
    assert (len(work.batches), work.is_more) == (2, True)
    first, second = job_of(bench, session, work, append).batches
    assert (first.prev_txn_version, second.prev_txn_version) == (None, first.txn_version)
    leave_reports(bench, session, work, append)
    session.collect(work)
    rest = session.begin(append, max_batches=2)
    assert (len(rest.batches), rest.is_more) == (1, False)


def test_an_interval_without_commits_is_nothing_to_append_and_runs_for_a_sink_that_replaces(
    bench, six_commits, append, tmp_path
):
    work, result = load(bench, minutes(2.1, 2.9), append)
    assert (work.status, result) == ("up_to_date", None)
    assert "Nothing in interval" in work.reason
    replacing = DeltaReplaceSink(str(tmp_path / "other"), replace_where="true")
    work, result = load(bench, minutes(2.1, 2.9), replacing, name="replaced")
    assert (work.status, result.rows, result.files) == ("work", 0, 0)


@pytest.mark.parametrize(
    "arguments", [{"provenance": True}, {"dynamic_partition_overwrite": True, "partition_by": ("p",)}]
)
def test_an_interval_without_commits_needs_no_spark_if_the_sink_can_hold_none_of_its_rows(
    bench, six_commits, tmp_path, arguments
):
    sink = DeltaReplaceSink(str(tmp_path / "other"), **arguments)
    for _ in range(2):
        work, result = load(bench, minutes(2.1, 2.9), sink)
        assert (work.status, result) == ("up_to_date", None)


def test_rows_that_an_earlier_load_of_the_versions_left_are_removed(bench, six_commits, tmp_path):
    sink = DeltaReplaceSink(str(tmp_path / "other"), provenance=True)
    load(bench, minutes(2, 3), sink)
    none = {"exclude_regex": "."}
    work, result = load(bench, minutes(2, 3), sink, **none)
    assert (work.status, result.rows, result.files) == ("work", 0, 0)
    assert load(bench, minutes(3, 4), sink, **none)[0].status == "up_to_date"


def test_an_interval_of_commits_without_data_runs_for_a_sink_that_replaces(bench, log_builder, replacing):
    log_builder.create()
    log_builder.commit(operation="OPTIMIZE")
    work, result = load(bench, minutes(0, 2), replacing)
    assert (work.status, result.rows, versions(work)) == ("work", 0, [0, 1])


def test_an_interval_before_the_table_exists_is_empty(bench, six_commits, replacing):
    work, result = load(bench, minutes(-10, 0), replacing)
    assert (work.status, result.rows, result.first_version, result.last_version) == ("work", 0, 0, -1)


def test_commits_that_come_late_belong_to_the_interval_that_is_open(bench, six_commits, append):
    load(bench, minutes(4, 60), append)  # no commit has reached minute 60, but time has passed it
    six_commits.append(1, timestamp_ms=six_commits.time_of(5))
    six_commits.append(1, timestamp_ms=six_commits.time_of(70))
    assert versions(load(bench, minutes(60, 120), append)[0]) == [6, 7]


def test_a_cleaned_log_moves_no_boundary(bench, six_commits, append):
    six_commits.append(1, timestamp_ms=six_commits.time_of(0))  # counts as a millisecond after version 5
    load(bench, minutes(4, 5.1), append)
    # without the commits before it, version 6 has its own time again
    clean_up(six_commits, 6)
    assert load(bench, minutes(5.1, 60), append)[0].status == "up_to_date"
    six_commits.append(1, timestamp_ms=six_commits.time_of(70))
    assert versions(load(bench, minutes(60, 80), append)[0]) == [7]


def test_an_interval_whose_commits_were_cleaned_up_is_refused_instead_of_being_empty(bench, six_commits, replacing):
    clean_up(six_commits, 3)
    with pytest.raises(LostPositionError, match="log begins with version 3"):
        load(bench, minutes(1, 2), replacing)
    with pytest.raises(LostPositionError):
        load(bench, minutes(2, 4), replacing)
    # on the very time of the oldest commit nothing is in doubt
    assert versions(load(bench, minutes(3, 4), replacing)[0]) == [3]


def test_an_interval_that_is_not_over_is_refused(bench, six_commits, append):
    now = datetime.now(UTC)
    with pytest.raises(ConfigurationError, match="not over"):
        load(bench, DataInterval(START, now + timedelta(days=1)), append)


def test_an_empty_interval_is_refused_with_a_timetable_that_works():
    with pytest.raises(ConfigurationError, match="CronDataIntervalTimetable"):
        DataInterval(START, START)


def test_a_version_that_may_not_be_passed_stops_its_interval_only(bench, six_commits, append):
    six_commits.commit(six_commits.remove("part-00001-00000.parquet"), operation="DELETE")
    with pytest.raises(ViolationError):
        load(bench, minutes(6, 7), append)
    assert versions(load(bench, minutes(0, 6), append, "run-2")[0]) == [0, 1, 2, 3, 4, 5]


def test_another_run_that_still_works_on_the_interval_is_left_alone_and_one_that_is_gone_is_taken_over(
    bench, six_commits, append
):
    session_of(bench, minutes(0, 6)).begin(append)
    bench.running.add("run-1")
    with pytest.raises(StreamBusyError):
        session_of(bench, minutes(0, 6), "run-2").begin(append)
    assert session_of(bench, minutes(6, 7), "run-2").begin(append).status == "up_to_date"
    bench.running.clear()
    assert load(bench, minutes(0, 6), append, "run-2")[1].rows == 50


def test_rows_that_differ_block_an_appended_interval_until_a_person_decides(bench, six_commits, append):
    mismatch = {"outcome": "mismatch", "rows_written": 49}
    with pytest.raises(VerificationError, match="fds accept days --interval"):
        load(bench, minutes(0, 6), append, report=mismatch)
    with pytest.raises(VerificationError):
        load(bench, minutes(0, 6), append)
    assert load(bench, minutes(6, 7), append)[0].status == "up_to_date"
    session = session_of(bench, minutes(0, 6))
    session.connected.load()
    session.connected.execute(Accepted(interval=session.interval.name, why="looked"))
    bench.sink_version = 0
    _, result = load(bench, minutes(0, 6), append, report=mismatch)
    assert result.rows == 49


def test_rows_that_differ_are_replaced_when_the_task_is_cleared(bench, six_commits, replacing):
    with pytest.raises(VerificationError, match="clear the task"):
        load(bench, minutes(0, 6), replacing, report={"outcome": "mismatch", "rows_written": 49})
    assert load(bench, minutes(0, 6), replacing)[1].rows == 50


def test_concurrent_intervals_get_each_version_once(bench, six_commits, append):
    works, threads = {}, []

    def work(k: int) -> None:
        works[k] = session_of(bench, minutes(k, k + 1), f"run-{k}").begin(append)

    for k in range(6):
        threads.append(threading.Thread(target=work, args=(k,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert [v for k in range(1, 6) for v in versions(works[k])] == [1, 2, 3, 4, 5]


def test_a_stream_reads_by_offset_or_by_interval_never_both(bench, six_commits, append):
    load(bench, minutes(0, 6), append, name="days")
    with pytest.raises(LedgerError, match="reads data intervals"):
        bench.session(stream=bench.stream("days")).begin(append)
    bench.session(stream=bench.stream(allow_overlap=True)).begin(append)
    with pytest.raises(LedgerError, match="reads by offset"):
        load(bench, minutes(0, 6), append, name="orders")
    with pytest.raises(ConfigurationError, match="data_interval"):
        bench.session(stream=DeltaStream("x", table=str(bench.table), read="data_interval"))


def test_a_sink_that_replaces_is_refused_for_a_stream_with_an_offset(bench, six_commits, replacing):
    with pytest.raises(ConfigurationError, match="data_interval"):
        bench.session().begin(replacing)


def test_another_sink_for_a_later_interval_is_refused(bench, six_commits, append, tmp_path):
    load(bench, minutes(0, 3), append)
    with pytest.raises(SinkError):
        load(bench, minutes(3, 6), DeltaAppendSink(str(tmp_path / "other")))


def test_another_table_at_the_uri_is_refused(bench, six_commits, append):
    load(bench, minutes(0, 3), append)
    six_commits.commit(six_commits.metadata(id="other"))
    with pytest.raises(TableReplacedError, match="other"):
        load(bench, minutes(3, 6), append)


def test_the_status_says_which_intervals_are_not_done(bench, six_commits, append):
    load(bench, minutes(0, 3), append)
    session_of(bench, minutes(3, 6)).begin(append)
    extra = bench.session(stream=bench.stream("days")).status().extra
    assert extra["intervals"] == 2
    assert extra["unfinished intervals"] == [minutes(3, 6).name]


def test_the_status_does_not_show_a_stream_of_intervals_as_waiting(bench, six_commits, append):
    load(bench, minutes(0, 3), append)
    assert bench.session(stream=bench.stream("days")).status().phase == "open"


def test_manifests_of_intervals_go_when_they_are_old(bench, six_commits, append, replacing):
    load(bench, minutes(0, 3), append)
    open_one = session_of(bench, minutes(3, 6))
    open_one.begin(append)
    manifests = bench.staging / "days" / "manifests"
    assert len(list(manifests.rglob("*.json"))) == 2
    left = [bench.staging / "days" / kind for kind in ("jobs", "attempts")]
    assert [len(list(folder.rglob("*.json"))) for folder in left] == [1, 1]
    purge_stream(open_one.connected, Retention(batches=0, age=timedelta(0)))
    assert len(list(manifests.rglob("*.json"))) == 1
    assert [len(list(folder.rglob("*.json"))) for folder in left] == [0, 0]
    assert open_one.begin(append).status == "work"


def test_the_message_about_missing_files_names_the_interval(bench, six_commits, replacing):
    session = session_of(bench, minutes(0, 6))
    work = session.begin(replacing)
    gone = {"outcome": "failed", "error_class": "FAILED_READ_FILE.FILE_NOT_EXIST", "retryable": False}
    leave_reports(bench, session, work, replacing, **gone)
    failure = session.collect(work).failure
    assert isinstance(failure, SourceFilesGoneError)
    assert minutes(0, 6).name in str(failure)
    assert "replan" not in str(failure)


def test_after_a_failed_attempt_a_replacing_sink_gets_a_new_generation_with_the_current_options(
    bench, six_commits, replacing
):
    session = session_of(bench, minutes(0, 6))
    session.collect(session.begin(replacing))
    again = session_of(bench, minutes(0, 6), max_files_per_batch=1)
    work = again.begin(replacing, retry=True)
    assert (work.epoch, len(work.batches)) == (2, 5)


def test_a_lost_ledger_of_intervals_is_not_recovered_as_an_offset(bench, log_builder, six_commits, tmp_path):
    from airflow_provider_fds.batch.checked_json import SPEC_FORMAT
    from airflow_provider_fds.stream.actions.recovery import ask_sink
    from tests.conftest import LogBuilder

    sink = LogBuilder(tmp_path / "sink")
    written = {"epoch": 1, "batch_id": 0, "start": "s", "end": "e", "after": "a", "digest": "d", "attempt": "t"}
    told = {"fds": SPEC_FORMAT, "stream": "days", "uuid": "u", "interval": "a/b", "settings": {}, **written}
    sink.create()
    sink.commit(userMetadata=json.dumps(told))
    with pytest.raises(ConfigurationError, match="reads data intervals"):
        ask_sink(open_storage(str(sink.root)), "days")
    with pytest.raises(LedgerError, match="has no ledger"):
        load(bench, minutes(0, 6), DeltaAppendSink(str(sink.root)))


def test_the_predicate_names_the_versions_of_the_interval(bench, six_commits, tmp_path):
    sink = DeltaReplaceSink(str(tmp_path / "sink"), provenance=True)
    session = session_of(bench, minutes(2, 5))
    job = job_of(bench, session, session.begin(sink), sink)
    assert job.sink["replace_where"] == "_source_version BETWEEN 2 AND 4"


@pytest.mark.parametrize("name", ["reset", "replan", "rebind"])
def test_there_is_no_position_that_a_person_could_move(bench, six_commits, append, name):
    load(bench, minutes(1, 3), append)
    ledger = Ledger(open_storage(str(bench.staging)), "days")
    ledger.find()
    asked = requested(ActionBuilder(ledger, "a test"), name)

    with pytest.raises(LedgerError, match="reads data intervals"):
        perform(ledger, asked, Actor(deployment="test", user="ann", host="desk"))


def test_a_merge_is_refused_because_intervals_run_in_any_order(bench, six_commits, tmp_path):
    with pytest.raises(ConfigurationError, match="DeltaMergeSink needs the order"):
        session_of(bench, minutes(0, 1)).begin(DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]))
    assert not bench.staging.exists()


def test_planned_rows_of_a_recreated_table_are_refused_before_spark_starts(bench, six_commits, append):
    assert session_of(bench, minutes(0, 3)).begin(append).status == "work"
    for path in six_commits.log.iterdir():
        path.unlink()
    anew = type(six_commits)(six_commits.root)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    for _ in range(5):
        anew.append(1)

    with pytest.raises(TableReplacedError, match="was planned from the table with id"):
        session_of(bench, minutes(0, 3), "run-2").begin(append)


def move(bench: Any, name: str, *, why: str = "broken", running: bool = True, **arguments: Any) -> str:
    """Do what a person's command does."""
    ledger = Ledger(open_storage(str(bench.staging)), "days")
    ledger.find()
    log = DeltaLog(open_storage(str(bench.table)))
    builder = ActionBuilder(ledger, why=why, log=log, owner_runs=lambda _owner: running)
    return perform(ledger, getattr(builder, name)(**arguments), Actor(deployment="test", user="me"))


def entries_of(bench: Any, kind: str) -> list[dict[str, Any]]:
    ledger = Ledger(open_storage(str(bench.staging)), "days")
    found = [json.loads(entry.to_json())["action"] for entry in ledger.readable()]
    return [action for action in found if action["kind"] == kind]


def test_an_interval_has_event_times_and_no_watermark(bench, log_builder, append):
    log_builder.create([log_builder.field("ts", "timestamp")])
    values = {"minValues": {"ts": "2026-01-01T00:00:00.000Z"}, "maxValues": {"ts": "2026-01-02T00:00:00.000Z"}}
    log_builder.append(2, stats=json.dumps({"numRecords": 10, **values}))
    _, result = load(bench, minutes(0, 6), append, max_files_per_batch=1, event_time_column="ts")
    found = {key: value for key, value in result.to_dict().items() if key.startswith(("event", "watermark"))}
    assert found == {
        "event_time_min": "2026-01-01T00:00:00.000000Z",
        "event_time_max": "2026-01-02T00:00:00.000999Z",
        "event_time_missing": None,
    }


def test_a_version_that_a_person_skipped_is_left_out_of_its_interval(bench, six_commits, append):
    load(bench, minutes(0, 2), append)
    assert "skips version 3 when a run plans its interval" in move(bench, "skip", version=(3, 3))
    work, result = load(bench, minutes(2, 6), append, "run-2")
    assert result.rows == 30
    (skipped,) = [one for batch in work.batches for one in batch.skipped]
    assert (skipped.version, skipped.reason.startswith("skipped by ")) == (3, True)


@pytest.mark.parametrize("read", ["offset", "data_interval"])
def test_a_version_that_is_skipped_while_batches_are_planned_is_not_in_them(
    bench, six_commits, append, monkeypatch, read
):
    from airflow_provider_fds.batch.manifest import publish

    if read == "offset":
        session = bench.session(stream=bench.stream("days"))
        session.ensure_open()
    else:
        load(bench, minutes(0, 2), append)
        session = session_of(bench, minutes(2, 6), "run-2")
    write = publish.write_manifest

    def slow(*arguments: Any) -> None:
        write(*arguments)
        move(bench, "skip", version=(3, 3))

    monkeypatch.setattr(publish, "write_manifest", slow)
    with pytest.raises(LedgerError, match="version 3 was skipped in the meantime"):
        session.begin(append)
    monkeypatch.setattr(publish, "write_manifest", write)
    work = session.begin(append)
    assert [one.version for batch in work.batches for one in batch.skipped if "by " in one.reason] == [3]


def test_a_replaced_interval_is_loaded_again_without_the_version_that_a_person_skipped(bench, six_commits, replacing):
    assert load(bench, minutes(0, 6), replacing)[1].rows == 50
    move(bench, "skip", version=(3, 3))
    assert load(bench, minutes(0, 6), replacing)[1].rows == 40


def test_a_version_of_an_interval_that_was_appended_cannot_be_skipped(bench, six_commits, append):
    load(bench, minutes(0, 4), append)
    with pytest.raises(LedgerError, match=r"version 3 is in interval .* the sink appends"):
        move(bench, "skip", version=(3, 3))
    move(bench, "skip", version=(4, 4))


@pytest.mark.parametrize("skips", [{"skip_versions": "2-3"}, {}])
def test_an_interval_of_skipped_versions_alone_leaves_a_line_for_each(bench, six_commits, append, skips):
    load(bench, minutes(0, 2), append)
    if not skips:
        move(bench, "skip", version=(2, 3))
    assert load(bench, minutes(2, 4), append, "run-2", **skips)[0].status == "up_to_date"
    assert [one["version"] for one in entries_of(bench, "planned")[-1]["skipped"]] == [2, 3]


def test_versions_skipped_after_the_last_batch_of_an_interval_leave_a_line(bench, six_commits, append):
    load(bench, minutes(0, 6), append, max_files_per_batch=1, skip_versions="5")
    (planned,) = entries_of(bench, "planned")
    found = [one["version"] for part in (*planned["batches"], planned) for one in part["skipped"]]
    assert found == [5]


def test_a_plan_of_an_interval_is_released_for_the_next_run(bench, six_commits, append):
    bench.running.add("run-1")
    session_of(bench, minutes(0, 6)).begin(append)
    with pytest.raises(StreamBusyError):
        session_of(bench, minutes(0, 6), "run-2").begin(append)
    with pytest.raises(ConfigurationError, match=r"batches of interval .*, which is running"):
        move(bench, "unlock")
    assert "take over 1 planned batch" in move(bench, "unlock", running=False)
    assert session_of(bench, minutes(0, 6), "run-2").begin(append).status == "work"
