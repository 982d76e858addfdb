"""The same job on a standalone cluster: a master, two workers, executors that get JARs from the driver."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.application.job_run import EXIT_FAILED
from airflow_provider_fds.spark.submission.launch import run_locally
from tests.standalone_cluster import SMALL, running

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def master(tmp_path):
    """URL of a master that has two workers of one core each."""
    with running(tmp_path, workers=2) as cluster:
        yield cluster.master


def test_a_standalone_cluster_loads_the_same_batches_and_its_driver_says_how_it_ended(
    stream_of_a_copy, master, tmp_path
):
    stream = stream_of_a_copy
    batches = stream.plan()
    max(stream.source.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns).unlink()
    spec = stream.job(*batches)
    lines = []
    conf = {"spark.driver.host": "127.0.0.1", **SMALL}
    code = run_locally(stream.save(spec), master=master, conf=conf, on_line=lines.append)
    # the files of the last batch are gone: a retry does not help
    assert code == EXIT_FAILED, lines
    *done, failed = stream.read_reports(spec)
    assert [(report.outcome, report.rows_written) for report in done] == [("written", 10)] * 2
    assert failed.error_class == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert len(stream.sink_commits()) == 2
    # both workers had an executor of the application
    assert len(list(tmp_path.glob("work/app-*/*"))) == 2
