"""DAGs that tables start through their assets, with the watchers that tests/stack/test_asset_watcher.py kills."""

import os

from airflow.sdk import DAG, Asset, AssetAny, AssetWatcher, task

from airflow_provider_fds import DeltaStream, DeltaTableChangeTrigger

LAKE = os.environ["FDS_TEST_LAKE"]


def watched(name: str, *tables: str) -> Asset:
    triggers = [
        DeltaTableChangeTrigger(table=f"{LAKE}/{table}", poll_interval=1, name=f"{name}-{number}")
        for number, table in enumerate(tables)
    ]
    watchers = [AssetWatcher(name=f"{name}-{number}", trigger=one) for number, one in enumerate(triggers)]
    return Asset(name, uri=f"test://{name}", watchers=watchers)


with DAG("killed", schedule=[watched("killed", "killed")]):

    @task
    def versions(triggering_asset_events=None) -> list[int]:
        """Return the last versions of the events that started the run."""
        events = [event for found in triggering_asset_events.values() for event in found]
        return sorted(event.extra["payload"]["last_version"] for event in events)

    versions()

with DAG("both", schedule=[watched("both", "first", "second")]):
    task(lambda: None, task_id="nothing")()

started = DeltaTableChangeTrigger(stream=DeltaStream("started", table=f"{LAKE}/first"), poll_interval=1)
asset = Asset("started", watchers=[AssetWatcher(name="started", trigger=started)])
with DAG("started", schedule=[asset], is_paused_upon_creation=True):
    task(lambda: None, task_id="nothing")()

with DAG(
    "many",
    schedule=AssetAny(*(watched(f"many-{number}", "many") for number in range(1000))),
    is_paused_upon_creation=True,
    max_active_runs=1,
):
    task(lambda: None, task_id="nothing")()
