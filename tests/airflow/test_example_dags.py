"""Each DAG in ``dags/``, run for real: Airflow's own task processes, spark-submit on ``local[1]``."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def example_lake(lake, monkeypatch):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    return lake


def test_orders_to_bronze_loads_what_is_there_and_tells_the_consumer(installation, lake):
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    installation.add_example("orders_consumer")
    run = installation.run(installation.add_example("orders_to_bronze"))

    assert run.states == {("wait", -1): "success", ("ingest", -1): "success"}
    assert run.xcom("wait") == 1
    result = run.xcom("ingest")
    assert lake.ids("bronze/orders") == [1, 2, 3]
    assert (result["rows"], result["batches"], result["sink_version"]) == (3, 1, 0)
