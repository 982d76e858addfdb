"""Streams and sinks as arguments of operators: templates, mapping, serialisation, XCom."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaCommitOperator,
    DeltaIngestOperator,
    DeltaPlanOperator,
    DeltaStream,
    DeltaTableVersionSensor,
    ForeachBatchSink,
)
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.operators.lineage.asset_event import asset_uri
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink

TEMPLATED = DeltaStream("orders", table="s3://{{ lake }}/orders", staging="s3://{{ lake }}/_fds")


def test_templates_in_a_stream_and_a_sink_are_rendered_and_the_values_stay_as_they_are():
    sink = DeltaAppendSink("s3://{{ lake }}/bronze")
    first = DeltaIngestOperator(task_id="first", stream=TEMPLATED, sink=sink, conf={"a": "{{ lake }}"})
    second = DeltaIngestOperator(task_id="second", stream=TEMPLATED, sink=sink)
    first.render_template_fields({"lake": "one"})
    second.render_template_fields({"lake": "two"})

    assert first.stream == DeltaStream("orders", table="s3://one/orders", staging="s3://one/_fds")
    assert first.sink.uri == "s3://one/bronze"
    assert first.conf == {"a": "one"}
    assert second.stream.table == "s3://two/orders"
    assert TEMPLATED.table == "s3://{{ lake }}/orders"
    assert sink.uri == "s3://{{ lake }}/bronze"


def test_a_rendered_template_must_give_a_valid_stream():
    plan = DeltaPlanOperator(task_id="plan", stream=DeltaStream("orders", table="{{ lake }}"))
    with pytest.raises(ConfigurationError, match="table must be a non-empty string"):
        plan.render_template_fields({"lake": " "})


def test_values_are_immutable_and_have_nothing_that_airflows_templater_would_touch():
    for value in (TEMPLATED, DeltaAppendSink("/sink")):
        assert not hasattr(value, "template_fields")
        assert not hasattr(value, "resolve")
        with pytest.raises(AttributeError):
            value.uri = value.table = "other"


@pytest.mark.parametrize("name", ["orders_{{ ds }}", "{% if a %}x{% endif %}"])
def test_a_template_in_a_streams_name_is_refused(name):
    with pytest.raises(ConfigurationError, match="must be the same in every run"):
        DeltaStream(name, table="/orders")


def test_another_tasks_output_inside_a_value_is_refused():
    output = DeltaPlanOperator(task_id="plan", stream=TEMPLATED).output["manifest"]
    with pytest.raises(ConfigurationError, match=r"another task's output.*would run before its input"):
        DeltaStream("orders", table=output)
    with pytest.raises(ConfigurationError, match="option 'starting_version' is a template or another task's output"):
        DeltaStream("orders", table="/orders", starting_version=output)
    with pytest.raises(ValueError, match="uri must be the URI or path of a Delta table"):
        DeltaAppendSink(output)


def test_a_stream_may_be_given_as_a_dict_and_anything_else_is_refused():
    assert DeltaStream.coerce({"name": "a", "table": "/a", "starting_version": 3}).options.starting_version == 3
    with pytest.raises(ConfigurationError, match="stream must be a DeltaStream or a dict"):
        DeltaStream.coerce("orders")


def test_a_sink_may_be_given_as_a_dict_and_anything_else_is_refused():
    assert coerce_sink({"uri": "/sink", "provenance": True}) == DeltaAppendSink("/sink", provenance=True)
    assert coerce_sink(DeltaAppendSink("/sink").to_dict()) == DeltaAppendSink("/sink")
    assert coerce_sink("s3://lake/sink") == DeltaAppendSink("s3://lake/sink")
    with pytest.raises(ConfigurationError, match="sink must be the URI of a Delta table, a DeltaAppendSink"):
        coerce_sink("sales")
    with pytest.raises(ConfigurationError, match=r"invalid sink .*target"):
        coerce_sink({"target": "/sink"})


def test_a_uri_is_the_sink_and_anything_else_is_refused_where_the_dag_is_parsed():
    stream = DeltaStream("a", table="/a")
    assert DeltaIngestOperator(task_id="t", stream=stream, sink="/sink").sink == DeltaAppendSink("/sink")
    with pytest.raises(ConfigurationError, match="sink must be the URI"):
        DeltaIngestOperator(task_id="t", stream=stream, sink="sales")
    assert ForeachBatchSink("loads:load", writes=None) == ForeachBatchSink("loads:load")


@pytest.mark.parametrize("table", ["main.sales.orders", "sales.orders"])
def test_a_name_in_a_catalog_is_not_taken_for_a_path(table):
    with pytest.raises(ConfigurationError, match=f"'{table}' looks like a name in a catalog"):
        DeltaStream("a", table=table)
    assert DeltaStream("a", table=f"./{table}").table == f"./{table}"


def test_the_plans_output_reaches_the_job_and_makes_it_downstream(installation):
    dag = installation.add_example("orders_three_tasks")
    load, commit = dag.get_task("load"), dag.get_task("commit")
    assert load.upstream_task_ids == {"plan"}
    assert commit.upstream_task_ids == {"plan", "load"}


DAG_OF_ALL = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import *

streams = [DeltaStream(f"orders_{i}", table="/lake/orders", storage_conn_id="aws_lake") for i in range(2)]
with DAG("all_of_them", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaTableVersionSensor(task_id="wait", stream=streams[0], deferrable=True)
    DeltaIngestOperator(task_id="ingest", stream=streams[0], sink=DeltaAppendSink("/lake/bronze"))
    DeltaIngestOperator.partial(task_id="mapped", sink=DeltaAppendSink("/lake/bronze")).expand(stream=streams)
    plan = DeltaPlanOperator(task_id="plan", stream=streams[0])
    DeltaCommitOperator(task_id="commit", batch=plan.output, verify=DeltaAppendSink("/lake/bronze"))
"""


