"""A task that Airflow ends still reports."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager

import pytest

from airflow_provider_fds.hooks import interruption
from airflow_provider_fds.hooks.interruption import reporting_interruption


class TaskTimeoutError(BaseException):
    """As Airflow's, which is no Exception."""


@contextmanager
def handler(handle):
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_sigterm_is_reported_once_then_the_handler_of_airflow_goes_on():
    seen = []
    report = threading.Event()

    def killed(number, _frame):
        seen.append(number)
        assert report.wait(10)

    def body():
        with reporting_interruption(lambda error: (seen.append(error), report.set())):
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("Spark was stopped")

    with handler(killed):
        with pytest.raises(ValueError, match="Spark was stopped"):
            body()
        assert signal.getsignal(signal.SIGTERM) is killed
    (error,) = (one for one in seen if one != signal.SIGTERM)
    assert len(seen) == 2
    assert error.reason_code == "TASK_KILLED"
    assert str(error).startswith("Airflow killed the task")


def test_a_timeout_is_reported_before_it_leaves_the_body():
    seen = []
    with pytest.raises(TaskTimeoutError), reporting_interruption(seen.append):
        raise TaskTimeoutError("60 s are over")
    assert [str(error) for error in seen] == ["The task was ended by TaskTimeoutError: 60 s are over"]


def test_a_report_that_hangs_does_not_hold_the_task(monkeypatch):
    monkeypatch.setattr(interruption, "BOUND_SECONDS", 0.05)
    over = threading.Event()
    began = time.monotonic()
    with pytest.raises(TaskTimeoutError), reporting_interruption(lambda _error: over.wait(60)):
        raise TaskTimeoutError
    assert time.monotonic() - began < 30
    over.set()


def test_what_the_body_does_by_itself_is_not_an_interruption():
    seen = []
    with reporting_interruption(seen.append):
        pass
    with pytest.raises(ValueError, match="mine"), reporting_interruption(seen.append):
        raise ValueError("mine")
    assert seen == []


def test_outside_airflow_and_in_other_threads_no_handler_is_installed():
    found = []

    def body():
        with reporting_interruption(found.append):
            found.append(signal.getsignal(signal.SIGTERM))

    with handler(signal.SIG_DFL):
        body()
    assert found.pop() is signal.SIG_DFL
    with handler(handler):
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    assert found == [handler]
