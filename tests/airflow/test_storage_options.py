"""Airflow connections as options of an object store."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks import storage
from airflow_provider_fds.hooks.storage import store_kind

pytestmark = pytest.mark.usefixtures("airflow_database")


def storage_options(conn_id, uri):
    """What the store gets; the name of the connection goes along for messages only."""
    options = storage.storage_options(conn_id, uri)
    assert options.pop("storage_conn_id", conn_id) == conn_id
    return options


@pytest.fixture
def connection(monkeypatch):
    def make(conn_type, extra=None, **fields):
        value = {"conn_type": conn_type, "extra": extra or {}, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
        return "lake"

    return make


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("s3://b/t", "s3"),
        ("S3A://b/t", "s3"),
        ("gs://b/t", "gcs"),
        ("abfss://c@a.dfs.core.windows.net/t", "azure"),
        ("/data/t", "local"),
        ("file:///data/t", "local"),
        ("ftp://b/t", None),
    ],
)
def test_the_scheme_says_which_store_it_is(uri, kind):
    assert store_kind(uri) == kind


def test_the_name_of_the_connection_is_kept_for_messages(connection):
    options = storage.storage_options(connection("aws", login="key", password="word"), "s3://lake/orders")
    assert options["storage_conn_id"] == "lake"


def test_without_a_connection_the_environments_credentials_are_used():
    assert storage_options(None, "s3://lake/orders") == {}


@pytest.mark.parametrize("conn_type", ["aws", "hdfs", "spark"])
def test_a_local_path_needs_no_credentials_of_the_connection_that_is_named(connection, conn_type):
    assert storage.storage_options(connection(conn_type, login="key", password="word"), "/data/orders") == {}


@pytest.mark.parametrize("uri", ["/data/orders", "file:///data/orders"])
def test_a_missing_connection_is_an_error_for_a_local_path_too(uri):
    with pytest.raises(ConfigurationError, match=rf"'not_there', which is the storage_conn_id for '{uri}'") as caught:
        storage.storage_options("not_there", uri)
    assert caught.value.reason_code == "CONNECTION_NOT_FOUND"
    assert "Omit storage_conn_id" in str(caught.value)
    assert "airflow connections add" not in str(caught.value)


def test_the_hook_reads_a_local_table_only_with_a_connection_that_exists(connection, lake):
    from airflow_provider_fds import DeltaTableHook

    lake.append("orders", 1)
    with pytest.raises(ConfigurationError, match="'not_there'"):
        DeltaTableHook("not_there").latest_version(f"{lake.uri}/orders")
    assert DeltaTableHook(connection("aws")).latest_version(f"{lake.uri}/orders") == 0


def test_keys_region_and_endpoint_of_an_aws_connection(connection):
    conn_id = connection(
        "aws",
        {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000", "aws_session_token": "t"},
        login="key",
        password="word",
    )
    assert storage_options(conn_id, "s3://lake/orders") == {
        "region": "eu-west-1",
        "endpoint": "http://minio:9000",
        "allow_http": True,
        "access_key_id": "key",
        "secret_access_key": "word",
        "session_token": "t",
    }


def test_the_endpoint_of_the_service_takes_precedence_over_the_general_one(connection):
    extra = {"endpoint_url": "https://all", "service_config": {"s3": {"endpoint_url": "https://s3"}}, "verify": False}
    options = storage_options(connection("aws", extra), "s3a://lake/orders")
    assert options == {"endpoint": "https://s3", "allow_invalid_certificates": True}


def test_a_certificate_file_is_read(connection, tmp_path):
    (tmp_path / "ca.pem").write_bytes(b"pem")
    options = storage_options(connection("aws", {"verify": str(tmp_path / "ca.pem")}), "s3://lake/orders")
    assert options == {"root_certificate": b"pem"}


def test_a_role_without_the_amazon_provider_is_an_error_that_names_it(connection):
    pytest.importorskip("airflow")
    try:
        import airflow.providers.amazon  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("the amazon provider is installed")
    with pytest.raises(ConfigurationError, match=r"'lake'.*apache-airflow-providers-amazon"):
        storage_options(connection("aws", {"role_arn": "arn:aws:iam::1:role/r"}), "s3://lake/orders")


def test_a_google_key_as_dict_and_as_file(connection):
    extra = {"extra__google_cloud_platform__keyfile_dict": {"type": "service_account"}}
    assert storage_options(connection("google_cloud_platform", extra), "gs://lake/orders") == {
        "service_account_key": '{"type": "service_account"}'
    }
    conn_id = connection("google_cloud_platform", {"key_path": "/key.json"})
    assert storage_options(conn_id, "gs://lake/orders") == {"service_account": "/key.json"}


def test_azure_by_key_token_application_and_connection_string(connection):
    uri = "abfss://c@acc.dfs.core.windows.net/orders"
    assert storage_options(connection("wasb", login="acc", password="k"), uri) == {
        "account_name": "acc",
        "account_key": "k",
    }
    assert storage_options(connection("wasb", {"sas_token": "?sv=1"}, login="acc"), uri) == {
        "account_name": "acc",
        "sas_key": "sv=1",
    }
    extra = {"tenant_id": "t", "account_name": "acc"}
    assert storage_options(connection("adls", extra, login="app", password="pw"), uri) == {
        "account_name": "acc",
        "tenant_id": "t",
        "client_id": "app",
        "client_secret": "pw",
    }
    text = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/a"
    assert storage_options(connection("wasb", {"connection_string": text}), uri) == {
        "account_name": "a",
        "account_key": "k==",
        "endpoint": "http://127.0.0.1:10000/a",
        "allow_http": True,
    }


@pytest.mark.parametrize(
    ("uri", "conn_type"),
    [
        ("s3://lake/orders", "aws"),
        ("gs://lake/orders", "google_cloud_platform"),
        ("abfss://lake@a.dfs.core.windows.net/orders", "wasb"),
        ("hdfs://host:8020/orders", "hdfs"),
    ],
)
def test_a_missing_connection_is_named_with_the_command_that_creates_it(connection, uri, conn_type):
    with pytest.raises(ConfigurationError, match=r"Airflow connection 'lost'.*does not exist") as caught:
        storage_options("lost", uri)
    assert uri in str(caught.value)
    (command,) = re.findall("`(airflow connections add [^`]+)`", str(caught.value))
    arguments = get_parser().parse_args(shlex.split(command)[1:])
    assert (arguments.conn_id, arguments.conn_type) == ("lost", conn_type)
    # the connection fits the store
    fields = {"host": arguments.conn_host, "login": arguments.conn_login, "password": arguments.conn_password}
    assert storage_options(connection(conn_type, json.loads(arguments.conn_extra), **fields), uri)


def test_a_connection_of_another_store_is_refused(connection):
    conn_id = connection("google_cloud_platform")
    with pytest.raises(
        ConfigurationError, match=r"'lake' is of type 'google_cloud_platform', but 's3://lake/orders'.*'aws'"
    ):
        storage_options(conn_id, "s3://lake/orders")


def test_the_hook_reads_a_table_on_s3_through_its_connection(connection, lake, monkeypatch):
    from moto.server import ThreadedMotoServer

    from airflow_provider_fds import DeltaTableHook

    lake.append("orders", 1)
    lake.append("orders", 2)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _upload(lake, "orders", endpoint)
        conn_id = connection("aws", {"endpoint_url": endpoint, "region_name": "us-east-1"}, login="k", password="s")
        hook = DeltaTableHook(conn_id)
        assert hook.latest_version("s3://lake/orders") == 1
        assert hook.check_table("s3://lake/orders") == (True, "table s3://lake/orders is at version 1")
        found, message = hook.check_table("s3://lake/nothing")
        assert not found
        assert "s3://lake/nothing" in message
        # one store for all tables of a bucket and connection
        assert hook.get_storage("s3://lake/a")._store is DeltaTableHook(conn_id).get_storage("s3://lake/b")._store
    finally:
        server.stop()


def _upload(lake, table, endpoint):
    import boto3

    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    client.create_bucket(Bucket="lake")
    for path in (lake.root / table).rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "lake", str(path.relative_to(lake.root)))


def test_the_hook_reports_what_is_wrong_with_a_path(lake):
    from airflow_provider_fds import DeltaTableHook

    lake.append("orders", 1)
    assert DeltaTableHook().latest_version(f"{lake.uri}/orders") == 0
    found, message = DeltaTableHook().check_table("s4://lake/orders")
    assert not found
    assert "did you mean s3" in message


@pytest.mark.parametrize(
    ("conn_type", "uri", "extra", "text"),
    [
        ("aws", "s3://lake/t", ["region_name"], "must be a JSON object, got a list"),
        ("aws", "s3://lake/t", "text", "must be a JSON object, got a str"),
        ("aws", "s3://lake/t", {"service_config": "s3"}, "'str' object has no attribute 'get'"),
        ("aws", "s3://lake/t", {"endpoint_url": 9000}, "'int' object has no attribute 'lower'"),
        ("aws", "s3://lake/t", {"verify": "/no/such.pem"}, "No such file or directory: '/no/such.pem'"),
        ("google_cloud_platform", "gs://lake/t", {"endpoint_url": 9000}, "'int' object has no attribute 'lower'"),
        ("wasb", "abfss://c@a.dfs.core.windows.net/t", {"account_host": 5}, "'int' object has no attribute 'split'"),
    ],
)
def test_an_extra_that_the_store_cannot_use_is_refused_with_the_name_of_the_connection(
    connection, conn_type, uri, extra, text
):
    value = json.dumps(extra) if isinstance(extra, (list, str)) else extra
    with pytest.raises(ConfigurationError, match=f"extra of .*onnection 'lake'.*{re.escape(text)}") as raised:
        storage.storage_options(connection(conn_type, value), uri)
    assert raised.value.reason_code == "CONNECTION_UNUSABLE"
