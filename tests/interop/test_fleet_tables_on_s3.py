"""The tables of a pattern in a bucket of a real S3 server (moto) on the loopback."""

from __future__ import annotations

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.fleet.discovery import find_tables
from airflow_provider_fds.fleet.table_pattern import TablePattern


def test_the_tables_of_a_pattern_are_found_in_a_bucket(server):
    options = server.options()
    lake = open_storage(f"s3://{server.bucket}/lake", options)
    for table in ("crm/orders", "crm/a b", "erp/orders", "erp/deep/lines"):
        lake.put(f"{table}/_delta_log/{0:020}.json", b"{}")
    lake.put("crm/files/part-0.parquet", b"1")
    lake.put("_trash/orders/_delta_log/0.json", b"{}")
    staging = open_storage(f"s3://{server.bucket}/staging", options)
    pattern = TablePattern(
        f"s3://{server.bucket}/lake/*/*", sink={"uri": "s3://bronze/{schema}/{table}"}, exclude=["a b"]
    )

    def find():
        server.requests.clear()
        return find_tables([pattern], [], lambda uri: open_storage(uri, options), staging, "dag.load")

    found = find()
    assert [(one.name, one.stream.table, one.sink.uri) for one in found.streams] == [
        ("crm.orders", f"s3://{server.bucket}/lake/crm/orders", "s3://bronze/crm/orders"),
        ("erp.orders", f"s3://{server.bucket}/lake/erp/orders", "s3://bronze/erp/orders"),
    ]
    assert found.messages() == []
    # three folders are listed, four candidates checked; the record is read and written
    assert server.requests == {"LIST": 7, "GET": 1, "PUT": 1}
    lake.delete_folder("erp/orders")
    found = find()
    assert [one.name for one in found.streams] == ["crm.orders"]
    assert "is gone" in found.messages()[0]
    # the known table is not checked again
    assert server.requests == {"LIST": 5, "GET": 1}
