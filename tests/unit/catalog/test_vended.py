"""Credentials that a catalog gives for one table: which, for how long, and when they are renewed."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime

import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.catalog.vended import Credentials, NoCredentialsError, VendedCredentials, chosen
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.errors import AccessDeniedError, StorageError
from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

NAME = TableName.parse("main.sales.s3t")
API = "GET /delta/v1/catalogs/main/schemas/sales/tables/s3t"
S3 = {"s3.access-key-id": "AK", "s3.secret-access-key": "SK-hidden", "s3.session-token": "ST-hidden"}


def item(prefix="s3://lake/tables/t", config=None, expires_ms=9_000, operation="READ"):
    return {
        "prefix": prefix, "operation": operation, "config": S3 if config is None else config,
        "expiration-time-ms": expires_ms,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prefixes", "best"),
    [
        (["s3://lake/tables/t"], 0),
        (["s3://lake/tables/t/"], 0),
        (["s3://lake", "s3://lake/tables"], 1),
        (["s3a://lake/tables/t", "s3://lake/tables/"], 0),
        (["s3://lake/tables/t/part", "s3://lake/"], 1),
        (["s3://lake/tables/t2", "s3://lake/table", "s3://lake/tables"], 2),
    ],
)
def test_the_longest_prefix_that_covers_the_table_wins(prefixes, best):
    items = [item(prefix, {**S3, "s3.access-key-id": str(n)}) for n, prefix in enumerate(prefixes)]
    assert chosen(items, "s3://lake/tables/t").config["access_key_id"] == str(best)


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], "no credentials for s3://lake/tables/t"),
        ([item("s3://lake/tables/t2")], "only for other folders"),
        ([item("s3://lake/tables/t/part")], "only for other folders"),
        ([item("")], "only for other folders"),
        ([None, 1, {}], "only for other folders"),
        ([item(config={})], "of a form that FDS does not know: none"),
        ([item(config={"s3.access-key-id": "AK"})], "of a form that FDS does not know: s3.access-key-id"),
        ([item(config={"x.key": "hidden"})], "of a form that FDS does not know: x.key"),
    ],
)
def test_credentials_that_do_not_fit_are_refused(items, text):
    with pytest.raises(NoCredentialsError, match=text) as caught:
        chosen(items, "s3://lake/tables/t")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (S3, {"access_key_id": "AK", "secret_access_key": "SK-hidden", "token": "ST-hidden"}),
        ({"azure.sas-token": "sv=1&sig=x"}, {"sas_token": "sv=1&sig=x"}),
        ({"gcs.oauth-token": "ya29.x"}, {"token": "ya29.x"}),
    ],
)
def test_they_are_named_as_the_store_names_them(config, expected):
    found = chosen([item(config=config)], "s3://lake/tables/t")
    given = VendedCredentials(lambda: found, clock=lambda: 0.0)()
    assert given == {**expected, "expires_at": datetime.fromtimestamp(9, UTC)}
    assert "hidden" not in repr(found)


class Clocked:
    """Credentials of a lifetime, on a clock that a test moves."""

    def __init__(self, lifetime):
        self.now, self.calls, self.failing, self.lifetime = 0.0, [], False, lifetime
        self.provider = VendedCredentials(self.fetch, clock=lambda: self.now)

    def fetch(self):
        self.calls.append(self.now)
        if self.failing:
            raise StorageError("busy")
        return Credentials(
            {"token": f"t{len(self.calls)}"}, None if self.lifetime is None else self.now + self.lifetime
        )

    def at(self, now):
        self.now = now
        return self.provider()["token"]


@pytest.mark.parametrize(
    ("lifetime", "renewed_at"), [(20.0, 15.0), (600.0, 450.0), (3600.0, 3300.0), (43_200.0, 42_900.0)]
)
def test_they_are_kept_and_renewed_before_they_expire(lifetime, renewed_at):
    clocked = Clocked(lifetime)
    assert [clocked.at(0.0), clocked.at(1.0), clocked.at(renewed_at - 0.1)] == ["t1"] * 3
    assert clocked.at(renewed_at) == "t2"
    assert clocked.calls == [0.0, renewed_at]


def test_without_an_end_they_are_kept():
    clocked = Clocked(None)
    assert [clocked.at(0.0), clocked.at(1e9)] == ["t1", "t1"]


def test_a_renewal_that_fails_is_tried_again_and_the_old_ones_serve_until_they_expire():
    clocked = Clocked(100.0)
    clocked.at(0.0)
    clocked.failing = True
    assert [clocked.at(75.0), clocked.at(76.0), clocked.at(80.0)] == ["t1"] * 3
    assert clocked.calls == [0.0, 75.0, 80.0]
    with pytest.raises(StorageError, match="busy"):
        clocked.at(100.0)
    clocked.failing = False
    with pytest.raises(StorageError, match="busy"):
        clocked.at(104.9)
    assert clocked.calls[3:] == [100.0]
    assert (clocked.at(105.0), clocked.at(179.9), clocked.at(180.0)) == ("t5", "t5", "t6")


@pytest.mark.parametrize("uri", ["s3://lake/t", "abfss://lake@account.dfs.core.windows.net/t", "gs://lake/t"])
def test_a_catalog_that_is_away_in_the_middle_of_a_read_is_not_wrong_credentials(uri):
    clocked = Clocked(100.0)
    clocked.failing = True
    storage = open_storage(uri, {"credential_provider": clocked.provider})
    for read in (storage.head, storage.get, lambda key: list(storage.list_after(key))):
        with pytest.raises(StorageError, match=r"no credentials \(busy\)") as caught:
            read("a")
        assert (caught.value.retryable, caught.value.reason_code) == (True, "CATALOG_UNAVAILABLE")
    assert clocked.calls == [0.0]


def test_a_right_that_is_withdrawn_in_the_middle_of_a_read_is_not_retried():
    def fetch():
        raise AccessDeniedError("the catalog does not let FDS read it")

    storage = open_storage("s3://lake/t", {"credential_provider": VendedCredentials(fetch)})
    with pytest.raises(AccessDeniedError, match="the catalog does not let FDS read it"):
        storage.head("a")


@pytest.fixture
def server():
    server = UnityServer()
    body = recorded("15_external_load")
    body["metadata"] |= {"location": "s3://lake/tables/t", "table-uuid": f"id-{time.monotonic_ns()}"}
    server.replies[API] = Reply(200, body)
    server.replies[f"{API}/credentials"] = Reply(200, {"storage-credentials": [item(expires_ms=4_000_000_000_000)]})
    yield server
    server.close()


def test_a_table_is_opened_with_them_at_the_endpoint_of_the_storage_connection(server):
    catalog = UnityCatalog(server.url, token="t", conn_id="unity")
    storage = {
        "endpoint": "http://minio:9000", "region": "eu-west-1", "allow_http": True, "access_key_id": "own",
        "secret_access_key": "own", "token": "own", "skip_signature": True, "storage_conn_id": "s3",
    }  # fmt: skip
    places = CatalogPlaces(catalog, lambda _: storage)
    place = places.resolve("main.sales.s3t")
    provider = place.options["credential_provider"]
    assert place.options == {
        "endpoint": "http://minio:9000", "region": "eu-west-1", "allow_http": True, "storage_conn_id": "unity",
        "credential_provider": provider,
    }  # fmt: skip
    assert places.resolve("main.sales.s3t").options["credential_provider"] is provider
    assert UnityCatalog(server.url, token="u").load(NAME).options["credential_provider"] is not provider
    assert provider()["access_key_id"] == "AK"
    assert [query for method, path, query, *_ in server.requests if "credentials" in path] == [
        {"operation": "READ"}
    ] * 2
    assert open_place(place)._store is open_place(places.resolve("main.sales.s3t"))._store
    assert "hidden" not in f"{place!r} {catalog.load(NAME)!r}"


def test_the_storage_connection_can_be_used_instead(server):
    catalog = UnityCatalog(server.url, vends_credentials=False)
    assert CatalogPlaces(catalog, lambda _: {"region": "x"}).resolve("main.sales.s3t").options == {"region": "x"}


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (Reply(403, {"error": {"message": "no"}}), AccessDeniedError, "EXTERNAL USE SCHEMA .* external data access"),
        (Reply(404, recorded("14_s3_credentials")), StorageError, "credentials for its files: 404 .*minting failed"),
        (Reply(200, {"storage-credentials": []}), AccessDeniedError, "no credentials for s3://lake/tables/t"),
        (Reply(200, {"storage-credentials": [item("s3://other")]}), AccessDeniedError, "only for other folders"),
        (Reply(200, {"storage-credentials": 1}), AccessDeniedError, "no credentials for"),
        (Reply(400, b"bad operation"), StorageError, "answers 400"),
    ],
)
def test_a_table_without_credentials_is_not_a_missing_one(server, reply, kind, text):
    server.replies[f"{API}/credentials"] = reply
    with pytest.raises(kind, match=text) as caught:
        UnityCatalog(server.url, timeout_seconds=2).load(NAME)
    assert "NOT_FOUND" not in caught.value.reason_code


def test_the_older_api_gives_them_too(server):
    server.replies["GET /delta/v1/config"] = Reply(404, b"")
    table = {**recorded("16_external_rest_get"), "storage_location": "s3://lake/tables/t", "table_id": "old-id"}
    server.replies["GET /tables/main.sales.s3t"] = Reply(200, table)
    aws = {"access_key_id": "AK", "secret_access_key": "SK", "session_token": "ST"}
    answer = {"aws_temp_credentials": aws, "expiration_time": 4_000_000_000_000, "url": "s3://lake/tables/t"}
    server.replies["POST /temporary-table-credentials"] = Reply(200, answer)
    provider = UnityCatalog(server.url).load(NAME).options["credential_provider"]
    assert provider.hadoop["fs.unitycatalog.table.id"] == "old-id"
    assert "fs.unitycatalog.delta.catalog" not in provider.hadoop
    given = provider()
    assert (given["access_key_id"], given["token"]) == ("AK", "ST")
    assert '"table_id":"old-id","operation":"READ"' in server.requests[-1][4].replace(" ", "")


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ({"token": "T"}, {"type": "static", "token": "T"}),
        ({}, {"type": "static", "token": "anonymous"}),
        (
            {"client_id": "c", "client_secret": "S", "token_url": "https://id/token"},
            {"type": "oauth", "oauth.uri": "https://id/token", "oauth.clientId": "c", "oauth.clientSecret": "S",
             "oauth.scope": "all-apis"},
        ),
    ],
)  # fmt: skip
def test_hadoop_is_told_how_to_ask_for_keys_and_gets_none(server, login, told):
    # the keys are not asked for with a client's token here
    catalog = UnityCatalog(server.url, **login)
    if "client_id" in login:
        catalog._http._token = ("given", math.inf)
    hadoop = catalog.load(NAME).options["credential_provider"].hadoop
    prefix = "fs.unitycatalog."
    assert {key.removeprefix(f"{prefix}auth."): value for key, value in hadoop.items() if ".auth." in key} == told
    assert hadoop[f"{prefix}uri"] == server.url
    assert [hadoop[f"{prefix}delta.{key}"] for key in ("catalog", "schema", "table.name")] == list(NAME.parts)
    assert hadoop[f"{prefix}table.operation"] == "READ"
    assert not any("hidden" in value for value in hadoop.values())
