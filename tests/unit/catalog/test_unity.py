"""Unity Catalog, against the recorded answers of a real server, and what the specification allows besides."""

from __future__ import annotations

import builtins
import json
import time
from dataclasses import replace

import pytest

from airflow_provider_fds.catalog import unity_http
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.sinks import SinkPlaces
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.catalog.unity_http import Login, UnityHttp
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place
from airflow_provider_fds.errors import (
    AccessDeniedError,
    ConfigurationError,
    FdsError,
    StorageError,
    TableNotFoundError,
)
from airflow_provider_fds.sinks import DeltaAppendSink
from tests.unit.catalog.test_log_view import Managed
from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

ORDERS = TableName.parse("main.sales.orders")
EVENTS = TableName.parse("main.sales.events")
API = "GET /delta/v1/catalogs/main/schemas/sales/tables/"
TOKEN = "dapi-very-secret-1234567890"


@pytest.fixture
def server():
    server = UnityServer()
    yield server
    server.close()


@pytest.fixture
def catalog(server):
    return UnityCatalog(server.url, token=TOKEN, timeout_seconds=3, conn_id="unity")


def error(status, message="no", kind="SomeException", **headers):
    return Reply(status, {"error": {"message": message, "type": kind, "code": status}}, **headers)


def test_an_external_table_is_a_folder_and_an_id(catalog, server):
    found = catalog.load(ORDERS)
    body = recorded("15_external_load")["metadata"]
    assert (found.location, found.table_id) == (body["location"], body["table-uuid"])
    assert (found.name, found.options, found.view) == (ORDERS, {}, None)
    assert {authorization for _, _, _, authorization, _ in server.requests} == {f"Bearer {TOKEN}"}
    catalog.load(ORDERS)
    assert server.paths() == ["GET /delta/v1/config", f"{API}orders", f"{API}orders"]


@pytest.mark.parametrize("newest_first", [False, True])
def test_the_log_of_a_managed_table_is_what_the_catalog_says(catalog, server, log_builder, newest_first):
    table = Managed(log_builder)
    serve(server, table, newest_first=newest_first)
    places = CatalogPlaces(catalog, lambda _: {})
    log = DeltaLog(open_place(places.resolve("main.sales.events")))
    assert (log.latest(), [commit.version for commit in log.commits(0, 5)]) == (5, [0, 1, 2, 3, 4, 5])
    before = len(server.requests)
    assert not log.probe(6)
    assert len(server.requests) == before + 1
    table.commit()
    serve(server, table, newest_first=newest_first)
    assert log.latest(5) == 6


def serve(server, table, *, newest_first=False, **changes):
    """Serve a handmade table as the recorded managed one."""
    body = recorded("39_managed_load_v3")
    body["metadata"] |= {"location": table.builder.uri, **changes}
    body["commits"] = [
        {
            "version": commit.version,
            "file-name": commit.name,
            "file-size": commit.size_bytes,
            "file-modification-timestamp": commit.modified_ms,
            "timestamp": 0,
        }
        for commit in sorted(table.tip.staged.values(), key=lambda one: one.version, reverse=newest_first)
    ]
    body["latest-table-version"] = table.tip.latest
    server.replies[f"{API}events"] = Reply(200, body)


def test_a_table_that_is_created_anew_under_an_open_view_is_noticed(catalog, server, log_builder):
    table = Managed(log_builder)
    serve(server, table)
    log = DeltaLog(open_place(CatalogPlaces(catalog, lambda _: {}).resolve("main.sales.events")))
    assert log.latest() == 5
    serve(server, table, **{"table-uuid": "another"})
    with pytest.raises(StorageError, match="created anew or moved"):
        log.latest(5)


@pytest.mark.parametrize("token_url", ["ftp://nowhere", "http://[", "https://user:very-secret@host/token"])
def test_a_token_service_at_no_url_is_refused_before_a_request(token_url):
    given = {"client_id": "i", "client_secret": "s", "token_url": token_url}
    with pytest.raises(ConfigurationError, match=r"the host of the token service \(token_url\) is") as caught:
        UnityCatalog("https://unity.example", **given)
    assert "very-secret" not in str(caught.value)


def test_a_location_that_no_store_has_names_the_table(catalog, server):
    body = recorded("15_external_load")
    body["metadata"] |= {"location": "dbfs:/user/hive/t"}
    server.replies[f"{API}orders"] = Reply(200, body)
    with pytest.raises(ConfigurationError, match=r"sales\.orders in Unity Catalog .* at a location that FDS cannot"):
        catalog.load(ORDERS)


