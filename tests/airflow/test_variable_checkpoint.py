"""The checkpoint in a real Airflow Variable: written by a task, hidden by the environment, refused outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
from airflow_provider_fds.errors import CheckpointError, ConfigurationError
from airflow_provider_fds.ledger.position import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

MINE = Checkpoint(
    stream="auth_tokens", uuid="u1", deployment="prod", n=7, digest="ab", epoch=1, batch_id=2, offset='{"index":-1}'
)
STORE = VariableCheckpointStore("auth_tokens")
SHADOW = "AIRFLOW_VAR_FDS.AUTH_T~OKENS"


def run_in_a_task(dag_id, body):
    """Run ``body`` as a task; return what it returned or raised."""
    from airflow.sdk import DAG, task

    outcome = []

    @task(task_id="only")
    def only():
        try:
            outcome.append(body())
        except Exception as error:
            outcome.append(error)

    with DAG(dag_id, schedule=None) as dag:
        only()
    dag.test()
    return outcome[0]


def test_a_task_writes_the_variable_and_reads_it_back(airflow_database: Path):
    def body():
        before = STORE.read()
        STORE.write(MINE)
        STORE.write(replace(MINE, n=8))
        return before, STORE.read()

    assert run_in_a_task("writes_a_checkpoint", body) == (None, replace(MINE, n=8))


def test_a_variable_that_the_environment_hides_is_found_when_it_is_written(
    airflow_database: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(SHADOW, replace(MINE, n=3).to_json())
    error = run_in_a_task("writes_a_hidden_checkpoint", lambda: STORE.write(MINE))
    assert isinstance(error, CheckpointError)
    assert SHADOW in str(error)
    assert "fds recover auth_tokens" in str(error)


def test_outside_a_task_a_checkpoint_can_be_read_and_writing_says_why_not(
    airflow_database: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(SHADOW, MINE.to_json())
    assert STORE.read() == MINE
    with pytest.raises(ConfigurationError, match=r"'fds\.auth_t~okens' cannot be written here.*--checkpoint FILE"):
        STORE.write(MINE)


def test_airflow_does_not_hide_the_value_of_the_key():
    from airflow.sdk._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS, SecretsMasker

    masker = SecretsMasker()
    masker.sensitive_variables_fields = list(DEFAULT_SENSITIVE_FIELDS)
    assert masker.should_hide_value_for_key("fds.auth_tokens")
    for word in DEFAULT_SENSITIVE_FIELDS:
        assert not masker.should_hide_value_for_key(VariableCheckpointStore(f"x_{word}_y").key), word
