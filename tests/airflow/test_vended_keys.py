"""A fleet with tables of a catalog that gives keys for each of them, all in one bucket."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        os.environ.get("FDS_S3") != "1",
        reason="Spark's S3 file system is a large download, so only `make s3` has it",
    ),
]

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, DeltaStream, FleetStream

def stream(name, **where):
    source = DeltaStream(
        name, starting_version="earliest", staging="s3://lake/staging", storage_conn_id="aws_lake", **where
    )
    return FleetStream(source, DeltaAppendSink(f"s3://lake/bronze/{name}", storage_conn_id="aws_lake"))

with DAG("vended", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaFleetOperator(
        task_id="load",
        streams=[
            stream("orders", table="main.sales.orders", catalog_conn_id="unity"),
            stream("returns", table="main.sales.returns", catalog_conn_id="unity"),
            stream("visits", table="s3://lake/visits"),
        ],
    )
"""


@pytest.fixture
def vending(monkeypatch):
    from tests.interop.s3_server import Server
    from tests.interop.s3_vending import Vending
    from tests.unit.catalog.unity_server import UnityServer

    server, catalog = Server(), UnityServer()
    server.new_bucket("lake")
    extra = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
    lake = {"conn_type": "aws", "login": "key-of-lake", "password": "Lake/Secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", json.dumps(lake))
    unity = {"conn_type": "fds_unity", "host": catalog.url, "password": "TOKEN-hidden"}
    monkeypatch.setenv("AIRFLOW_CONN_UNITY", json.dumps(unity))
    yield Vending(catalog, server)
    catalog.close()
    server.stop()


def test_each_table_is_read_with_its_own_keys_and_all_rows_are_loaded(installation, vending, capfd, caplog):
    from tests.interop.s3_vending import read_ids, write

    server = vending.s3
    for n, uri in enumerate((vending.add("orders"), vending.add("returns"), "s3://lake/visits")):
        write(server, uri, n, 10 + n)
    server.is_valid_key = vending.is_valid

    run = installation.run(installation.add(DAG_TEXT))

    assert run.state("load") == "success"
    for n, name in enumerate(("orders", "returns", "visits")):
        assert read_ids(server, f"s3://lake/bronze/{name}") == [n, 10 + n]
    assert not vending.refused
    # data is read with keys for its own table, and with none that the storage connection has
    assert {key.split("-")[1] for key in vending.used[True]} == {"orders", "returns"}
    assert vending.mixed == set()
    said = caplog.text + "".join(capfd.readouterr())
    assert "Loading 2 batches of 2 streams" in said
    assert "Loading 1 batches of 1 streams" in said
    assert "hidden" not in said + json.dumps(run.xcom("load"))
