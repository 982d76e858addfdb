"""URIs as Spark needs them, and none with a credential."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.location import check_table_uri, hadoop_path, spark_uri
from airflow_provider_fds.credentials import redacted_uri
from airflow_provider_fds.errors import ConfigurationError


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://b/t", "s3a://b/t"),
        ("s3n://b/t", "s3a://b/t"),
        ("s3a://b/t", "s3a://b/t"),
        ("gs://b/s3://t", "gs://b/s3://t"),
        ("file:///s3", "file:///s3"),
    ],
)
def test_s3_gets_the_scheme_spark_has_a_file_system_for(uri, expected):
    assert spark_uri(uri) == expected


def test_a_path_for_load_is_decoded_because_hadoop_decodes_nothing():
    assert hadoop_path("s3://b/a%20b%2520c") == "s3a://b/a b%20c"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///lake/t",
        "s3://lake/t@home:1",
        "s3://lake/t%3Fsig=1%23",
        "abfss://box@acc.dfs.core.windows.net/t",
        "wasbs://box@acc.blob.core.windows.net/t",
    ],
)
def test_a_uri_without_credentials_is_accepted(uri):
    check_table_uri(uri)


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("s3://key:secret@b/t", "user info before the @"),
        ("s3://secret@b/t", "user info before the @"),
        ("abfss://box:secret@acc.dfs.core.windows.net/t", "user info before the @"),
        ("https://acc.blob.core.windows.net/t?sig=secret", "a query after the ?"),
        ("s3://b/t#secret", "a fragment after the #"),
        ("s3://k:secret@b/t?sig=secret#secret", "user info before the @"),
    ],
)
def test_a_uri_with_a_credential_is_refused_and_not_repeated(uri, part):
    with pytest.raises(ConfigurationError) as caught:
        check_table_uri(uri)

    assert part in str(caught.value)
    assert "storage_conn_id" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in (caught.value.table or "")


def test_a_path_without_scheme_is_refused_because_spark_would_look_elsewhere():
    with pytest.raises(ConfigurationError, match=r"/lake/t has no scheme"):
        check_table_uri("/lake/t")


def test_redaction_keeps_what_identifies_the_table():
    assert redacted_uri("s3://k:s@b/t?sig=1") == "s3://***@b/t?***"
    assert redacted_uri("abfss://box@acc/t") == "abfss://box@acc/t"