def changed(**changes):
    body = recorded("39_managed_load_v3")
    body["commits"][-1] |= {name.replace("_", "-"): value for name, value in changes.items()}
    return Reply(200, body)


def without_latest():
    body = recorded("39_managed_load_v3")
    del body["latest-table-version"]
    return Reply(200, body)


def typed(kind):
    body = recorded("15_external_load")
    body["metadata"] |= {"table-type": kind, "location": None}
    return Reply(200, body)


@pytest.mark.parametrize(
    ("reply", "kind", "reason", "text"),
    [
        (error(404, kind="NotFoundException"), ConfigurationError, "NOT_FOUND", "has no table"),
        (error(404, kind="NoSuchTableException"), ConfigurationError, "NOT_FOUND", "has no table"),
        (error(404, kind="NoSuchCatalogException"), ConfigurationError, "NOT_FOUND", "has no table"),
        (Reply(404, b""), ConfigurationError, "NOT_FOUND", "has no table"),
        (error(401), AccessDeniedError, "DENIED", "Renew the token"),
        (error(403), AccessDeniedError, "DENIED", "Grant SELECT .* USE SCHEMA .* USE CATALOG"),
        (error(501), StorageError, "UNAVAILABLE", "answers 501"),
        (Reply(303, b"", location="https://login.example/sso?secret=x"), StorageError, "UNAVAILABLE", "login.example"),
        (Reply(200, b"<html>", content_type="text/html"), StorageError, "UNAVAILABLE", "no JSON object .text/html"),
        (Reply(200, [1]), StorageError, "UNAVAILABLE", "no JSON object"),
        (Reply(200, {}), StorageError, "UNAVAILABLE", "without the table's metadata"),
        (Reply(200, b"[" * 100_000), StorageError, "UNAVAILABLE", "no JSON object"),
        (typed("VIEW"), ConfigurationError, "UNREADABLE", "is a view"),
        (typed("FOREIGN"), ConfigurationError, "UNREADABLE", "a foreign table"),
        (typed("STREAMING_TABLE"), ConfigurationError, "UNREADABLE", "a streaming table"),
        (typed("MATERIALIZED_VIEW"), ConfigurationError, "UNREADABLE", "a materialized view"),
        (typed("NEW_KIND"), ConfigurationError, "UNREADABLE", "of the type NEW_KIND"),
        (typed("EXTERNAL"), ConfigurationError, "UNREADABLE", "without a folder"),
        (changed(file_name=None), ConfigurationError, "UNREADABLE", "a commit that is in no file .version 3"),
        (changed(file_name="../../secret.json"), StorageError, "UNAVAILABLE", "version 3 that is not named so"),
        (changed(version=9), StorageError, "UNAVAILABLE", "version 9"),
        (changed(version=-1), StorageError, "UNAVAILABLE", "a commit without version"),
        (changed(file_size=0), StorageError, "UNAVAILABLE", "without the size"),
        (without_latest(), StorageError, "UNAVAILABLE", "without the latest version"),
    ],
)
def test_a_wrong_answer_is_an_error_in_words(catalog, server, reply, kind, reason, text):
    server.replies[f"{API}events"] = reply
    with pytest.raises(kind, match=text) as caught:
        catalog.load(EVENTS)
    assert caught.value.reason_code.endswith(reason)
    assert caught.value.retryable == (reason == "UNAVAILABLE")
    assert "main.sales.events" in str(caught.value)
    assert "'unity'" in str(caught.value)
    assert TOKEN not in f"{caught.value!r} {catalog!r} {catalog.__dict__!r}"
    assert "secret=" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 400])
def test_what_is_not_delta_is_named(catalog, server, status):
    # the real server answers 200 without protocol, the specification 400
    reply = Reply(200, recorded("17_csv_load")) if status == 200 else error(400, kind="UnsupportedTableFormatException")
    server.replies[f"{API}csvs"] = reply
    server.replies["GET /tables/main.sales.csvs"] = Reply(200, recorded("12_csv_create_rest"))
    with pytest.raises(ConfigurationError, match="a table of the format CSV"):
        catalog.load(TableName.parse("main.sales.csvs"))


