"""A DAG that runs when the sink of ``orders_to_bronze`` has new rows.

The event's ``extra`` describes them: batches, versions and rows committed since the previous event. Events leave no
gap, even after a failure. A consumer that reads the sink itself should use its own stream.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Asset, task

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

bronze_orders = Asset(f"{LAKE}/bronze/orders")

with DAG("orders_consumer", schedule=[bronze_orders], start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):

    @task(inlets=[bronze_orders])
    def report(*, inlet_events: Any) -> dict[str, Any]:
        """Print what the newest event describes."""
        extra: dict[str, Any] = inlet_events[bronze_orders][-1].extra
        print(f"versions {extra['first_version']} to {extra['last_version']}: {extra['rows']} rows")  # noqa: T201
        return extra

    report()
