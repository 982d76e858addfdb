"""What counts as secret, wherever it is asked."""

from __future__ import annotations

import pytest

from airflow_provider_fds.credentials import is_secret, redacted, redacted_uri, secret_part

TEXTS = [
    "fs.s3a.encryption.key=HUSH",
    "pwd=HUSH",
    "DB_PASS: HUSH",
    "pat=HUSH",
    "Authorization: Bearer HUSH.HUSH",
    "Authorization: Basic SFVTSA==HUSH",
    '{"authorization": "Bearer HUSHHUSH", "x": 1}',
    "AccountName=a;AccountKey=HUSH==;EndpointSuffix=x",
    "SharedAccessSignature=sv=1&sig=HUSH",
    "-Xmx1g -Djavax.net.ssl.trustStorePassword=HUSH -Da=b",
    '{"password": "HUSH HUSH", "user": "me"}',
    "{'client_secret': 'HUSH HUSH'}",
    r'"{\"private_key\":\"HUSH HUSH\"}"',
    "jdbc:postgresql://me:HUSH@host/db",
    "postgresql+psycopg2://me:HUSH@host/db",
    "s3://me:HUSH@bucket/t",
    "s3://HUSH@bucket/t",
    "abfss://box:HUSH@account/t",
    "-----BEGIN RSA PRIVATE KEY-----\nHUSH\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0HUSH.c2lnbmF0dXJlHUSH",
    "sas=HUSH",
    "fernet_key = HUSH",
    "pass: HUSH",
    "user: me, pass: HUSH",
    "the tests use the pass: HUSH",
    "the tests pass=HUSH",
    "the tests pass: password: HUSH",
    "must_pass: HUSH",
    "credentials: password: HUSH",
    "{'tests pass': 'HUSH'}",
    "the credentials\npass: HUSH",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_shown_without_possible_credentials(text):
    shown = redacted(text)
    assert "HUSH" not in shown
    assert "***" in shown
    assert redacted(shown) == shown
    assert is_secret("spark.app.word", text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/path/table",
        "abfss://box@account.dfs.core.windows.net/t",
        "compat=1, pattern: x, bypass, path=/lake",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "version 3 of file:///lake/t at 12:00:00",
        "-Xmx2g -XX:+UseSerialGC",
        "the tests pass: 3",
        "versions that the stream cannot pass: 7, 9",
        "All checks pass: 4 of 4",
    ],
)
def test_other_texts_are_shown_as_they_are(text):
    assert redacted(text) == text
    assert not is_secret("spark.app.word", text)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.encryption.key", True),
        ("spark.hadoop.fs.s3a.server-side-encryption.key", True),
        ("my.pwd", True),
        ("MYSQL_PWD", True),
        ("db.pass", True),
        ("databricks.pat", True),
        ("spark.http.authorization", True),
        ("AccountKey", True),
        ("spark.sql.shuffle.partitions", False),
        ("spark.authenticate", False),
        ("spark.driver.extraClassPath", False),
        ("compat", False),
        ("PATH", False),
        ("spark.sql.catalog.spark_catalog", False),
    ],
)
def test_names_are_secret_by_their_words(name, secret):
    assert is_secret(name) is secret


def test_a_uri_is_shown_without_user_query_and_fragment():
    for uri, part in (("https://u:HUSH@h/t", "user info"), ("s3://b/t?HUSH", "a query"), ("s3://b/t#HUSH", "fragment")):
        assert part in (secret_part(uri) or "")
        assert "HUSH" not in redacted_uri(uri)
    assert secret_part("abfss://box@account/t") is None


@pytest.mark.parametrize(
    "uri",
    [
        "//AK:HUSH@host/t",
        "file:////AK:HUSH@host/t",
        "s3:AK:HUSH@bucket/t",
        "s3://AK:HUSH%40bucket/t",
        "S3A:/AK:HUSH@b/t",
    ],
)
def test_a_uri_that_is_misspelled_is_shown_without_its_user(uri):
    assert "HUSH" not in redacted(f"no table at {uri}: check it")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    ["a", "token", "token.", "://", "password: ", '"', "a.b-", "bearer ", "eyJ", "secret='", "x=", "-----BEGIN KEY"],
)
def test_a_long_text_is_redacted_in_a_time_that_grows_with_it(part):
    assert redacted(part * 30_000) is not None
