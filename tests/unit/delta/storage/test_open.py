from __future__ import annotations

import os
import sys

import pytest

from airflow_provider_fds.delta.storage.client_limits import CLIENT, RETRY
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
from airflow_provider_fds.errors import ConfigurationError


# D47
@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("/lake/a b/", "file:///lake/a%20b"),
        ("/lake/a%20b", "file:///lake/a%2520b"),
        ("/lake/é#?", "file:///lake/%C3%A9%23%3F"),
        ("file:///lake/a%20b/", "file:///lake/a%20b"),
        ("file:/lake/a b", "file:///lake/a%20b"),
        ("file://localhost/lake", "file:///lake"),
        ("s3://lake/orders/", "s3://lake/orders"),
        ("S3A://lake//a b/50%/%20", "s3a://lake/a%20b/50%25/%20"),
        ("s3n://lake", "s3n://lake"),
        ("gs://lake/t", "gs://lake/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ],
)
def test_a_uri_is_encoded_only_once(given, canonical):
    assert canonical_uri(given) == canonical
    assert canonical_uri(canonical) == canonical


def test_a_relative_path_is_taken_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert canonical_uri("lake/t") == (tmp_path / "lake/t").as_uri()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s4://lake/t", r"scheme 's4'.*expected one of file, s3.*did you mean s3://"),
        ("gcs://lake/t", "did you mean gs://"),
        ("abfd://c@a/t", "did you mean abfs"),
        ("webhdfs://nn/t", "only Spark can read. Write hdfs://"),
        ("hdfs:///t", "has no NameNode and no name service: expected hdfs://<NameNode>:<port>/<path>"),
        ("file://lake/t", "did you mean 'file:///lake/t'"),
        ("s3:///t", "has no bucket: expected s3://<bucket>/<path>"),
        ("  ", "is empty; expected a path"),
        ("://x", "not a URI"),
        ("s3//lake/t", "write s3://lake/t, or, for a folder of that name, ./s3//lake/t"),
    ],
)
def test_a_uri_that_cannot_work_says_what_was_expected(uri, message):
    with pytest.raises(ConfigurationError, match=message):
        canonical_uri(uri)


def test_a_path_and_its_uri_open_the_same_folder(tmp_path):
    root = tmp_path / "a b%20é"
    by_path, by_uri = open_storage(str(root)), open_storage(root.as_uri())
    assert isinstance(by_path, LocalStorage)
    assert isinstance(by_uri, LocalStorage)
    assert by_path.root == by_uri.root == root
    assert by_path.uri == by_uri.uri == root.as_uri()


def test_a_path_that_is_not_utf8_survives_as_a_uri(tmp_path):
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    storage = open_storage(open_storage(root).uri)
    assert isinstance(storage, LocalStorage)
    assert str(storage.root) == root


@pytest.mark.parametrize(
    "uri", ["s3://lake/t", "s3a://lake/t", "gs://lake/t", "abfss://c@a.dfs.core.windows.net/t", "hdfs://nn:8020/t"]
)
def test_opening_an_object_store_makes_no_request(uri):
    assert open_storage(uri, _options(uri)).uri == uri


def test_tables_of_one_bucket_share_one_client():
    first = open_storage("s3://lake/a", {"region": "eu-central-1", "client_options": {"timeout": "5s"}})
    second = open_storage("s3://lake/b", {"client_options": {"timeout": "5s"}, "region": "eu-central-1"})
    other = open_storage("s3://lake/b", {"region": "eu-west-1"})
    assert first._store is second._store
    assert first._store is not other._store


def test_the_limits_apply_to_every_store_and_the_users_options_take_precedence():
    given = {"retry_config": {"max_retries": 1}, "client_options": {"read_timeout": "3s"}, "connect_timeout": "4s"}
    default, own = open_storage("s3://lake/a")._store, open_storage("s3://lake/a", given)._store
    assert default.retry_config == RETRY
    assert default.client_options == CLIENT
    assert own.retry_config == {**RETRY, "max_retries": 1}
    assert own.client_options == {**CLIENT, "read_timeout": "3s", "connect_timeout": "4s"}


def test_an_option_the_store_does_not_know_is_named_and_no_value_is_shown():
    with pytest.raises(ConfigurationError, match="'acces_key_id'") as caught:
        open_storage("s3://lake/t", {"acces_key_id": "AKIAVERYSECRET"})
    assert "AKIAVERYSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": "x", "kerberos_keytb": "secret"}, "unknown options .*: kerberos_keytb, region; expected config,"),
        ({"config": "dfs.x=1"}, "option 'config' .* must be a mapping"),
    ],
)
def test_an_option_that_hdfs_does_not_know_is_named(options, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_storage("hdfs://nn:8020/t", options)
    assert "secret" not in str(caught.value)


def test_tables_of_one_namenode_share_one_client():
    first = open_storage("hdfs://nn:8020/a", {"config": {"dfs.client.use.datanode.hostname": "true"}})
    second = open_storage("hdfs://nn:8020/b", {"config": {"dfs.client.use.datanode.hostname": "true"}})
    assert first._client is second._client
    assert first._client is not open_storage("hdfs://nn:8020/b")._client


def test_a_missing_hdfs_client_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-provider-fds\[hdfs\]'"):
        open_storage("hdfs://without:8020/t")


def _options(uri):
    return {"account_key": "c2VjcmV0"} if uri.startswith("abfss") else {}
