"""The checkpoint in a real Airflow Variable: written by a task, hidden by the environment, refused outside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.source.offset import Offset

MINE = Checkpoint(
    stream="auth_tokens",
    uuid="u1",
    deployment="prod",
    n=7,
    digest="ab",
    epoch=1,
    batch_id=2,
    offset=Offset("t", 3).to_json(),
)
STORE = VariableCheckpointStore("auth_tokens")
SHADOW = "AIRFLOW_VAR_FDS.AUTH_T~OKENS"


DAG_THAT_WRITES = f"""
    from datetime import datetime
    from airflow.sdk import DAG, task
    from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.position import Checkpoint

    with DAG("writes_a_checkpoint", schedule=None, start_date=datetime(2026, 1, 1)):
        @task
        def write():
            store = VariableCheckpointStore("auth_tokens")
            try:
                before = store.read()
                store.write(Checkpoint.from_json({MINE.to_json()!r}, home="test"))
            except FdsError as error:
                return [type(error).__name__, str(error)]
            return [before and before.n, store.read().to_json()]
        write()
"""


def test_a_task_writes_the_variable_and_reads_it_back(installation):
    dag = installation.add(DAG_THAT_WRITES)
    assert installation.run(dag).xcom("write") == [None, MINE.to_json()]
    assert installation.run(dag).xcom("write") == [MINE.n, MINE.to_json()]


def test_a_variable_that_the_environment_hides_is_found_before_it_is_written(installation, monkeypatch):
    monkeypatch.setenv(SHADOW, replace(MINE, n=3).to_json())
    run = installation.run(installation.add(DAG_THAT_WRITES))
    kind, message = run.xcom("write")
    assert kind == "CheckpointError"
    assert f"hidden by the environment variable {SHADOW}" in message
    assert f"Unset {SHADOW}" in message


def test_writing_outside_a_task_is_refused_with_the_reason(airflow_database):
    assert STORE.read() is None
    with pytest.raises(ConfigurationError, match=r"'fds\.auth_t~okens' cannot be written here.*--checkpoint FILE"):
        STORE.write(MINE)


def test_airflow_does_not_hide_the_value_of_the_key():
    from airflow.sdk._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS, SecretsMasker

    masker = SecretsMasker()
    masker.sensitive_variables_fields = list(DEFAULT_SENSITIVE_FIELDS)
    assert masker.should_hide_value_for_key("fds.auth_tokens")
    for word in DEFAULT_SENSITIVE_FIELDS:
        assert not masker.should_hide_value_for_key(VariableCheckpointStore(f"x_{word}_y").key), word
