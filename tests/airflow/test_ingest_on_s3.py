"""``DeltaIngestOperator`` with the stream in one bucket, the sink in another, each with a connection of its own."""

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

SECRETS = {"lake": "Lake/Secret+Word", "gold": "Gold/Secret+Word"}

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("s3", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream(
            "s3", table="s3://lake/orders", starting_version="earliest", staging="s3://lake/staging",
            storage_conn_id="aws_lake",
        ),
        sink=DeltaAppendSink("s3://gold/orders", storage_conn_id="aws_gold"),
    )
"""


@pytest.fixture
def server(monkeypatch):
    from tests.interop.s3_server import Server

    server = Server()
    for bucket, secret in SECRETS.items():
        server.new_bucket(bucket)
        extra = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
        connection = {"conn_type": "aws", "login": f"key-of-{bucket}", "password": secret, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_AWS_{bucket.upper()}", json.dumps(connection))
    yield server
    server.stop()


def test_each_bucket_is_reached_with_the_keys_of_its_own_connection(installation, server, tmp_path, monkeypatch, capfd):
    import deltalake
    import pyarrow as pa

    options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    options |= {"AWS_ACCESS_KEY_ID": "key-of-lake", "AWS_SECRET_ACCESS_KEY": "any", "aws_conditional_put": "etag"}
    deltalake.write_deltalake("s3://lake/orders", pa.table({"id": [1, 2, 3]}), storage_options=options)
    server.keys_by_bucket.clear()

    run = installation.run(installation.add(DAG_TEXT))

    assert run.state("ingest") == "success"
    assert run.xcom("ingest")["rows"] == 3
    assert {bucket: set(keys) for bucket, keys in server.keys_by_bucket.items()} == {
        "lake": {"key-of-lake"},
        "gold": {"key-of-gold"},
    }
    written = deltalake.DeltaTable("s3://gold/orders", storage_options=options)
    assert sorted(written.to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]
    # neither in a log line nor in what the task leaves behind
    said = "".join(capfd.readouterr())
    assert "spark-submit" in said
    assert not any(secret in said or secret in json.dumps(run.xcom("ingest")) for secret in SECRETS.values())
