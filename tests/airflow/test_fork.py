"""A fork in real runs: a second sink, fed by its own task from where the live stream is."""

from __future__ import annotations

DAG_FILE = """
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

orders = DeltaStream("orders_forked", table="{lake}/orders", starting_version=0)

with DAG("{name}", schedule=None):
    DeltaIngestOperator(
        task_id="load",
        stream={stream},
        sink=DeltaAppendSink("{lake}/{sink}"),
    )
"""


def test_a_fork_feeds_a_second_sink_from_where_its_stream_is(installation, on_server, lake):
    lake.append("orders", 0)
    live = installation.add(DAG_FILE.format(lake=lake.uri, name="live", stream="orders", sink="bronze"))
    fork = DAG_FILE.format(lake=lake.uri, name="fork", stream="orders.fork('orders_audit')", sink="audit")
    audit = installation.add(fork)
    # it is declared before its stream has begun
    assert installation.run(audit).state("load") == "failed"
    assert installation.run(live).xcom("load")["rows"] == 1
    lake.append("orders", 1)

    result = installation.run(audit).xcom("load")
    assert (result["stream"], result["rows"]) == ("orders_audit", 1)
    assert "warnings" not in result or not result["warnings"]
    assert lake.ids("audit") == [1]
    assert installation.run(audit).state("load") == "skipped"
    assert lake.ids("bronze") == [0]
    same = installation.add(fork.replace("/audit", "/bronze").replace("'orders_audit'", "'orders_again'"))
    assert installation.run(same).state("load") == "failed"
    assert lake.ids("bronze") == [0]
