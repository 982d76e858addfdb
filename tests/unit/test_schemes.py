"""One table names the schemes: what each part of FDS does with a scheme follows from its line."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from airflow_provider_fds.batch.location import spark_uri
from airflow_provider_fds.delta.storage import open as opening
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.storage import CONNECTIONS, connection_options
from airflow_provider_fds.schemes import SCHEMES, Scheme, comparable, with_plain_scheme
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path

PLANNED_FROM = {scheme.kind for scheme in SCHEMES.values() if scheme.is_planned_from}


@pytest.fixture
def add(monkeypatch):
    def add_scheme(name, scheme):
        monkeypatch.setitem(SCHEMES, name, scheme)
        monkeypatch.setattr(opening, "_SCHEMES", (*opening._SCHEMES, name))

    return add_scheme


def test_another_scheme_of_a_known_kind_is_one_line(add):
    add("oss", Scheme("s3", "oss"))
    assert opening.open_storage("oss://lake/orders", {"region": "x"}).uri == "oss://lake/orders"
    key = SimpleNamespace(
        conn_id="lake", conn_type="aws", host=None, login="key", password="word", extra_dejson={"region": "x"}
    )
    assert connection_options(key, "oss://lake/orders") == {
        "access_key_id": "key",
        "secret_access_key": "word",
        "region": "x",
    }
    assert (spark_uri("oss://lake/a"), hadoop_path("oss://lake/a")) == ("oss://lake/a", "oss://lake/a")


def test_a_store_that_nothing_opens_is_refused_by_name(add):
    add("cos", Scheme("tencent", "cosn"))
    with pytest.raises(ConfigurationError, match="cos://lake is in a store of kind 'tencent', which FDS cannot open"):
        opening.open_storage("cos://lake/orders")


def test_a_connection_of_an_unknown_kind_of_store_is_refused_by_name(add):
    add("cos", Scheme("tencent", "cosn"))
    with pytest.raises(ConfigurationError, match="'cos://lake/orders' is in a store of kind 'tencent', for which FDS"):
        connection_options(SimpleNamespace(conn_id="lake", conn_type="aws", extra_dejson={}), "cos://lake/orders")


def test_every_store_that_is_planned_from_can_be_opened_and_has_connections():
    assert PLANNED_FROM == {"local", "hdfs", *opening._STORES} == {"local", *CONNECTIONS}


def test_a_connection_of_hdfs_has_hadoop_settings_and_a_kerberos_principal():
    extra = {"principal": "fds@LAKE", "keytab": "/etc/fds.keytab", "config": {"dfs.nameservices": "lake"}}
    connection = SimpleNamespace(
        conn_id="lake", conn_type="hdfs", host="nn", login="x", password="", extra_dejson=extra
    )
    assert connection_options(connection, "hdfs://lake/orders") == {
        "config": {"dfs.nameservices": "lake"},
        "kerberos_principal": "fds@LAKE",
        "kerberos_keytab": "/etc/fds.keytab",
    }


@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if scheme.kind == "s3"])
def test_all_schemes_of_s3_are_one_place(name):
    uri = f"{name.upper()}://lake/a"
    assert with_plain_scheme(uri) == comparable(f"{uri}/") == "s3://lake/a"
    assert hadoop_path(uri) == "s3a://lake/a"
    assert DeltaAppendSink(uri).is_on_s3


def test_every_scheme_that_spark_cannot_reach_says_what_to_write_instead():
    for name, scheme in SCHEMES.items():
        assert (scheme.hadoop is None) is (scheme.instead is not None), name
        assert hadoop_path(f"{name}://lake/a").startswith(re.sub("^file$", "file:/", scheme.hadoop or name)), name
