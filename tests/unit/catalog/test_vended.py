"""Credentials that a catalog gives for one table: which, for how long, and when they are renewed."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

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
    # in the past: obstore keeps nothing, and asks for each request
    assert given == {**expected, "expires_at": datetime.fromtimestamp(0, UTC)}
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
        name = f"t{len(self.calls)}"
        return Credentials(
            {"access_key_id": name, "secret_access_key": "s", "token": name},
            None if self.lifetime is None else self.now + self.lifetime,
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
    with pytest.raises(AccessDeniedError, match=r"no credentials \(the catalog does not let FDS read it\)") as caught:
        storage.head("a")
    assert caught.value.reason_code == "CATALOG_DENIED"


class RefusingStore:
    """A bucket of S3 with objects of three bytes, which refuses keys.

    Attributes:
        refused: The keys that it refuses.
        keys: The key of each request.
    """

    def __init__(self):
        self.refused, self.keys = set(), []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Say nothing."""

            def do_GET(self):
                store.answer(self)

            do_HEAD = do_GET  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def options(self, provider):
        endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        return {"endpoint": endpoint, "allow_http": True, "region": "x", "credential_provider": provider}

    def answer(self, request):
        key = re.search(r"Credential=([^/]+)/", request.headers["authorization"])[1]
        self.keys.append(key)
        parts = urlsplit(request.path)
        status, content, headers = 200, b"abc", {"etag": '"e"', "last-modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        if key in self.refused:
            # as S3 answers an expired token
            status, content = 400, b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
        elif "list-type" in parts.query:
            item = "<Key>t/a</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>3</Size>"
            after = "start-after" in parts.query
            content = (
                "<ListBucketResult><IsTruncated>false</IsTruncated>"
                f"{'' if after else f'<Contents>{item}</Contents>'}</ListBucketResult>"
            ).encode()
        elif (wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))) is not None:
            first, last = int(wanted[1]), min(int(wanted[2]), 2)
            status, content = 206, b"abc"[first : last + 1]
            headers["content-range"] = f"bytes {first}-{last}/3"
        request.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)


@pytest.fixture
def store():
    store = RefusingStore()
    yield store
    store.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda storage: storage.head("a").size_bytes,
        lambda storage: asyncio.run(storage.head_async("a")).size_bytes,
        lambda storage: len(storage.get("a")[0]),
        lambda storage: len(b"".join(storage.stream("a"))),
        lambda storage: len(storage.open("a").read()),
        lambda storage: next(iter(storage.list_after(""))).size_bytes,
        lambda storage: len(storage.list_folders("")) + 3,
    ],
)
def test_a_read_with_refused_credentials_is_repeated_once_with_fresh_ones(store, read):
    clocked = Clocked(3600.0)
    storage = open_storage("s3://lake/t", store.options(clocked.provider))
    clocked.provider.current()
    store.refused = {"t1"}
    assert read(storage) == 3
    assert (clocked.calls, store.keys[:2]) == ([0.0, 0.0], ["t1", "t2"])
    store.refused |= {"t2", "t3"}
    store.keys.clear()
    with pytest.raises(AccessDeniedError):
        read(storage)
    assert (len(clocked.calls), store.keys) == (3, ["t2", "t3"])


def test_credentials_that_are_refused_in_the_middle_of_a_file_are_renewed(store):
    clocked = Clocked(3600.0)
    storage = open_storage("s3://lake/t", store.options(clocked.provider))
    with storage.open("a") as file:
        store.refused = {"t1"}
        assert file.read() == b"abc"
    assert store.keys == ["t1", "t1", "t2"]


def test_many_reads_that_are_refused_at_once_renew_once(store):
    clocked = Clocked(3600.0)
    storage = open_storage("s3://lake/t", store.options(clocked.provider))
    clocked.provider.current()
    store.refused = {"t1"}
    with ThreadPoolExecutor(16) as threads:
        assert [content for content, _ in threads.map(storage.get, ["a"] * 64)] == [b"abc"] * 64
    assert len(clocked.calls) == 2


def test_other_reads_than_those_of_a_catalog_are_not_repeated(store):
    storage = open_storage("s3://lake/t", store.options(lambda: Clocked(3600.0).provider()))
    store.refused = {"t1"}
    with pytest.raises(AccessDeniedError):
        storage.get("a")
    assert store.keys == ["t1"]


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
