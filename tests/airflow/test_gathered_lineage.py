"""What a task gathers for OpenLineage fails no task, and does not keep it waiting."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaStream
from airflow_provider_fds.hooks import lineage as installed
from airflow_provider_fds.operators.lineage import gathered_lineage as lineage
from airflow_provider_fds.operators.lineage.gathered_lineage import gathering

SINK = DeltaAppendSink("s3://lake/bronze")


class Log:
    def __init__(self, read):
        self._read = read

    def state_at(self, version):
        return self._read(version)


@pytest.fixture
def gathered(monkeypatch):
    """Gathers the lineage of a run whose logs are read by a function."""
    monkeypatch.setattr(installed, "is_on", lambda: True)

    def gather(read, result=None):
        monkeypatch.setattr(lineage, "DeltaLog", lambda _: Log(read))
        done = SimpleNamespace(last_version=4, sink_version=7, to_dict=lambda: {"rows": 3})
        session = SimpleNamespace(
            stream=DeltaStream("orders", table="s3://lake/orders"),
            connected=SimpleNamespace(
                log=Log(read),
                table=SimpleNamespace(uri="s3://lake/orders"),
                staging=SimpleNamespace(uri="s3://lake/staging"),
                state=SimpleNamespace(uuid="u", tables={}),
                open_sink=lambda uri: uri,
                sink_target=lambda uri: uri,
            ),
            result=result or (lambda: done),
        )
        operator = SimpleNamespace()
        with gathering(operator, session, SINK):
            pass
        return operator._lineage

    return gather


def test_schemas_are_those_of_the_versions(gathered):
    found = gathered(lambda version: SimpleNamespace(metadata=f"of {version}"))
    assert (found.source.metadata, found.sinks[0].metadata) == ("of 4", "of 7")


def test_a_store_that_does_not_answer_delays_the_task_for_a_moment_only(gathered, monkeypatch):
    monkeypatch.setattr(lineage, "_SCHEMA_SECONDS", 0.1)
    released = threading.Event()

    def read(version):
        if version == 7:
            released.wait(20)
        return SimpleNamespace(metadata=f"of {version}")

    began = time.monotonic()
    found = gathered(read)
    took = time.monotonic() - began
    released.set()
    assert took < 5
    assert (found.source.metadata, found.sinks[0].metadata) == ("of 4", None)
    assert found.result == {"rows": 3}


class PanicError(BaseException):
    """What the client of the object stores raises on input that it cannot send."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [OSError, PanicError, MemoryError])
def test_a_log_that_cannot_be_read_fails_nothing(gathered, kind):
    def read(_version):
        raise kind("no")

    found = gathered(read)
    assert (found.source.metadata, found.sinks[0].metadata) == (None, None)
    assert found.sinks[0].version == 7


def test_a_ledger_that_cannot_be_read_fails_nothing(gathered):
    def result():
        raise OSError("no answer")

    assert gathered(None, result) is None
