"""The checkpoint in the state store of an asset; tests/airflow has the same with Airflow's own store."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_fds import airflow_version
from airflow_provider_fds.checkpoint.asset import AssetCheckpointStore, check_asset_state_store, table_asset_uri
from airflow_provider_fds.errors import ConfigurationError, StorageError
from tests.checkpoint_contract import MINE, check_home


class State(dict):
    """The state of one asset, as Airflow's accessor shows it."""

    def set(self, key, value):
        self[key] = value


class RefusedError(Exception):
    """A refusal, as a task gets it from its supervisor, or without one."""

    def __init__(self, status, *, is_supervised=True):
        super().__init__(f"status {status}")
        if is_supervised:
            self.error = SimpleNamespace(detail={"status_code": status})
        else:
            self.response = SimpleNamespace(status_code=status)


@pytest.fixture
def state(monkeypatch):
    state = State()
    monkeypatch.setattr(AssetCheckpointStore, "_state", lambda _store: state)
    return state


def test_it_satisfies_the_checkpoint_contract(state):
    store = AssetCheckpointStore("orders", "s3://lake/orders")
    check_home(store, lambda text: state.set(store.key, text))
    # an object, which the page of the asset shows field by field
    assert list(state["fds.orders"])[:2] == ["position", "format"]


@pytest.mark.parametrize("is_supervised", [True, False])
def test_an_asset_that_no_dag_refers_to_is_a_warning(state, monkeypatch, caplog, is_supervised):
    def refuse(*_args):
        raise RefusedError(404, is_supervised=is_supervised)

    monkeypatch.setattr(state, "set", refuse, raising=False)
    AssetCheckpointStore("orders", "s3://lake/orders").write(MINE)
    assert "could not be read back" in caplog.text


def test_an_airflow_that_does_not_answer_is_an_error_that_a_retry_helps(state, monkeypatch):
    def refuse(*_args):
        raise RefusedError(500)

    monkeypatch.setattr(state, "set", refuse, raising=False)
    with pytest.raises(StorageError, match="could not be written") as caught:
        AssetCheckpointStore("orders", "s3://lake/orders").write(MINE)
    assert caught.value.retryable


def test_one_table_is_one_asset_however_it_is_written(tmp_path):
    assert table_asset_uri("s3a://lake/orders") == table_asset_uri("s3://lake/orders/") == "s3://lake/orders"
    assert table_asset_uri(str(tmp_path)) == tmp_path.as_uri()


@pytest.mark.parametrize("version", ["3.1.0", "3.2.9"])
def test_an_older_airflow_is_refused_with_what_to_use_instead(version, monkeypatch):
    monkeypatch.setattr(airflow_version, "_airflow_version", lambda: version)
    with pytest.raises(ConfigurationError, match=r"Airflow 3\.3 or newer\. Use checkpoint='variable'"):
        check_asset_state_store()
