"""A table that its catalog has moved, and for whose files only the catalog gives keys."""

from __future__ import annotations

import json
from itertools import count

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.fds_command import airflow_fds
from tests.interop.s3_server import Server
from tests.interop.s3_vending import TABLES, Vending, write
from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

_NUMBERS = count(1)

ACCEPT_TEXT = """
    from datetime import datetime
    from airflow.sdk import DAG
    from airflow_provider_fds import DeltaStreamActionOperator

    with DAG("accepts", schedule=None, start_date=datetime(2026, 1, 1)):
        DeltaStreamActionOperator(
            task_id="act", stream="orders", action="accept", moved_to="{to}", why="the bucket was full",
            storage_conn_id="aws_lake",
        )
"""


@pytest.fixture
def vending(installation, monkeypatch):
    server, catalog = Server(), UnityServer()
    # servers of one process share what they keep
    server.new_bucket(f"moves-{next(_NUMBERS)}")
    extra = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
    lake = {"conn_type": "aws", "login": "key-of-lake", "password": "Lake/Secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", json.dumps(lake))
    unity = {"conn_type": "fds_unity", "host": catalog.url, "password": "TOKEN-hidden"}
    monkeypatch.setenv("AIRFLOW_CONN_UNITY", json.dumps(unity))
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", f"s3://{server.bucket}/staging")
    monkeypatch.setenv("AIRFLOW__FDS__DEPLOYMENT", "http://fds.test")
    yield Vending(catalog, server)
    catalog.close()
    server.stop()


def storage_options(server):
    options = {"endpoint": server.endpoint, "region": "us-east-1", "access_key_id": "key-of-lake"}
    pairs = {**options, "secret_access_key": "Lake/Secret"}.items()
    return [word for key, value in pairs for word in ("--storage-option", f"{key}={value}")]


def move(vending, *, renamed):
    """Move the table to another folder, as a catalog does; return the folder and the name that it has then."""
    here, there = f"s3://{vending.bucket}/orders", vending.add("moved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vending.s3, "is_valid_key", None)
        before, after = (open_storage(uri, vending.s3.options()) for uri in (here, there))
        for key in vending.s3.keys(vending.bucket):
            _, _, path = key.partition("/")
            after.put(path, before.get(path)[0])
            before.delete(path)
    body = recorded("15_external_load")
    body["metadata"] |= {"location": there, "table-uuid": "id-of-orders"}
    name = "moved" if renamed else "orders"
    keys = vending.catalog.replies[f"GET {TABLES}/moved/credentials"]
    for path in ("orders", "orders/credentials", "moved", "moved/credentials"):
        del vending.catalog.replies[f"GET {TABLES}/{path}"]
    vending.catalog.replies |= {f"GET {TABLES}/{name}": Reply(200, body), f"GET {TABLES}/{name}/credentials": keys}
    return there, f"main.sales.{name}"


@pytest.mark.parametrize("way", ["task", "command"])
@pytest.mark.parametrize("renamed", [False, True], ids=["moved", "renamed"])
def test_it_is_accepted_with_the_keys_that_its_catalog_gives(installation, vending, way, renamed):
    write(vending.s3, vending.add("orders"), 1)
    vending.s3.is_valid_key = vending.is_valid
    source = ("main.sales.orders", "--catalog", "unity", "--stream", "orders", "--option", "starting_version=latest")
    planned = airflow_fds("plan", *source, *storage_options(vending.s3))
    assert planned.returncode == 0, planned.stderr
    there, name = move(vending, renamed=renamed)
    stopped = airflow_fds("plan", name, *source[1:], *storage_options(vending.s3))
    assert f"its catalog has moved that table to {there}" in stopped.stderr
    assert not vending.refused

    to = name if renamed else there
    if way == "task":
        assert installation.run(installation.add(ACCEPT_TEXT.format(to=to))).state("act") == "success"
    else:
        words = ("accept", "orders", "--moved-to", to, "--why", "the bucket was full", "--yes")
        accepted = airflow_fds(*words, *storage_options(vending.s3))
        assert accepted.returncode == 0, accepted.stderr
    assert not vending.refused
    assert (
        Ledger(open_storage(f"s3://{vending.s3.bucket}/staging", vending.s3.options()), "orders").find().table == there
    )