def test_a_catalog_without_the_api_for_delta_is_asked_by_the_older_one(catalog, server):
    server.replies["GET /delta/v1/config"] = Reply(404, b"")
    found = catalog.load(ORDERS)
    assert (found.location, found.table_id) == ("file:///data/ext/orders", "01a211bd-aec0-78c3-b1e8-f16af010df8d")
    managed = recorded("16_external_rest_get")
    managed["properties"]["delta.feature.catalogManaged"] = "supported"
    server.replies["GET /tables/main.sales.orders"] = Reply(200, managed)
    with pytest.raises(ConfigurationError, match="newest commits only the catalog knows"):
        catalog.load(ORDERS)
    server.replies["GET /tables/main.sales.orders"] = Reply(200, {**recorded("16_external_rest_get"), "row_filter": {}})
    catalog.load(ORDERS)
    filtered = {**recorded("16_external_rest_get"), "row_filter": {"function_name": "f"}}
    server.replies["GET /tables/main.sales.orders"] = Reply(200, filtered)
    with pytest.raises(ConfigurationError, match="row filter"):
        catalog.load(ORDERS)


def test_a_catalog_of_another_version_is_refused(catalog, server):
    server.replies["GET /delta/v1/config"] = Reply(400, recorded("08_config_no_common_version"))
    with pytest.raises(ConfigurationError, match="refuses version 1"):
        catalog.load(ORDERS)


@pytest.mark.parametrize("name", ["orders", "sales.orders", "a.b.c.d"])
def test_a_name_has_three_parts(catalog, server, name):
    with pytest.raises(ConfigurationError, match=r"<catalog>\.<schema>\.<table>"):
        catalog.load(TableName.parse(name))
    assert server.requests == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_catalog_is_asked_again(catalog, server, status):
    good = server.replies[f"{API}orders"]
    server.replies[f"{API}orders"] = [error(status, retry_after="0"), error(status, retry_after="0"), good]
    assert catalog.load(ORDERS).location == "file:///data/ext/orders"
    server.replies[f"{API}orders"] = error(status, retry_after="100")
    begun = time.monotonic()
    with pytest.raises(StorageError, match=f"answers {status} .no., and asks to wait for 100 s") as caught:
        catalog.load(ORDERS)
    assert caught.value.retryable
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("after", ["Fri, 01 Jan 2100 00:00:00 GMT", "soon", "-1", "1e9", "9" * 400])
def test_a_wait_that_the_catalog_asks_for_is_bounded(server, after):
    server.replies[f"{API}orders"] = error(429, retry_after=after)
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"answers 429|takes more than"):
        UnityCatalog(server.url, timeout_seconds=0.6).load(ORDERS)
    assert time.monotonic() - begun < 3


def test_an_answer_that_trickles_is_cut_off(server):
    server.replies[f"{API}orders"] = Reply(200, (time.sleep(0.05) or b" " for _ in range(200)))
    begun = time.monotonic()
    with pytest.raises(StorageError, match="takes more than"):
        UnityCatalog(server.url, timeout_seconds=0.6).load(ORDERS)
    assert time.monotonic() - begun < 3


def test_a_catalog_whose_api_for_delta_has_no_tables_is_asked_by_the_older_one(catalog, server):
    server.replies["GET /delta/v1/config"] = Reply(200, {"endpoints": ["GET /v1/other"], "protocol-version": "1.0"})
    assert catalog.load(ORDERS).location == "file:///data/ext/orders"
    assert server.paths()[-1] == "GET /tables/main.sales.orders"


@pytest.mark.parametrize("name", ["main.`..`.orders", "main.sales.`.`"])
def test_a_name_cannot_leave_its_place_in_the_path(catalog, server, name):
    with pytest.raises(ConfigurationError, match="has no table"):
        catalog.load(TableName.parse(name))
    assert server.requests == []


def test_a_part_with_other_characters_is_encoded(catalog, server):
    with pytest.raises(ConfigurationError, match="has no table"):
        catalog.load(TableName.parse("main.`a/b?c`.`ü`"))
    assert "GET /delta/v1/catalogs/main/schemas/a%2Fb%3Fc/tables/%C3%BC" in server.paths()


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([], "It shows no catalog nope to this connection"),
        (["catalogs/nope"], r"It shows no schema nope\.sales to this connection"),
        (["catalogs/nope", "schemas/nope.sales"], "if the table was renamed, use its new name"),
    ],
)
def test_the_part_of_a_name_that_is_missing_is_named(catalog, server, there, words):
    for path in there:
        server.replies[f"GET /{path}"] = Reply(200, {})
    with pytest.raises(ConfigurationError, match=rf"has no table nope\.sales\.orders\. .*{words}"):
        catalog.load(TableName.parse("nope.sales.orders"))


