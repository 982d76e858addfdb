"""Two tasks of a DAG file that load one stream into two sinks are found while the file is parsed."""

from __future__ import annotations

import importlib.util

import pytest

from airflow_provider_fds.errors import ConfigurationError

_FILE = """
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

def load(dag, stream, sink):
    with DAG(dag):
        DeltaIngestOperator(task_id="load", stream=stream, sink=DeltaAppendSink(sink))

orders = DeltaStream("orders", table="s3://lake/orders")
load("first", orders, "s3://lake/bronze/orders")
"""


@pytest.fixture
def parse(tmp_path, airflow_home):
    def run(more: str) -> None:
        file = tmp_path / "dags.py"
        file.write_text(_FILE + more)
        spec = importlib.util.spec_from_file_location("dags_of_a_test", file)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))

    return run


def test_a_stream_with_two_sinks_in_one_file_is_refused_with_both_tasks_and_sinks(parse):
    with pytest.raises(ConfigurationError) as caught:
        parse('load("second", orders, "s3://lake/silver/orders")')
    assert str(caught.value).startswith(
        "stream 'orders' loads into s3://lake/bronze/orders in task 'first.load' and into s3://lake/silver/orders in "
        "task 'second.load': rows would be missing"
    )
    assert caught.value.reason_code == "SINK_MISMATCH"


@pytest.mark.parametrize(
    "more",
    [
        'load("second", orders, "s3://lake/bronze/orders")',
        'load("second", DeltaStream("others", table="s3://lake/orders"), "s3://lake/silver/orders")',
        'load("second", DeltaStream("orders", table="s3://lake/orders", staging="s3://lake/b"), "s3://lake/silver/o")',
        'load("second", orders, "{{ var.value.sink }}")',
        'load("second", {"name": "orders", "table": "s3://lake/orders"}, "s3://lake/silver/orders")',
    ],
    ids=["same sink", "other name", "other staging", "template", "known at run time"],
)
def test_other_files_parse_and_may_be_changed_and_parsed_again(parse, more):
    parse(more)
    parse(more.replace("silver", "gold"))


def test_a_module_that_is_loaded_again_may_have_another_sink(tmp_path, monkeypatch, airflow_home):
    file = tmp_path / "reloaded_dags_of_a_test.py"
    monkeypatch.syspath_prepend(tmp_path)
    file.write_text(_FILE)
    module = importlib.import_module("reloaded_dags_of_a_test")
    file.write_text(_FILE.replace("bronze/orders", "bronze/all_orders"))
    importlib.reload(module)


def test_the_code_of_a_worker_is_no_dag_file(airflow_home):
    # as execnet runs the tests of pytest-xdist: all tests of a worker have this one module below them
    names = {"__name__": "__channelexec__"}
    exec(compile(_FILE + 'load("second", orders, "s3://lake/silver/orders")', "<remote exec>", "exec"), names)
