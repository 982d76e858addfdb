"""Whatever Spark or Delta there is, an append goes on; ``tests/interop/spark`` has the look-up itself."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.sink_log.sink_transactions import give_transactions


class ConnectSession:
    """A session that has no JVM on this side."""

    __module__ = "pyspark.sql.connect.session"

    @property
    def _jvm(self) -> object:
        pytest.fail("a session on Spark Connect was asked for its JVM")


class Session:
    """A classic session."""

    def __init__(self, jvm: object) -> None:
        self._jvm = jvm


def test_a_session_without_a_jvm_is_not_asked_for_one():
    assert not give_transactions(ConnectSession(), "/sink", SinkLog(None, "/sink"), "fds:1", None)


@pytest.mark.parametrize("jvm", [None, object()])
def test_a_delta_without_the_known_classes_looks_up_transactions_itself(jvm):
    assert not give_transactions(Session(jvm), "/sink", SinkLog(None, "/sink"), "fds:1", 4)