def test_a_schema_without_tables_is_told_from_one_that_is_missing(catalog, server):
    server.replies["GET /tables"] = Reply(200, {"tables": []})
    server.replies["GET /catalogs/main"] = Reply(200, {})
    with pytest.raises(ConfigurationError, match=r"It shows no schema main\.sales"):
        catalog.tables(TableName.parse("main.sales"))
    server.replies["GET /schemas/main.sales"] = Reply(200, {})
    assert catalog.tables(TableName.parse("main.sales")) == []


def test_a_catalog_that_is_not_there_is_unavailable():
    catalog = UnityCatalog("http://127.0.0.1:9", token=TOKEN, timeout_seconds=0.3)
    with pytest.raises(StorageError, match="ConnectError") as caught:
        catalog.load(ORDERS)
    assert caught.value.reason_code == "CATALOG_UNAVAILABLE"


def test_an_answer_that_does_not_end_is_cut_off(catalog, server, monkeypatch):
    monkeypatch.setattr(unity_http, "MOST_BYTES", 1 << 20)
    server.replies[f"{API}orders"] = Reply(200, (b" " * 65_536 for _ in range(10_000)))
    with pytest.raises(StorageError, match="more than 1 MB"):
        catalog.load(ORDERS)


def test_tables_are_listed_over_pages(catalog, server):
    second = {"tables": [{"name": "csvs"}, {"name": "orders"}, {"noname": 1}]}
    server.replies["GET /tables"] = [Reply(200, recorded("65_list_rest_tables")), Reply(200, second)]
    assert [str(name) for name in catalog.tables(TableName.parse("main.sales"))] == [
        "main.sales.csvs", "main.sales.orders", "main.sales.orders2",
    ]  # fmt: skip
    assert "page_token" in server.requests[-1][2]


def test_the_tables_of_a_schema_are_described_by_their_list_without_credentials(catalog, server):
    view = {"name": "v", "table_type": "VIEW"}
    only_by_the_catalog = {"name": "managed", "table_type": "MANAGED", "data_source_format": "DELTA", "table_id": "m"}
    only_by_the_catalog |= {
        "storage_location": "s3://lake/m",
        "properties": {"delta.feature.catalogManaged": "supported"},
    }
    second = {"tables": [{"name": "csvs", "data_source_format": "CSV"}, view, only_by_the_catalog]}
    server.replies["GET /tables"] = [Reply(200, recorded("65_list_rest_tables")), Reply(200, second)]
    found = {one.name.parts[2]: one for one in catalog.listed(TableName.parse("main.sales"))}
    assert {name: (one.location, one.table_id) for name, one in found.items() if not one.problem} == {
        "managed": ("s3://lake/m", "m"),
        "orders": ("file:///data/ext/orders", "01a211bd-aec0-78c3-b1e8-f16af010df8d"),
        "orders2": ("file:///data/ext/orders2", "01a211bd-aec2-77f3-9d67-01f7f023a8ba"),
    }
    assert ["is a view" in found["v"].problem, "format CSV" in found["csvs"].problem] == [True, True]
    assert set(server.paths()) == {"GET /tables"}


def test_a_client_gets_a_token_keeps_it_and_renews_it_once_when_it_is_refused(server):
    now = [0.0]
    http = UnityHttp(server.url, Login(client_id="me", client_secret="hidden-1"), clock=lambda: now[0])
    tokens = [Reply(200, {"access_token": f"t{n}", "expires_in": 3600}) for n in range(1, 9)]
    server.replies["POST /oidc/v1/token"] = tokens
    used = lambda: [auth for _, path, _, auth, _ in server.requests if "token" not in path]  # noqa: E731
    http.get("/tables")
    http.get("/tables")
    assert used() == ["Bearer t1", "Bearer t1"]
    now[0] = 3545.0
    http.get("/tables")
    assert used()[-1] == "Bearer t2"
    good = server.replies["GET /tables"]
    server.replies["GET /tables"] = [error(401), good]
    assert http.get("/tables").status == 200
    assert used()[-1] == "Bearer t3"
    server.replies["GET /tables"] = error(401)
    with pytest.raises(unity_http.RefusedError):
        http.get("/tables")
    assert "hidden-1" not in repr(http)