def dag_serialization():
    """The class that serialises DAGs; Airflow 3.1 has another name for it."""
    from airflow.serialization import serialized_objects

    return getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG


def test_a_dag_of_values_has_a_short_and_deterministic_serialisation(installation):
    def serialised():
        found = json.dumps(dag_serialization().serialize_dag(installation.add(DAG_OF_ALL)), sort_keys=True)
        return found.replace("\\\\", "")

    first = serialised()
    # the file's name is new each time
    strip = lambda text: [part for part in text.split('"') if "dag_" not in part]  # noqa: E731
    assert strip(first) == strip(serialised())
    assert "DeltaStream('orders_1', table='/lake/orders')" in first
    assert "object at 0x" not in first


def test_only_an_operator_that_is_not_mapped_is_limited_to_one_at_a_time(installation):
    dag = dag_serialization().deserialize_dag(dag_serialization().serialize_dag(installation.add(DAG_OF_ALL)))
    assert dag.get_task("ingest").max_active_tis_per_dag == 1
    assert dag.get_task("mapped").max_active_tis_per_dag is None


def test_streams_out_of_an_xcom_and_templates_are_mapped_and_label_their_tasks(installation, lake):
    lake.append("a", 1)
    lake.append("b", 1, 2)
    run = installation.run(
        installation.add(
            f"""
            from datetime import datetime
            from airflow.sdk import DAG, task
            from airflow_provider_fds import DeltaPlanOperator, DeltaStream

            with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1), params={{"lake": "{lake.uri}"}}):
                @task
                def streams():
                    return [{{"name": f"of_xcom_{{t}}", "table": "{lake.uri}/" + t}} for t in "ab"]

                label = "{{{{ task.stream.name }}}}"
                plan = lambda name: DeltaPlanOperator.partial(task_id=name, map_index_template=label)
                plan("of_xcom").expand(stream=streams())
                values = [DeltaStream(f"value_{{t}}", table="{{{{ params.lake }}}}/" + t) for t in "ab"]
                plan("of_values").expand(stream=values)
            """
        )
    )
    assert set(run.states.values()) == {"success"}
    for task_id, name in (("of_xcom", "of_xcom"), ("of_values", "value")):
        assert run.xcom(task_id, "stream", 0) == f"{name}_a"
        assert run.xcom(task_id, "num_rows", 1) == "2"
    assert set(run.map_labels.values()) >= {"of_xcom_a", "of_xcom_b", "value_a", "value_b"}


def test_arguments_that_fds_sets_itself_are_refused_together():
    with pytest.raises(ConfigurationError) as caught:
        DeltaIngestOperator(
            task_id="ingest",
            stream=TEMPLATED,
            sink=DeltaAppendSink("/sink"),
            application="job.py",
            durable=True,
            on_no_data="wait",
            on_busy="succeed",
            batches_per_application=0,
        )
    assert len(caught.value.problems) == 5
    assert "DeltaPlanOperator, SparkSubmitOperator and DeltaCommitOperator" in str(caught.value)


def test_arguments_of_spark_submit_are_taken_under_their_own_names():
    ingest = DeltaIngestOperator(
        task_id="ingest",
        stream=TEMPLATED,
        sink=DeltaAppendSink("/sink"),
        conf={"spark.executor.memory": "4g"},
        packages="a:b:1",
        driver_memory="2g",
        name="orders",
        max_active_tis_per_dag=3,
    )
    assert (ingest.conf, ingest.packages, ingest._driver_memory) == ({"spark.executor.memory": "4g"}, "a:b:1", "2g")
    assert (ingest.name, ingest.max_active_tis_per_dag, ingest.durable) == ("orders", 3, False)


@pytest.mark.parametrize(
    ("sink", "uri"),
    [
        ("s3a://lake/bronze/", "s3://lake/bronze"),
        ("s3n://lake/bronze", "s3://lake/bronze"),
        ("gs://lake/bronze", "gs://lake/bronze"),
        ("/lake/a b", "file:///lake/a%20b"),
        (DeltaAppendSink("sales.orders", catalog_conn_id="hive").table_uri, "catalog://hive/sales.orders"),
    ],
)
def test_one_table_is_one_asset_however_its_uri_is_spelled(sink, uri):
    assert asset_uri(sink) == uri


def test_airflow_refuses_concurrent_continuous_runs():
    from airflow.sdk import DAG

    with pytest.raises(ValueError, match="max_active_runs <= 1"):
        DAG("continuous", schedule="@continuous", max_active_runs=2)


def test_a_sensor_takes_its_interval_from_the_settings_or_the_argument(monkeypatch):
    assert DeltaTableVersionSensor(task_id="wait", stream=TEMPLATED).poke_interval == 60
    assert DeltaTableVersionSensor(task_id="wait", stream=TEMPLATED, poll_interval=5).poke_interval == 5
    monkeypatch.setenv("AIRFLOW__FDS__POLL_INTERVAL", "7")
    assert DeltaTableVersionSensor(task_id="wait", stream=TEMPLATED).poke_interval == 7


def test_a_commit_takes_nothing_but_the_output_of_a_plan():
    from airflow_provider_fds.operators.run.batch_message import stream_of

    assert DeltaCommitOperator(task_id="commit", batch={"stream_definition": "{}"}).task_id == "commit"
    for batch in (None, "manifest", {"manifest": "x"}):
        with pytest.raises(ConfigurationError, match="batch must be the whole output of a DeltaPlanOperator"):
            stream_of(batch)
