"""The steps of a job, and giving one up, without a session."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest

from airflow_provider_fds.batch.report import AttemptReport, FenceReport, decode, fence_report_name, report_name
from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
from airflow_provider_fds.spark.application import batch_attempt, job_run
from airflow_provider_fds.spark.application.job_run import EXIT_DONE, EXIT_FAILED_RETRYABLE, JobRun
from airflow_provider_fds.spark.runtime import staged_report
from tests.unit.spark.batches import batch


@pytest.fixture
def job(tmp_path):
    """A job of two batches with reports on the local disk."""
    return JobSpec(
        batches=(batch(), replace(batch(), batch_id=batch().batch_id + 1)),
        sink={"kind": "delta_append", "uri": "/lake/bronze"},
        sink_table_id=None,
        sink_version=None,
        reports=tmp_path.as_uri(),
        attempt_id="t1",
    )


def report_of(folder, one):
    path = folder / report_name(one.epoch, one.batch_id, "t1")
    return decode(AttemptReport, path.read_bytes()) if path.exists() else None


class NoWriter:
    """Instead of a writer."""

    table_id = None


@pytest.fixture
def writing(monkeypatch):
    """Let each step write its batch by a function, without Spark."""

    def use(write):
        monkeypatch.setattr(batch_attempt, "identity", lambda _: {})
        monkeypatch.setattr(job_run, "_writer", lambda *_: NoWriter())
        monkeypatch.setattr(batch_attempt.BatchAttempt, "write", lambda attempt, _: write(attempt))

    return use


def done(attempt):
    return replace(attempt.failed(OSError()), outcome="written", error_class=None, error_message=None)


def test_each_step_loads_one_batch_and_reports_it(job, tmp_path, writing):
    writing(done)
    run = JobRun(None, job, prepare=dict, progress_seconds=None, stream="orders")
    first, second = job.batches
    assert run.next_batch is first
    run.step()
    assert (run.code, run.next_batch) == (None, second)
    assert report_of(tmp_path, second) is None
    run.step()
    assert (run.code, run.next_batch, run.has_rest) == (EXIT_DONE, None, False)
    assert [report_of(tmp_path, one).outcome for one in job.batches] == ["written", "written"]


def test_a_step_that_is_given_up_makes_no_second_report(job, tmp_path, writing):
    begun, go_on = threading.Event(), threading.Event()

    def hangs(attempt):
        begun.set()
        assert go_on.wait(30)
        return done(attempt)

    writing(hangs)
    run = JobRun(None, job, prepare=dict, progress_seconds=None)
    thread = threading.Thread(target=run.step)
    thread.start()
    assert begun.wait(30)
    assert run.give_up(OSError("too long")) is True
    go_on.set()
    thread.join(30)
    assert report_of(tmp_path, job.batches[0]).outcome == "failed"
    assert run.code == EXIT_FAILED_RETRYABLE
    assert run.next_batch is None


def test_giving_up_after_the_report_of_a_batch_is_about_the_next_one(job, tmp_path, writing):
    writing(done)
    run = JobRun(None, job, prepare=dict, progress_seconds=None)
    run.step()
    assert run.give_up(OSError("the session is gone")) is True
    assert [report_of(tmp_path, one).outcome for one in job.batches] == ["written", "failed"]
    assert run.give_up(OSError("again")) is False


def test_giving_up_after_the_last_batch_changes_no_report(job, tmp_path, writing):
    writing(done)
    run = JobRun(None, job, prepare=dict, progress_seconds=None)
    run.step()
    run.step()
    assert run.give_up(OSError("too late")) is False
    assert [report_of(tmp_path, one).outcome for one in job.batches] == ["written", "written"]


def test_a_fence_that_is_given_up_is_reported(job, tmp_path):
    spec = replace(job, batches=(), fence=FenceSpec("orders", batch().uuid, 2))
    assert JobRun(None, spec, progress_seconds=None).give_up(OSError("too long")) is True
    report = decode(FenceReport, (tmp_path / fence_report_name(2, "t1")).read_bytes())
    assert (report.outcome, report.retryable) == ("failed", True)


def test_a_job_whose_time_is_up_stops_after_a_batch_and_has_a_rest(job, writing):
    writing(done)
    run = JobRun(None, replace(job, stop_after_ms=1), prepare=dict, progress_seconds=None)
    run.step()
    assert run.code is None
    run.step()
    assert (run.code, run.has_rest) == (EXIT_DONE, True)


def test_a_report_is_written_once_staging_is_mounted_again_and_never_into_what_is_in_its_place(
    job, tmp_path, writing, monkeypatch, capsys
):
    staging, away = tmp_path / "staging", tmp_path / "away"
    (staging / "reports").mkdir(parents=True)
    pauses, below = [], []

    def unmount(attempt):
        staging.rename(away)
        staging.mkdir()
        return done(attempt)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            below.extend(staging.iterdir())
            staging.rmdir()
            away.rename(staging)

    writing(unmount)
    monkeypatch.setattr(staged_report.time, "sleep", pause)
    job = replace(job, reports=(staging / "reports").as_uri(), batches=job.batches[:1])
    run = JobRun(None, job, prepare=dict, progress_seconds=None)
    run.step()
    assert run.code == EXIT_DONE
    assert (pauses, below) == ([0.5, 1.0, 2.0], [])
    assert report_of(staging / "reports", job.batches[0]).outcome == "written"
    assert "FDS cannot write to staging, and tries again in 2.0 s: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.ENOSPC, "Full"), OSError(errno.ESTALE, "Stale")],
)
def test_a_report_that_cannot_be_written_fails_the_driver_at_once_or_after_a_minute(error, job, writing, monkeypatch):
    pauses = []
    monkeypatch.setattr(staged_report, "write_bytes", Mock(side_effect=error))
    monkeypatch.setattr(staged_report.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(staged_report.time, "sleep", pauses.append)
    writing(done)
    run = JobRun(None, job, prepare=dict, progress_seconds=None)
    with pytest.raises(OSError, match=error.strerror):
        run.step()
    # first what it begins with, then why it could not begin
    assert pauses == ([0.5, 1.0, 2.0, 4.0, *[8.0] * 6] * 2 if error.errno == errno.ESTALE else [])