@pytest.mark.parametrize("status", [400, 401])
def test_a_client_that_the_token_service_refuses_is_denied(server, status):
    server.replies["POST /oidc/v1/token"] = Reply(status, {"error": "invalid_client"})
    catalog = UnityCatalog(server.url, client_id="me", client_secret="hidden-1")
    with pytest.raises(AccessDeniedError, match=f"token service answers {status}"):
        catalog.load(ORDERS)


@pytest.mark.parametrize(
    "body", [{}, {"access_token": ""}, {"access_token": "hidden-2\n"}, {"access_token": "hidden-é"}]
)
def test_an_answer_without_a_token_that_can_be_sent_is_none(server, body):
    server.replies["POST /oidc/v1/token"] = Reply(200, body)
    with pytest.raises(StorageError, match="token service answers 200 without a token") as caught:
        UnityCatalog(server.url, client_id="me", client_secret="hidden-1").load(ORDERS)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "https://",
        "https://me:pw@host",
        "https://host?token=x",
        "https://a..b",
        "https://ho st",
        "https://höst",
    ],
)
def test_a_host_that_is_none_is_refused(url):
    with pytest.raises(ConfigurationError, match="expected https://<host>") as caught:
        UnityCatalog(url)
    assert "pw" not in str(caught.value)


def test_without_the_extra_it_is_named(monkeypatch):
    def missing(name, *rest, **more):
        if name == "httpx":
            raise ImportError(name)
        return real(name, *rest, **more)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"airflow-provider-fds\[unity\]"):
        UnityCatalog("https://host")


@pytest.mark.parametrize("token", ["dapi-secret\n", "dapi-sécret"])
def test_a_token_that_no_request_can_carry_is_refused_and_not_shown(token):
    with pytest.raises(ConfigurationError, match="Paste it again") as caught:
        UnityCatalog("https://host", token=token)
    assert "dapi" not in str(caught.value)


@pytest.mark.parametrize("login", [{"client_id": "me"}, {"client_secret": "hidden-1"}])
def test_half_a_client_is_refused(login):
    with pytest.raises(ConfigurationError, match="only one of them") as caught:
        UnityCatalog("https://host", **login)
    assert "hidden-1" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 403, 501])
def test_an_answer_that_repeats_the_token_is_shown_without_it(catalog, server, status):
    server.replies[f"{API}orders"] = error(status, f"bad {TOKEN} given")
    server.replies["GET /tables/main.sales.orders"] = error(status, f"bad {TOKEN} given")
    with pytest.raises((AccessDeniedError, StorageError), match=r"bad \S+ given") as caught:
        catalog.load(ORDERS)
    assert TOKEN not in str(caught.value)


def test_an_answer_that_cannot_be_decompressed_is_none(server):
    catalog = UnityCatalog(server.url, timeout_seconds=1.5)
    server.replies[f"{API}orders"] = Reply(200, b"no gzip", content_encoding="gzip")
    with pytest.raises(StorageError, match="DecodingError"):
        catalog.load(ORDERS)


def test_an_external_table_is_a_sink_without_credentials_of_the_catalog(catalog, server):
    found = catalog.load_sink(ORDERS)
    assert (found.location, found.options, found.view) == (catalog.load(ORDERS).location, {}, None)
    assert not [path for path in server.paths() if "credentials" in path]


def test_a_table_that_the_catalog_manages_is_no_sink(catalog, server, log_builder):
    serve(server, Managed(log_builder))
    with pytest.raises(ConfigurationError, match=r"the catalog's own connector .*UCSingleCatalog.*external") as caught:
        catalog.load_sink(EVENTS)
    assert caught.value.reason_code == "CATALOG_TABLE_UNWRITABLE"
    for part in ("main.sales.events", "connection 'unity'", "Hive metastore or Glue"):
        assert part in str(caught.value)


def test_a_managed_table_with_a_log_of_its_own_is_no_sink(catalog, server):
    body = recorded("15_external_load")
    body["metadata"]["table-type"] = "MANAGED"
    server.replies[f"{API}orders"] = Reply(200, body)
    assert catalog.load(ORDERS)
    with pytest.raises(ConfigurationError, match="it is a managed table, into whose folder only clients of the cat"):
        catalog.load_sink(ORDERS)


