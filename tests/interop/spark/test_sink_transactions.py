"""An append looks up the stream's transaction in the sink's checksum file, and each transaction still lands once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_fds.spark.runtime.failures import is_conflict
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.sink_log.sink_transactions import give_transactions
from airflow_provider_fds.spark.writers import delta_append_writer

#: More than an Integer of Java, and small.
HUGE, SMALL = 1 << 40, 7


def append(spark, path, version, frame=None, app_id="fds"):
    writer = (spark.range(10) if frame is None else frame).write.format("delta").mode("append")
    writer.option("txnAppId", app_id).option("txnVersion", str(version)).save(str(path))


def delta_log(spark, path):
    return spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))


def is_state_reconstructed(spark, path):
    return delta_log(spark, path).unsafeVolatileSnapshot().stateReconstructionTriggered()


def num_jobs(spark):
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def forget(spark):
    """Make the session read the logs of all tables from disk again."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def num_rows(spark, path):
    return spark.read.format("delta").load(str(path)).count()


def read_log(spark, path):
    log = SinkLog(spark, f"file:{path}")
    log.history(None)
    return log


def give(spark, path, app_id, newest, read=None):
    """Give the transactions as a writer does that has just read the log, or has ``read`` it before."""
    return give_transactions(spark, str(path), read_log(spark, path) if read is None else read, app_id, newest)


@pytest.fixture
def table(spark, tmp_path):
    """Ten rows under transaction SMALL of fds and HUGE of another application, as another process left it."""
    path = tmp_path / "table é %20"
    append(spark, path, HUGE, app_id="other")
    append(spark, path, SMALL)
    forget(spark)
    return path


def checksum(path):
    return max((path / "_delta_log").glob("*.crc"))


@pytest.mark.usefixtures("adaptive")
def test_a_batch_after_the_first_reconstructs_no_state_of_the_sink(spark, stream, monkeypatch):
    first, second, third = stream.plan()
    _, (report,) = stream.work(spark, stream.job(first))
    jobs = []
    for batch, is_given in ((second, False), (third, True)):
        with monkeypatch.context() as patch:
            if not is_given:
                patch.setattr(delta_append_writer, "give_transactions", lambda *_: False)
            forget(spark)
            before = num_jobs(spark)
            code, (report,) = stream.work(spark, stream.job(batch, **stream.after(report)))
            assert (code, report.outcome) == (0, "written")
            jobs.append(num_jobs(spark) - before)
    assert jobs[0] - jobs[1] == 3
    assert num_rows(spark, stream.sink_path) == 30
    assert [commit["txn"]["version"] for commit in stream.sink_commits()] == [
        batch.txn_version for batch in (first, second, third)
    ]


def test_a_transaction_that_landed_before_is_skipped(spark, table):
    before = is_state_reconstructed(spark, table)
    assert give(spark, table, "fds", SMALL)
    append(spark, table, SMALL)
    append(spark, table, SMALL - 1)
    append(spark, table, HUGE, app_id="other")
    assert (before, is_state_reconstructed(spark, table)) == (False, False)
    assert num_rows(spark, table) == 20
    append(spark, table, SMALL + 1)
    assert give(spark, table, "fds", SMALL + 1)
    append(spark, table, HUGE + 1, app_id="other")
    assert num_rows(spark, table) == 40


def test_a_transaction_that_lands_after_the_look_up_and_before_the_write_is_skipped(spark, table):
    assert give(spark, table, "fds", SMALL)
    append(spark, table, SMALL + 1)
    append(spark, table, SMALL + 1)
    assert num_rows(spark, table) == 30


@pytest.mark.parametrize("versions", [(SMALL + 1, SMALL + 1), (SMALL + 1, HUGE)], ids=["same", "higher"])
def test_a_transaction_that_lands_during_the_write_makes_it_fail(spark, table, tmp_path, versions):
    mine, theirs = versions
    started, released = tmp_path / "started", tmp_path / "released"

    def wait(rows):
        started.touch()
        while not released.exists():
            time.sleep(0.02)
        yield from rows

    slow = spark.createDataFrame(spark.range(0, 10, 1, 1).rdd.mapPartitions(wait), "id long")
    assert give(spark, table, "fds", SMALL)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(append, spark, table, mine, slow)
        while not started.exists() and not writing.done():
            time.sleep(0.02)
        try:
            append(spark, table, theirs)
        finally:
            released.touch()
        error = writing.exception()
    assert error is not None
    assert is_conflict(error)
    assert num_rows(spark, table) == 30


def without_file(path):
    checksum(path).unlink()


def torn(path):
    checksum(path).write_text(checksum(path).read_text()[:100])


def without_list(path):
    content = json.loads(checksum(path).read_text())
    del content["setTransactions"]
    checksum(path).write_text(json.dumps(content))


def without_this_one(path):
    content = json.loads(checksum(path).read_text())
    content["setTransactions"] = [one for one in content["setTransactions"] if one["appId"] != "fds"]
    checksum(path).write_text(json.dumps(content))


@pytest.mark.parametrize("harm", [without_file, torn, without_list, without_this_one])
def test_delta_looks_up_what_the_checksum_file_does_not_say(spark, table, harm):
    # Hadoop's own checksum of the file
    checksum(table).with_name(f".{checksum(table).name}.crc").unlink(missing_ok=True)
    harm(table)
    forget(spark)
    assert not give(spark, table, "fds", SMALL)
    append(spark, table, SMALL)
    assert num_rows(spark, table) == 20
    append(spark, table, SMALL + 1)
    assert num_rows(spark, table) == 30


def replace_checksum(path, content):
    """Put a person's edit in the place of the newest checksum file, without Hadoop's own checksum of it."""
    checksum(path).with_name(f".{checksum(path).name}.crc").unlink(missing_ok=True)
    checksum(path).write_text(content)


def test_a_late_writer_and_an_edited_checksum_that_hides_it_do_not_land_a_batch_twice(spark, table):
    read = read_log(spark, table)
    before = json.loads(checksum(table).read_text())
    # the late writer lands what this attempt is about to write
    append(spark, table, SMALL + 1)
    now = json.loads(checksum(table).read_text())
    replace_checksum(table, json.dumps({**now, "setTransactions": before["setTransactions"]}))
    forget(spark)

    assert not give(spark, table, "fds", SMALL, read)
    append(spark, table, SMALL + 1)
    assert num_rows(spark, table) == 30


def test_a_copy_of_an_older_checksum_is_not_trusted_whatever_it_says_of_this_stream(spark, table):
    stale = checksum(table).read_text()
    append(spark, table, HUGE + 1, app_id="other")
    replace_checksum(table, stale)
    forget(spark)

    assert not give(spark, table, "fds", SMALL)
    append(spark, table, HUGE + 1, app_id="other")
    assert num_rows(spark, table) == 30


def test_delta_looks_up_a_transaction_that_the_log_has_and_the_caller_has_not_seen(spark, table):
    assert not give(spark, table, "fds", SMALL - 1)
    assert not give(spark, table, "fds", None)
    assert give(spark, table, "new", None)


def test_a_doubt_of_one_stream_takes_back_what_another_one_has_given(spark, table):
    assert give(spark, table, "other", HUGE)
    assert not give(spark, table, "fds", SMALL - 1)
    append(spark, table, SMALL)
    assert is_state_reconstructed(spark, table)
    assert num_rows(spark, table) == 20


def test_what_is_not_a_table_is_left_to_delta(spark, tmp_path):
    assert not give(spark, tmp_path / "missing", "fds", None)
