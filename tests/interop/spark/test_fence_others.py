"""What other writers did to the sink before a fence: it is named, however the stream is moved, and the advice works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from airflow_provider_fds.batch.report import fence_report_name
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import BatchRejectedError, LedgerError
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.application.job_run import run
from tests.interop.spark.test_advice_followed import follow
from tests.interop.spark.test_epochs import EACH_ONCE, Desk, clean_up_log, fence_and_die, operations, write_as_another

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.interop.spark.conftest import Prepared


@pytest.fixture
def desk(spark: SparkSession, prepared: Prepared) -> Desk:
    """Thirty rows are in the sink, loaded as its versions 0 to 2."""

    def make(folder: Path) -> Desk:
        desk = Desk(spark, folder)
        for first in (0, 10, 20):
            desk.append(first)
        desk.load()
        return desk

    return prepared.begin("thirty rows", make)


def overwrite(desk: Desk) -> None:
    """Replace all rows of the sink as another job does."""
    rows = desk.spark.sql("SELECT 100L AS id, 'x' AS name, 0L AS _source_version, now() AS _source_timestamp")
    rows.write.format("delta").mode("overwrite").save(desk.path)


def delete(desk: Desk) -> None:
    desk.spark.sql(f"DELETE FROM {desk.table} WHERE id >= 25")


def warnings(desk: Desk) -> list[str]:
    return list(desk.entries("committed")[-1].action.measures.warnings)


# -- rows that another writer took out between the stream's last commit and a fence


@pytest.mark.parametrize("harm", [overwrite, delete])
@pytest.mark.parametrize("request_of", ["replan", "rebind"])
def test_rows_that_another_job_removed_before_a_fence_are_reported(desk, harm, request_of):
    harm(desk)
    desk.move(request_of)
    desk.append(30)
    session = desk.load()

    (warning,) = warnings(desk)
    assert "version 3 of the sink" in warning
    assert session.result().warnings == [warning]
    assert session.status().last_commit["warnings"] == [warning]


def test_rows_removed_before_several_fences_are_reported_with_the_next_batch(desk, caplog, capsys):
    overwrite(desk)
    desk.move("replan")
    session = desk.load()
    assert "version 3 of the sink" in caplog.text
    (told,) = session.status().extra["warnings"]
    assert "version 3 of the sink" in told
    assert main(["history", "orders", "--staging", desk.staging]) == 0
    assert f"; {told[:60]}" in capsys.readouterr().out
    desk.move("replan")
    desk.load()
    desk.append(30)
    session = desk.load()

    assert warnings(desk) == [told]
    assert "warnings" not in session.status().extra
    desk.append(40)
    desk.load()
    assert warnings(desk) == []


def test_rows_removed_before_a_fence_that_died_are_reported(desk):
    overwrite(desk)
    desk.move("replan")
    fence_and_die(desk)
    desk.append(30)
    desk.load()

    (warning,) = warnings(desk)
    assert "version 3 of the sink" in warning


def test_a_sink_that_forbids_it_keeps_its_epoch_until_the_rows_are_loaded_again(desk):
    desk.sink = DeltaAppendSink(desk.path, provenance=True, on_sink_overwritten="fail")
    overwrite(desk)
    desk.move("replan")
    with pytest.raises(BatchRejectedError, match=r"SINK_OVERWRITTEN: version 3 .*`fds rewind orders --replace --to "):
        desk.load()
    assert operations(desk)[4:] == []

    desk.move("rewind", to=0, replaces=True)
    desk.load()
    assert desk.ids() == [*EACH_ONCE, 100]


def test_rows_that_a_restore_put_back_before_the_fence_are_not_reported(desk):
    desk.sink = DeltaAppendSink(desk.path, provenance=True, on_sink_overwritten="fail")
    overwrite(desk)
    desk.restore(2)
    desk.move("replan")
    desk.append(30)
    desk.load()

    assert (warnings(desk), desk.ids()) == ([], list(range(40)))


def test_changes_in_a_sink_that_the_stream_leaves_are_not_reported(desk):
    overwrite(desk)
    desk.move("replan", new_sink=True)
    left, desk.path = desk.path, str(desk.folder / "new sink")
    desk.sink = DeltaAppendSink(desk.path, provenance=True, on_sink_overwritten="fail")
    desk.append(30)
    desk.load()

    assert (warnings(desk), desk.ids()) == ([], list(range(30, 40)))
    assert deltalake.DeltaTable(left).to_pyarrow_table().num_rows == 1


def test_a_rewind_rereads_removed_rows_without_a_warning(desk):
    desk.sink = DeltaAppendSink(desk.path, provenance=True, on_sink_overwritten="fail")
    overwrite(desk)
    desk.move("rewind", to=0)
    desk.load()

    assert (warnings(desk), desk.ids()) == ([], [*EACH_ONCE, 100])


@pytest.mark.parametrize("request_of", [None, "replan"])
def test_a_restore_whose_commit_log_cleanup_removed_still_warns(desk, request_of):
    desk.restore(0)
    for first in (100, 200):
        write_as_another(desk, first)
    clean_up_log(desk, before=4)
    if request_of is not None:
        desk.move(request_of)
    desk.append(30)
    desk.load()

    (warning,) = warnings(desk)
    assert "begins at version 4, so it no longer shows whether version 3 removed rows" in warning
    assert "for example by a RESTORE" in warning


# -- another stream that removes rows from a sink that both write to


@pytest.fixture
def second(desk: Desk) -> Desk:
    """Another stream of the same staging folder, which has loaded ten rows of its own into the same sink."""
    folder = desk.folder / "second"
    folder.mkdir()
    second = Desk(desk.spark, folder, name="second")
    second.path, second.staging, second.sink = desk.path, desk.staging, desk.sink
    second.append(500)
    second.load()
    return second


def test_a_stream_that_empties_a_shared_sink_is_named_by_the_other_one(desk, second):
    version = len(operations(desk))
    second.move("rewind", to="start", sink_rows="empty", force_sink=True)
    second.load()
    desk.append(30)
    desk.load()

    (warning,) = warnings(desk)
    assert f"version {version} of the sink" in warning
    assert "(DELETE), by another writer, removed rows that stream 'orders'" in warning


def test_a_stream_that_removes_rows_of_its_own_from_a_shared_sink_takes_none_of_the_other_one(desk, second):
    desk.sink = DeltaAppendSink(desk.path, provenance=True, on_sink_overwritten="fail")
    for first in (510, 520, 530):
        second.append(first)
    second.load()
    # the other stream has read no version 3
    second.move("rewind", to=3, sink_rows="delete", force_sink=True)
    second.load()
    desk.append(30)
    desk.load()
    assert warnings(desk) == []

    second.move("rewind", to=2, sink_rows="delete", force_sink=True)
    second.load()
    desk.append(40)
    with pytest.raises(BatchRejectedError, match=r"SINK_OVERWRITTEN.*removed rows that stream 'orders'"):
        desk.load()


# -- a report of a fence that does not agree with the sink's log


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"landed": []}, "version 4 of the sink is batch 3 of epoch 1, but the report omits it"),
        ({"newest": None}, "the report says None"),
        (
            {"newest": 1 << 32},
            "the sink has transaction 4294967300 of the stream, but the report says 4294967296",
        ),
        ({"removed": []}, "version 3 of the sink is a removal by epoch 2, but the report omits it"),
        ({"outcome": "sink_missing"}, "its report says that there is no sink"),
    ],
)
def test_a_report_that_leaves_out_what_the_sink_has_begins_no_epoch(desk, changes, why):
    if "removed" in changes:
        desk.move("rewind", to=1, sink_rows="delete")
        fence_and_die(desk)
        desk.move("rewind", to=1, replaces=True)
    else:
        overwrite(desk)
        desk.append(30)
        run(desk.spark, desk.zombie())
        desk.move("replan")
    session = desk.session()
    work = session.begin(desk.sink)
    run(desk.spark, desk.submit(session, work))
    path = Path(desk.staging, "orders", "attempts", fence_report_name(work.epoch, work.attempt_id))
    report = json.loads(path.read_text())
    for name, value in changes.items():
        part = report if name in report else report["evidence"]
        assert part[name] != value
        part[name] = value
    path.write_text(json.dumps(report))

    failure = session.collect(work).failure
    assert why in str(failure)
    assert failure.retryable
    assert desk.ledger().state.phase == "requested"
    # a retry looks into the sink
    desk.load()
    assert desk.ledger().state.phase == "open"


# -- a statement under the transaction of a fence that no person has requested


def test_the_next_batch_names_a_statement_under_a_transaction_of_the_stream(desk):
    desk.typed("DELETE FROM {} WHERE _source_version >= 1")
    desk.append(30)
    with pytest.raises(BatchRejectedError, match=r"SINK_OUT_OF_ORDER.*version 3 is a statement of another") as refused:
        desk.load()
    follow(desk, str(refused.value), 1)
    with pytest.raises(LedgerError, match=r"another statement closed the epochs before epoch 2") as unknown:
        desk.load()
    follow(desk, str(unknown.value))
    desk.load()

    assert desk.ids() == list(range(40))
