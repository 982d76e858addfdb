"""Invariant 7: parsing a DAG file reads at most its file of streams, and imports neither pyspark nor pyarrow."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from airflow_provider_fds.airflow_version import is_airflow_at_least

EXAMPLES = sorted((Path(__file__).parents[2] / "airflow_provider_fds" / "example_dags").glob("*.py"))

_PARSE = '''
import sys
import airflow
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen", "os.listdir", "os.scandir")
seen = None

def is_of_airflow(args):
    """Airflow 3.1's timetables describe a cron expression each time they are made, from a file of that library."""
    return airflow.__version__.startswith("3.1.") and "/cron_descriptor/locale/" in str(args[0])

def is_declared(args):
    """The file of streams that a DAG file names."""
    return str(args[0]).endswith("_streams.yaml")

def watch(event, args):
    if seen is not None and (event in FORBIDDEN or event == "open" and not (is_of_airflow(args) or is_declared(args))):
        seen.append((event, str(args[:1])))

sys.addaudithook(watch)
codes = [(file, compile(open(file).read(), file, "exec")) for file in sys.argv[1:]]
# the first time Airflow loads its own modules; what comes again every time is ours
for turn in range(2):
    seen = [] if turn else None
    for file, code in codes:
        exec(code, {"__name__": "parsed", "__file__": file})
