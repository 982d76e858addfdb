"""What is said about a batch that takes long, and when nothing is."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.application.progress import (
    ConnectStages,
    JobProgress,
    Stage,
    describe_stages,
    share_of,
    tell_ui_address,
)
from tests.unit.spark.batches import batch


def job(*batches: Any) -> JobSpec:
    return JobSpec(
        batches=batches,
        sink=DeltaAppendSink("s3://lake/b").to_dict(),
        sink_table_id=None,
        sink_version=None,
        reports="r",
        attempt_id="a",
    )


def test_stages_are_described_with_tasks_rows_bytes_and_rate() -> None:
    stages = [Stage(3, 8, 8, 1000, 1 << 20, is_active=False), Stage(4, 40, 10, 500, 1 << 20)]
    assert describe_stages(stages, 10.0) == ["stage 4: 10 of 40 tasks done", "1,500 rows and 2 MiB read", "150 rows/s"]
    assert describe_stages([], 10.0) == ["no stage is running"]
    # Spark Connect knows no rows
    assert describe_stages([Stage(4, 1, 0, None, 10 << 20)], 10.0)[1:] == ["10 MiB read", "1 MiB/s"]


@pytest.mark.parametrize(
    ("stages", "num_rows", "share"),
    [
        ([Stage(1, 10, 1, 250)], 1000, 0.25),
        # more than the batch has: Spark reads other rows too
        ([Stage(1, 10, 1, 2500)], 1000, 0.1),
        ([Stage(1, 10, 5, None), Stage(2, 2, 2, None)], None, 0.5),
        # too early, or nothing runs
        ([Stage(1, 1000, 1, None)], None, None),
        ([], 1000, None),
    ],
)
def test_the_share_that_is_done(stages: list[Stage], num_rows: int | None, share: float | None) -> None:
    assert share_of(stages, num_rows) == share


class Session:
    """A session that must not be asked."""

    def __init__(self, asked: threading.Event | None = None) -> None:
        self._asked = asked

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        if self._asked is None:
            raise AssertionError("asked")
        self._asked.set()
        raise RuntimeError("gone")


def test_spark_is_not_asked_about_a_short_batch(capsys: Any) -> None:
    with JobProgress(Session(), job(batch())).batch(0):
        pass
    assert capsys.readouterr().out == ""
    assert "fds-progress" not in {thread.name for thread in threading.enumerate()}


def test_a_spark_that_does_not_answer_leaves_the_plan_and_the_time(capsys: Any) -> None:
    asked = threading.Event()
    first = replace(batch(), num_rows=None)
    with JobProgress(Session(asked), job(first, batch(number=1)), 0.01).batch(1):
        assert asked.wait(5)
        asked.clear()
        assert asked.wait(5)
    assert (
        capsys.readouterr()
        .out.splitlines()[0]
        .startswith("FDS batch 1 (2 of 2, version 0, 1 row in 1 file of 1 bytes): 0")
    )


def test_a_server_reports_its_stages_to_the_client() -> None:
    class Client:
        def registerProgressHandler(self, handler: Any) -> None:  # noqa: N802
            self.handler = handler

        def removeProgressHandler(self, handler: Any) -> None:  # noqa: N802
            assert handler == self.handler

    class Info:
        stage_id, num_tasks, num_completed_tasks, num_bytes_read, done = 7, 4, 1, 2048, False

    client = Client()
    stages = ConnectStages(client)
    stages.start()
    client.handler(stages=[Info()], inflight_tasks=2, operation_id="o", done=False)
    assert stages.all() == [Stage(7, 4, 1, None, 2048)]
    client.handler(stages=[Info()], inflight_tasks=0, operation_id="o", done=True)
    assert [stage.is_active for stage in stages.all()] == [False]
    stages.stop()
    # a client before Spark 4
    ConnectStages(object()).start()
    ConnectStages(object()).stop()


class ConnectSession:
    """A session of Spark Connect whose progress handlers are broken, or were cleared by the user's function."""

    def __init__(self, at_start: Any = None, at_stop: Any = None) -> None:
        self.at_start, self.at_stop, self.handlers = at_start, at_stop, []

    def registerProgressHandler(self, handler: Any) -> None:  # noqa: N802 - Spark's name
        if self.at_start is not None:
            raise self.at_start
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:  # noqa: N802 - Spark's name
        if self.at_stop is not None:
            raise self.at_stop
        self.handlers.remove(handler)


@pytest.mark.parametrize(
    "session", [ConnectSession(RuntimeError("no")), ConnectSession(None, ValueError("not in list"))]
)
def test_a_batch_does_not_fail_because_its_progress_cannot_be_told(session: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("airflow_provider_fds.spark.application.progress.is_connect", lambda _: True)
    with JobProgress(session, job(batch())).batch(0):
        pass


def test_a_batch_does_not_fail_because_no_thread_can_be_started(monkeypatch: Any) -> None:
    def start(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with JobProgress(Session(), job(batch())).batch(0):
        pass


def test_a_report_of_the_server_that_cannot_be_read_does_not_reach_the_query() -> None:
    session = ConnectSession()
    stages = ConnectStages(session)
    stages.start()
    # Spark calls it with names; a later Spark may have more of them
    session.handlers[0](stages=[object()], inflight_tasks=1, operation_id="o", done=False, more=1)
    session.handlers[0](stages=None, inflight_tasks=0, operation_id=None, done=True)
    assert stages.all() == []


def test_the_thread_ends_silently_if_nothing_can_be_printed(monkeypatch: Any, capsys: Any) -> None:
    raised = threading.Event()

    def broken(*_: Any, **__: Any) -> None:
        raised.set()
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr("builtins.print", broken)
    monkeypatch.setattr(threading, "excepthook", lambda args: pytest.fail(f"{args}"))
    with JobProgress(Session(threading.Event()), job(batch()), 0.01).batch(0):
        assert raised.wait(5)


def test_the_address_of_the_ui_is_not_a_reason_to_fail(capsys: Any) -> None:
    tell_ui_address(Session(threading.Event()))
    assert capsys.readouterr().out == ""


def test_the_address_of_the_ui_is_told_where_it_is_on(capsys: Any) -> None:
    class WithUi:
        class sparkContext:  # noqa: N801 - Spark's name
            uiWebUrl = "http://10.0.0.7:4040"  # noqa: N815 - Spark's name

    tell_ui_address(WithUi)
    assert capsys.readouterr().out == "FDS Spark UI: http://10.0.0.7:4040\n"


@pytest.mark.parametrize(("logs", "said"), [("true", "FDS Spark application: app-1\n"), ("false", "")])
def test_an_application_is_named_if_it_will_be_in_sparks_history(capsys: Any, logs: str, said: str) -> None:
    class WithHistory:
        class sparkContext:  # noqa: N801 - Spark's name
            uiWebUrl = None  # noqa: N815 - Spark's name
            applicationId = "app-1"  # noqa: N815 - Spark's name

        conf: ClassVar = {"spark.eventLog.enabled": logs}

    tell_ui_address(WithHistory)
    assert capsys.readouterr().out == said
