"""The client of Glue, with moto's server."""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache

import botocore.loaders
import botocore.session
import pytest

from airflow_provider_fds.catalog import glue
from airflow_provider_fds.catalog.glue import GlueCatalog, glue_client
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, StorageError, TableNotFoundError
from airflow_provider_fds.reasons import Reason
from tests.interop.s3_server import Server

ORDERS = TableName(("lab", "orders"))
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test-secret", "region_name": "eu-west-1"}
#: The descriptions of AWS's services are read once, not for each client.
shared_loader = cache(botocore.loaders.create_loader)
ATHENA = {"EXTERNAL": "TRUE", "table_type": "DELTA", "classification": "delta"}


@pytest.fixture(scope="module")
def moto():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(moto):
    moto.heal()
    request = urllib.request.Request(f"{moto.endpoint}/moto-api/reset", method="POST")
    urllib.request.urlopen(request, timeout=30).close()
    moto.requests.clear()
    return moto


@pytest.fixture(autouse=True)
def clients(monkeypatch):
    """No test reads a person's own configuration; all clients are closed."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(botocore.session, "create_loader", shared_loader)
    made = []
    yield made
    for client in made:
        client.close()


@pytest.fixture
def aws(server, clients):
    clients.append(glue_client(endpoint_url=server.endpoint, **KEYS))
    clients[0].create_database(DatabaseInput={"Name": "lab"})
    return clients[0]


@pytest.fixture
def catalog(server, clients):
    def new_client():
        clients.append(glue_client(endpoint_url=server.endpoint, **KEYS))
        return clients[-1]

    return GlueCatalog(new_client)


def create(aws, name="orders", location="s3://lake/orders", parameters=ATHENA, path=None, **more):
    serde = {"Parameters": {"serialization.format": "1", **({"path": path} if path else {})}}
    descriptor = {"Location": location, "SerdeInfo": serde, "Columns": [{"Name": "col", "Type": "array<string>"}]}
    table = {"TableType": "EXTERNAL_TABLE", "Parameters": parameters, "StorageDescriptor": descriptor, **more}
    aws.create_table(DatabaseName="lab", TableInput={"Name": name, **table})


def link(aws, name, target):
    target = {"CatalogId": "123456789012", "DatabaseName": "lab", "Name": target}
    aws.create_table(DatabaseName="lab", TableInput={"Name": name, "TargetTable": target})


def test_a_name_may_begin_with_the_id_of_a_catalog(aws):
    create(aws)
    sent = []
    aws.meta.events.register("provide-client-params.glue.*", lambda params, **_: sent.append(params))
    catalog = GlueCatalog(lambda: aws)
    named = TableName.parse("123456789012.lab.orders")
    found = catalog.load(named)
    assert (found.name, found.location) == (named, "s3://lake/orders")
    assert catalog.tables(TableName.parse("123456789012.lab")) == [named]
    # moto has one catalog only, and ignores its id
    assert [one.get("CatalogId") for one in sent] == ["123456789012"] * 2


def refuse(server, code, message="no", status="400 Bad Request", **more):
    body = json.dumps({"__type": code, "Message": message}).encode()
    server.fail("status", status=status, body=body, **more)


def test_a_table_is_loaded_by_name(aws, catalog):
    create(aws)
    found = catalog.load(ORDERS)
    assert (found.name, found.location) == (ORDERS, "s3://lake/orders")
    created = datetime.fromisoformat(found.table_id)
    assert created.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=5)


def test_a_table_of_spark_is_where_its_serde_says(aws, catalog):
    spark = {"spark.sql.sources.provider": "delta", "spark.sql.partitionProvider": "catalog"}
    create(aws, location="s3://wh/lab.db/orders-__PLACEHOLDER__", parameters=spark, path="s3://lake/own folder")
    assert catalog.load(ORDERS).location == "s3://lake/own%20folder"


def test_a_table_of_a_crawler_is_loaded(aws, catalog):
    crawled = {"classification": "delta", "table_type": "delta", "spark.sql.sources.provider": "delta"}
    create(aws, location="s3://lake/orders/", parameters=crawled, path="s3://lake/orders/")
    assert catalog.load(ORDERS).location == "s3://lake/orders"


def test_a_resource_link_is_followed_once(aws, catalog):
    create(aws)
    link(aws, "linked", "orders")
    found, target = catalog.load(TableName(("lab", "linked"))), catalog.load(ORDERS)
    assert found.name == TableName(("lab", "linked"))
    assert (found.location, found.table_id) == (target.location, target.table_id)
    link(aws, "twice", "linked")
    with pytest.raises(ConfigurationError, match=r"lab\.twice in AWS Glue in eu-west-1 is a link to lab\.orders"):
        catalog.load(TableName(("lab", "twice")))


def test_what_is_not_delta_is_named(aws, catalog):
    create(aws, "seen", parameters={"presto_view": "true"}, TableType="VIRTUAL_VIEW")
    create(aws, "ice", parameters={"table_type": "ICEBERG", "metadata_location": "s3://b/i/1.json"})
    create(aws, "files", parameters={"classification": "parquet"})
    create(aws, "symlinks", "s3://lake/orders/_symlink_format_manifest", {"classification": "parquet"})
    for name, kind in {"seen": "a view", "ice": "an Iceberg", "files": "a Parquet", "symlinks": "a symlink"}.items():
        with pytest.raises(ConfigurationError, match=f"lab.{name} in AWS Glue in eu-west-1 is {kind}") as caught:
            catalog.load(TableName(("lab", name)))
        assert caught.value.reason_code == Reason.CATALOG_TABLE_UNREADABLE


def test_a_new_location_keeps_the_id_and_a_new_table_has_another(aws, catalog):
    create(aws)
    before = catalog.load(ORDERS)
    moved = {"Location": "s3://lake/moved", "SerdeInfo": {"Parameters": {}}}
    table = {"Name": "orders", "Parameters": ATHENA, "StorageDescriptor": moved}
    aws.update_table(DatabaseName="lab", TableInput=table)
    after = catalog.load(ORDERS)
    assert (after.location, after.table_id) == ("s3://lake/moved", before.table_id)
    aws.delete_table(DatabaseName="lab", Name="orders")
    create(aws)
    assert catalog.load(ORDERS).table_id != before.table_id


def test_a_new_table_is_in_the_folder_of_its_database(aws, catalog):
    assert catalog.new_location(ORDERS) == ""
    aws.create_database(DatabaseInput={"Name": "with_folder", "LocationUri": "s3://lake/a b/"})
    assert catalog.new_location(TableName(("with_folder", "Orders"))) == "s3://lake/a%20b/orders"
    with pytest.raises(TableNotFoundError, match="no database of this name in this account"):
        catalog.new_location(TableName(("nope", "orders")))


def test_a_table_is_registered_as_spark_does(aws, catalog):
    catalog.register(ORDERS, "s3://lake/own%20folder", Metadata("1"))
    found = aws.get_table(DatabaseName="lab", Name="orders")["Table"]
    assert (found["TableType"], found["Parameters"]["spark.sql.sources.provider"]) == ("EXTERNAL_TABLE", "delta")
    descriptor = found["StorageDescriptor"]
    assert (descriptor["Location"], descriptor["SerdeInfo"]["Parameters"]["path"]) == ("s3://lake/own folder",) * 2
    # as for tables of Spark itself, the log has the columns
    assert descriptor["Columns"] == [{"Name": "col", "Type": "array<string>", "Comment": "from deserializer"}]
    before = catalog.load_sink(ORDERS)
    assert before.location == "s3://lake/own%20folder"
    # again, and another table of that name: neither replaces it
    catalog.register(ORDERS, "s3://lake/other", Metadata("1"))
    assert catalog.load_sink(ORDERS) == before


def test_the_right_to_create_is_named(server, catalog):
    refuse(server, "AccessDeniedException")
    with pytest.raises(AccessDeniedError, match=r"does not let FDS create lab\.orders.*Allow glue:CreateTable"):
        catalog.register(ORDERS, "s3://lake/orders", Metadata("1"))
    refuse(server, "AccessDeniedException")
    with pytest.raises(AccessDeniedError, match="Allow glue:GetDatabase"):
        catalog.new_location(ORDERS)


def test_a_missing_table_and_a_missing_database_are_told_apart(aws, catalog):
    with pytest.raises(TableNotFoundError, match=r"has no table lab\.nope\. Correct the name") as caught:
        catalog.load(TableName(("lab", "nope")))
    assert caught.value.reason_code == Reason.CATALOG_TABLE_NOT_FOUND
    for ask in (lambda: catalog.load(TableName(("nope", "t"))), lambda: catalog.tables(TableName(("nope",)))):
        with pytest.raises(TableNotFoundError, match="no database of this name in this account and region"):
            ask()


def test_a_missing_table_may_be_called_database(aws, catalog):
    with pytest.raises(TableNotFoundError, match=r"has no table lab\.database_log\. Correct the name"):
        catalog.load(TableName(("lab", "database_log")))


def test_names_are_listed_over_all_pages(aws, catalog, server):
    for i in range(105):
        create(aws, f"t{i:03}")
    assert catalog.tables(TableName(("lab",))) == [TableName(("lab", f"t{i:03}")) for i in range(105)]


def test_the_tables_of_a_database_are_described_by_their_list(aws, catalog):
    create(aws)
    create(aws, "view", TableType="VIRTUAL_VIEW", Parameters={})
    table, view = catalog.listed(TableName(("lab",)))
    loaded = catalog.load(ORDERS)
    assert (table.name, table.location, table.table_id, table.problem) == (
        ORDERS, loaded.location, loaded.table_id, ""
    )  # fmt: skip
    assert (view.location, "is a view" in view.problem) == ("", True)


@pytest.mark.parametrize("name", ["orders", "main.a.lab.orders"])
def test_a_name_has_a_database_and_a_table(catalog, name):
    with pytest.raises(ConfigurationError, match=r"<database>\.<table>"):
        catalog.load(TableName.parse(name))


@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        (
            "AccessDeniedException",
            "User arn:aws:iam::1:user/x is not authorized",
            r"not authorized.*Allow glue:GetTable",
        ),
        ("UnrecognizedClientException", "The security token included in the request is invalid.", "are not valid"),
        ("InvalidSignatureException", "The signature does not match", "are not valid"),
        ("GlueEncryptionException", "KMS key is not there", "kms:Decrypt"),
        ("ExpiredTokenException", "The security token is expired", "have expired.*Renew them"),
    ],
)
def test_credentials_that_are_refused_are_denied(server, catalog, code, message, shown):
    refuse(server, code, message)
    with pytest.raises(AccessDeniedError, match=shown) as caught:
        catalog.load(ORDERS)
    assert not caught.value.retryable
    assert caught.value.reason_code == Reason.CATALOG_DENIED


def test_the_right_to_list_is_named(server, catalog):
    refuse(server, "AccessDeniedException")
    with pytest.raises(AccessDeniedError, match="Allow glue:GetTables"):
        catalog.tables(TableName(("lab",)))


def test_expired_credentials_are_renewed_once(aws, server, catalog, clients):
    create(aws)
    refuse(server, "ExpiredTokenException", times=1)
    assert catalog.load(ORDERS).location == "s3://lake/orders"
    assert len(clients) == 3


def test_throttling_is_tried_again_and_then_unavailable(aws, server, catalog, monkeypatch):
    create(aws)
    monkeypatch.setattr(glue, "_ATTEMPTS", 2)
    refuse(server, "ThrottlingException", "Rate exceeded", times=1)
    assert catalog.load(ORDERS).location == "s3://lake/orders"
    refuse(server, "ThrottlingException", "Rate exceeded")
    server.requests.clear()
    with pytest.raises(StorageError, match="ThrottlingException: Rate exceeded") as caught:
        catalog.load(ORDERS)
    assert caught.value.retryable
    assert caught.value.reason_code == Reason.CATALOG_UNAVAILABLE
    assert server.requests.total() == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"kind": "status", "status": "500 Internal Server Error", "body": b"<html>oops"}, id="500"),
        pytest.param({"kind": "status", "status": "200 OK", "body": b"<html>login"}, id="not-json"),
        pytest.param({"kind": "status", "status": "200 OK", "body": b"{}"}, id="empty"),
        pytest.param({"kind": "status", "status": "200 OK", "body": b"[1]"}, id="list"),
        pytest.param({"kind": "reset_before"}, id="reset"),
        pytest.param({"kind": "silent_before"}, id="silent"),
    ],
)
def test_a_server_that_does_not_answer_as_it_should_is_unavailable(server, catalog, monkeypatch, fault):
    monkeypatch.setattr(glue, "_ATTEMPTS", 1)
    monkeypatch.setattr(glue, "_READ_SECONDS", 0.5)
    server.fail(**fault)
    with pytest.raises(StorageError) as caught:
        catalog.load(ORDERS)
    assert caught.value.reason_code == Reason.CATALOG_UNAVAILABLE
    assert caught.value.retryable


def test_missing_credentials_and_a_missing_region_are_named(clients):
    def without_keys():
        clients.append(glue_client(region_name="eu-west-1"))
        return clients[-1]

    with pytest.raises(AccessDeniedError, match=r"Unable to locate credentials.*Set credentials"):
        GlueCatalog(without_keys).load(ORDERS)
    with pytest.raises(ConfigurationError, match="Set 'region_name'"):
        GlueCatalog(glue_client).load(ORDERS)


def test_an_error_of_the_connection_is_shown_as_it_is():
    def broken():
        raise KeyError("conn_id")

    with pytest.raises(KeyError, match="conn_id"):
        GlueCatalog(broken).load(ORDERS)


def test_many_threads_share_a_client(aws, catalog, clients):
    create(aws)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: catalog.load(ORDERS).location, range(24)))
    assert found == {"s3://lake/orders"}
    assert len(clients) == 2


def test_a_child_does_not_use_the_client_of_its_parent(aws, catalog, clients, monkeypatch):
    create(aws)
    catalog.load(ORDERS)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    catalog.load(ORDERS)
    assert len(clients) == 3


def test_the_extra_is_named_if_the_client_is_missing(monkeypatch):
    monkeypatch.setattr(glue, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-provider-fds\[glue\]'"):
        glue_client()