found, seen = seen, None
print("io", found)
print("heavy", sorted({"pyspark", "pyarrow", "pandas", "numpy", "deltalake", "boto3"} & set(sys.modules)))
'''


def test_parsing_the_examples_does_no_io_and_imports_nothing_heavy(airflow_home):
    command = [sys.executable, "-c", _PARSE, *map(str, EXAMPLES)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "io []" in ran.stdout
    assert "heavy []" in ran.stdout


#: A DAG file with each of the classes that are declared in one, and the options whose values are parsed.
_DECLARATIONS = """
from datetime import datetime, timedelta

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_fds import (
    DeltaCommitOperator, DeltaIngestOperator, DeltaMergeSink, DeltaPlanOperator, DeltaReplaceSink, DeltaStream,
    DeltaStreamActionOperator, DeltaStreamMonitorOperator, DeltaTableChangeTrigger, DeltaAppendSink,
    DeltaTableVersionSensor, ForeachBatchSink, StreamAlerts,
)

orders = DeltaStream(
    "orders", table="s3://lake/orders", starting_timestamp="2026-01-01", columns=["id", "price"],
    where="price > 1 AND day > '2026-01-01'", max_bytes_per_batch="1g", on_schema_change={"drop": "ask"},
)
days = DeltaStream("days", table="s3://lake/orders", read="data_interval")
orders.backfill(start="2026-01-01")
orders.fork("orders_again")
alerts = StreamAlerts(lag=timedelta(minutes=10))
trigger = DeltaTableChangeTrigger(stream=orders)
trigger.serialize()

with DAG("orders", schedule=[Asset("lake", watchers=[AssetWatcher(name="orders", trigger=trigger)])]):
    DeltaTableVersionSensor(task_id="wait", stream=orders, deferrable=True)
    DeltaTableVersionSensor(task_id="find", table="s3://lake/orders", committed_after="2026-01-01")
    DeltaIngestOperator(
        task_id="load", stream=orders, sink=DeltaAppendSink("s3://lake/bronze"), wait=True, alerts=alerts,
        run_time_limit=timedelta(minutes=5),
    )
    DeltaIngestOperator(task_id="days", stream=days, sink=DeltaReplaceSink("s3://lake/days", replace_where="day = 1"))
    merge = DeltaMergeSink("s3://lake/silver", keys=["id"])
    DeltaIngestOperator(task_id="merge", stream=orders.fork("orders_merged"), sink=merge)
    DeltaIngestOperator(task_id="call", stream=orders.fork("orders_called"), sink=ForeachBatchSink("jobs:load"))
    plan = DeltaPlanOperator(task_id="plan", stream=orders.fork("orders_by_hand"))
    plan >> DeltaCommitOperator(task_id="commit", batch=plan.output, verify=DeltaAppendSink("s3://lake/own"))
    DeltaStreamMonitorOperator(task_id="monitor", alerts=alerts)
    DeltaStreamActionOperator.from_form(task_id="act")
"""

_PARSE_IN_A_NEW_PROCESS = """
import sys
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
before = set(sys.modules)
code = compile(sys.argv[1], "/dags/declared.py", "exec")
exec(code, {"__name__": "declared", "__file__": "/dags/declared.py"})
print(*sorted(set(sys.modules) - before), sep="\\n")
"""

#: What a DAG file may load of the rooms that runs need. The values of a stream's options are checked with it.
_FOR_CHECKS = {
    "airflow_provider_fds.batch.manifest_columns",
    "airflow_provider_fds.checkpoint.registry",
    "airflow_provider_fds.delta.moments",
    "airflow_provider_fds.source.options.exclusion",
    "airflow_provider_fds.source.filters.filter_column",
    "airflow_provider_fds.source.options.foreign_options",
    "airflow_provider_fds.source.options.limits",
    "airflow_provider_fds.source.options.option_ranges",
    "airflow_provider_fds.source.options.option_values",
    "airflow_provider_fds.source.options.options",
    "airflow_provider_fds.source.filters.predicate",
    "airflow_provider_fds.source.options.schema_policy",
    # their folders
    "airflow_provider_fds.source.filters",
    "airflow_provider_fds.source.options",
}
_ROOMS_OF_A_RUN = ("backends", "batch", "checkpoint", "delta", "ledger", "source", "spark")


def _loaded_by(text: str) -> set[str]:
    command = [sys.executable, "-W", "ignore", "-c", _PARSE_IN_A_NEW_PROCESS, text]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def test_a_dag_file_loads_only_what_declaring_tasks_needs(airflow_home):
    loaded = _loaded_by(_DECLARATIONS)
    own = {name for name in loaded if name.startswith("airflow_provider_fds.")}
    of_a_run = {name for name in own if name.split(".")[1] in _ROOMS_OF_A_RUN and name.count(".") > 1}
    assert of_a_run - _FOR_CHECKS == set()
    assert own & {"airflow_provider_fds.stream.run.session", "airflow_provider_fds.stream.polling.poll"} == set()
    assert loaded & {"obstore", "numpy", "pyarrow", "pyroaring", "pyspark"} == set()


#: Two modules stand for what Airflow 3.1 lacks.
_MORE = 0 if is_airflow_at_least(3, 2) else 2


def test_the_load_operator_and_its_values_are_few_modules(airflow_home):
    loaded = _loaded_by("from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink")
    # as many as there are, and a few: each costs about half a millisecond in every DAG file that is parsed
    assert len(loaded) <= 52 + _MORE, sorted(loaded)


#: What a task imports when a trigger has woken it, until it hands its batch to a Spark Connect server.
_RESUMED = (
    "import airflow_provider_fds.hooks.failures, airflow_provider_fds.operators.run.ingest_run, "
    "airflow_provider_fds.backends.spark_connect"
)
#: What only other tasks need, or this one after its rows are in the sink.
_NOT_FOR_A_BATCH = {
    f"airflow_provider_fds.{name}"
    for name in (
        "operators.run.alerting",
        "source.filters.row_filter",
        "spark.application.fleet_job",
        "spark.sessions.connect_fleet",
        "stream.monitoring.alerts",
        "stream.monitoring.all_statuses",
        "stream.monitoring.condition",
        "stream.monitoring.incidents",
        "stream.monitoring.metrics",
        "stream.monitoring.status",
        "stream.polling.poll",
        "stream.run.commit_user_job",
        "stream.run.interval_scope",
        "stream.run.linger",
        "stream.run.purge",
        "triggers.deferral",
        "triggers.delta_table_version",
    )
}


def test_a_resumed_task_loads_only_what_its_batch_needs(airflow_home):
    loaded = _loaded_by(_RESUMED)
    own = {name for name in loaded if name.startswith("airflow_provider_fds.")}
    assert "airflow_provider_fds.stream.run.session" in own
    assert [name for name in _NOT_FOR_A_BATCH if find_spec(name) is None] == []
    assert own & _NOT_FOR_A_BATCH == set()
    assert loaded & {"airflow.triggers.base", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "yaml"} == set()
    # as many as there are, and a few: each costs about a millisecond of every resumed task
    assert len(own) <= 258 + _MORE, len(own)


_LOAD_PLUGINS = """
import sys
sys.argv = ["airflow", sys.argv[1]]
from airflow.plugins_manager import ensure_plugins_loaded
ensure_plugins_loaded()
before = set(sys.modules)
exec(sys.stdin.read())
from airflow_provider_fds.spark.sessions.connect_server import import_client
import_client()
print(*sorted(name for name in set(sys.modules) - before if name.split(".")[0] in ("airflow_provider_fds", "pyspark")))
"""


@pytest.mark.parametrize(
    ("process", "preload", "is_preloaded"),
    [
        ("scheduler", "True", True),
        ("scheduler", "False", False),
        ("scheduler", "oh", False),
        ("triggerer", "True", False),
    ],
)
def test_a_scheduler_loads_beforehand_all_that_a_task_needs_if_it_is_wanted(
    airflow_home, process, preload, is_preloaded
):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD_PLUGINS, process],
        input=_RESUMED,
        env={**os.environ, "AIRFLOW__FDS__PRELOAD": preload},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    loaded_by_the_task = ran.stdout.splitlines()[-1].split()
    assert (not loaded_by_the_task) == is_preloaded, loaded_by_the_task


def test_the_package_root_imports_neither_airflow_nor_anything_heavy():
    code = (
        "import sys, airflow_provider_fds; "
        "print(sorted({'airflow', 'pyspark', 'pyarrow', 'obstore', 'msgspec'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
