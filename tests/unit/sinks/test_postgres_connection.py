"""Airflow's connection of a database as parameters of libpq, handed to drivers by the environment."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import UnknownConnectionError, grant, parameters_of
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.databases import parameters


def connection(**extra: object) -> SimpleNamespace:
    return SimpleNamespace(
        conn_id="pg", host="db", port=5433, schema="shop", login="loader", password="p", extra_dejson=extra
    )


def test_fields_and_tls_options_keep_their_meaning():
    found = parameters(connection(sslmode="verify-full", sslrootcert="/ca.pem", cursor="dictcursor"))  # type: ignore[arg-type]
    assert found == {
        "host": "db", "port": 5433, "dbname": "shop", "user": "loader", "password": "p",
        "sslmode": "verify-full", "sslrootcert": "/ca.pem",
    }  # fmt: skip


def test_what_a_driver_cannot_use_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="has aws_conn_id, iam in its extra"):
        parameters(connection(iam=True, aws_conn_id="aws"))  # type: ignore[arg-type]


def test_a_process_knows_the_connections_that_it_was_given(monkeypatch):
    monkeypatch.setenv("FDS_POSTGRES", "")
    grant("pg", {"host": "db"})
    grant("other", {"host": "elsewhere", "connect_timeout": 3})
    assert parameters_of("pg")["host"] == "db"
    assert parameters_of("other")["connect_timeout"] == 3
    assert "host" not in parameters_of(None)
    with pytest.raises(UnknownConnectionError, match="'unknown' is unknown in this process"):
        parameters_of("unknown")
