"""A table of a catalog that gives keys for some seconds: planner and Spark ask for new ones while they work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.interop.s3_vending import Vending, read_ids, write
from tests.unit.catalog.unity_server import UnityServer

LEAD_SECONDS = 2.0
COMMITS = 12

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def vending(server):
    catalog = UnityServer()
    yield Vending(catalog, server)
    catalog.close()


def run(server, catalog: UnityServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "FDS_CATALOG_TOKEN": "TOKEN-hidden"}
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", "run", *arguments]
    command += ["--catalog", catalog.url, "--storage-option", f"endpoint={server.endpoint}"]
    command += ["--storage-option", "region=us-east-1", "--output", "json"]
    command += ["--conf", f"spark.hadoop.fs.unitycatalog.renewal.leadTimeMillis={LEAD_SECONDS * 1000:.0f}"]
    done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True, timeout=900, check=False)
    print(done.stdout, done.stderr)
    return done


def test_planner_and_spark_renew_the_keys_of_a_catalog_before_they_expire(vending, server):
    source = vending.add("orders")
    for n in range(COMMITS):
        write(server, source, 2 * n, 2 * n + 1)
    server.is_valid_key = vending.is_valid
    sink = f"s3://{server.bucket}/bronze/orders"
    done = run(
        server, vending.catalog, "main.sales.orders", "--stream", "orders", "--sink", sink,
        "--staging", f"s3://{server.bucket}/staging",
        "--option", "starting_version=0", "--option", "max_versions_per_batch=1",
    )  # fmt: skip

    assert done.returncode == 0
    assert read_ids(server, sink) == list(range(2 * COMMITS))
    assert not vending.refused
    assert len(vending.used[True]) > 2
    assert len(vending.used[False]) > 2
    # the sink is written with the keys of the storage, and nothing tells a secret
    assert not set(server.keys_by_bucket[server.bucket]) & set(vending.given)
    assert "hidden" not in done.stdout + done.stderr
