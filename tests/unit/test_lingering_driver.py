"""A spark-submit that stays between jobs: it gets each job that it can work on, and ends before one that it cannot."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.backends import lingering_driver
from airflow_provider_fds.backends.base import Outcome
from airflow_provider_fds.backends.lingering_driver import LingeringDriver
from airflow_provider_fds.batch.next_job import KEY_SETTING, next_job_name, read_next_job
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.places import Place
from airflow_provider_fds.spark.submission.object_store import JobStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.storage.storage import Storage

KEYS = {"access_key_id": "key", "secret_access_key": "word"}
LAKE, SAME = Place("s3://lake/orders", KEYS), Place("s3://lake/returns", {**KEYS})
OTHER = Place("s3://lake/orders", {**KEYS, "secret_access_key": "of the next connection"})


@dataclass(frozen=True)
class Job:
    """What the driver asks of an application."""

    staging: Storage
    attempt_id: str
    place: Place
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec_uri(self) -> str:
        return self.attempt_id

    @property
    def next_job_key(self) -> str:
        return next_job_name(self.attempt_id)

    @property
    def begun_key(self) -> str:
        return f"{self.attempt_id}.done"

    def storage(self) -> JobStorage:
        return JobStorage((self.place,))

    def commit(self) -> bool:
        return self.staging.head(self.begun_key) is not None


class Submit:
    """Works on jobs as the driver does: on the first one, then on those that it finds in staging."""

    def __init__(self, staging: Storage) -> None:
        self.staging = staging
        self.worked: list[list[str]] = []
        self.is_cancelled = threading.Event()

    def __call__(self, job: Job) -> Outcome:
        attempt, jobs = job.attempt_id, []
        self.worked.append(jobs)
        while not self.is_cancelled.is_set():
            jobs.append(attempt)
            self.staging.put(f"{attempt}.done", b"")
            while self.staging.head(next_job_name(attempt)) is None and not self.is_cancelled.wait(0.005):
                pass
            data, _ = self.staging.get(next_job_name(attempt))
            found = read_next_job(data, attempt, job.conf[KEY_SETTING])
            if found is None:
                break
            attempt = found
        return Outcome()


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((LAKE, SAME, LAKE), [["0", "1", "2"]]),
        ((LAKE, OTHER, OTHER), [["0"], ["1", "2"]]),
        ((LAKE, Place("s3://gold/orders", KEYS)), [["0"], ["1"]]),
    ],
)
def test_spark_starts_again_for_a_job_with_other_credentials(tmp_path, places, expected):
    staging = open_storage(str(tmp_path))
    submit = Submit(staging)
    driver = LingeringDriver(submit, submit.is_cancelled.set)
    with driver:
        for number, place in enumerate(places):
            assert driver.run(Job(staging, str(number), place)) == Outcome()
    assert submit.worked == expected
    # each was told that there is no other job
    assert not submit.is_cancelled.is_set()


@pytest.mark.parametrize("pause", [0.02, 0.2])
def test_a_signal_that_ends_the_wait_for_a_report_ends_spark(tmp_path, monkeypatch, pause):
    """As SIGTERM does for ``fds run``."""
    monkeypatch.setattr(lingering_driver, "_LOCAL_SECONDS", pause)
    submit = Submit(open_storage(str(tmp_path)))
    monkeypatch.setattr(Job, "commit", lambda job: False)
    driver = LingeringDriver(submit, submit.is_cancelled.set)

    def leave(_number, _frame):
        raise SystemExit(143)

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(SystemExit), driver:
            driver.run(Job(submit.staging, "0", LAKE))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert submit.is_cancelled.is_set()