def test_a_sink_is_opened_with_the_storage_connection(catalog, server):
    sink = DeltaAppendSink("main.sales.orders", catalog_conn_id="unity")
    place = SinkPlaces(catalog, lambda uri: {"of": uri}, sink).resolve(sink.table_uri)
    location = recorded("15_external_load")["metadata"]["location"]
    assert (place.uri, place.options, place.register) == (location, {"of": location}, None)


TABLE = Metadata(
    "1",
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "integer", "nullable": False, "metadata": {"comment": "key"}},
                {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
                {
                    "name": "lines",
                    "type": {
                        "type": "map",
                        "keyType": "string",
                        "valueType": {
                            "type": "array",
                            "elementType": {"type": "struct", "fields": [{"name": "sku", "type": "long"}]},
                        },
                    },
                },
                {"name": "day", "type": "date", "nullable": True, "metadata": {}},
            ],
        }
    ),
    partitionColumns=("day",),
)
NOPE = TableName(("main", "sales", "nope"))


def test_a_missing_table_needs_a_location_and_a_schema(catalog, server):
    server.replies["GET /schemas/main.sales"] = Reply(200, {"name": "sales"})
    missing = DeltaAppendSink("main.sales.nope", catalog_conn_id="unity", create=True)
    with pytest.raises(
        ConfigurationError, match=r"main\.sales\.nope .*no folder for new tables\. Set location"
    ) as caught:
        SinkPlaces(catalog, lambda _: {}, missing).resolve(missing.table_uri)
    assert caught.value.reason_code == "CATALOG_TABLE_UNWRITABLE"
    placed = replace(missing, location="s3://lake/nope")
    assert SinkPlaces(catalog, lambda _: {}, placed).resolve(placed.table_uri).uri == "s3://lake/nope"
    del server.replies["GET /schemas/main.sales"]
    with pytest.raises(TableNotFoundError, match=r"It shows no (catalog main|schema main\.sales) to this connection"):
        SinkPlaces(catalog, lambda _: {}, placed).resolve(placed.table_uri)


def test_a_table_is_registered_with_its_columns(catalog, server):
    server.replies["POST /tables"] = Reply(200, recorded("11_external_create_rest"))
    catalog.register(NOPE, "s3://lake/nope", TABLE)
    body = json.loads(server.requests[-1][-1])
    columns = body.pop("columns")
    assert body == {
        "name": "nope",
        "catalog_name": "main",
        "schema_name": "sales",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": "s3://lake/nope",
    }
    assert [(one["name"], one["type_text"], one["type_name"], one["position"]) for one in columns] == [
        ("id", "int", "INT", 0),
        ("price", "decimal(10,2)", "DECIMAL", 1),
        ("lines", "map<string,array<struct<sku:bigint>>>", "MAP", 2),
        ("day", "date", "DATE", 3),
    ]
    assert [json.loads(one["type_json"])["name"] for one in columns] == ["id", "price", "lines", "day"]
    assert (columns[0]["nullable"], columns[0]["comment"], columns[3]["partition_index"]) == (False, "key", 0)
    assert (columns[1]["type_precision"], columns[1]["type_scale"]) == (10, 2)


@pytest.mark.parametrize("status", [400, 409])
def test_a_table_that_is_registered_already_is_left_as_it_is(catalog, server, status):
    server.replies["POST /tables"] = Reply(status, {"message": "exists"})
    server.replies["GET /tables/main.sales.nope"] = Reply(200, recorded("16_external_rest_get"))
    catalog.register(NOPE, "s3://lake/nope", TABLE)


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (
            400,
            "CATALOG_TABLE_UNWRITABLE",
            r"does not take the table at s3://lake/nope: it answers 400 \(no\)\. Its rows",
        ),
        (403, "CATALOG_DENIED", "does not let FDS create main.sales.nope.*Grant CREATE TABLE"),
        (404, "CATALOG_TABLE_NOT_FOUND", "main.sales.nope"),
        (501, "CATALOG_UNAVAILABLE", "it answers 501"),
    ],
)
def test_a_table_that_cannot_be_registered_says_why(catalog, server, status, reason, says):
    server.replies["POST /tables"] = Reply(status, {"message": "no"})
    with pytest.raises(FdsError, match=says) as caught:
        catalog.register(NOPE, "s3://lake/nope", TABLE)
    assert caught.value.reason_code == reason
