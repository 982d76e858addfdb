"""``@task.delta_batch``: what it is bound to, what it refuses before anything is planned, the end of its session."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, task

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.spark.writers.rows.user_code import function_here, load_function

ORDERS = DeltaStream("orders", table="s3://lake/orders", staging="s3://lake/_fds")


def load(df, batch):
    del df, batch


def operator_of(function=load, call=None, **arguments):
    with DAG("functions", schedule=None):
        return task.delta_batch(stream=ORDERS, **arguments)(function)(**(call or {})).operator


def test_the_stream_is_bound_to_the_functions_name_and_its_writes():
    operator = operator_of(writes=["a", "b"])
    assert operator.task_id == "load"
    assert (operator.sink.function, operator.sink.writes) == ("task:load", ("a", "b"))
    assert operator.max_active_tis_per_dag == 1
    assert {"op_kwargs", "stream", "conf"} <= set(operator.template_fields)


def test_arguments_of_the_function_are_rendered_and_given_by_name_beside_those_of_airflow():
    def both(df, batch, run_id, limit, *, word="none"):
        return df, batch, run_id, limit, word

    operator = operator_of(both, {"limit": "{{ 1 + 1 }}"})
    operator.render_template_fields({})
    assert operator._function({"run_id": "r", "ti": None})("frame", "batch") == ("frame", "batch", "r", "2", "none")


def test_a_function_may_leave_out_the_batch():
    assert operator_of(only_rows)._function({})("frame", "batch") == "frame"


def only_rows(df):
    return df


def no_rows(batch):
    return batch


def by_position(df, *rest):
    return df, rest


async def later(df):
    return df


@pytest.mark.parametrize(
    ("function", "call", "arguments", "text"),
    [
        (no_rows, {}, {}, "no_rows has no parameter df"),
        (lambda df: df, {}, {}, "not a named function"),
        (by_position, {}, {}, "takes rest by position only"),
        (later, {}, {}, "not a named function"),
        (load, {"batch": 1}, {}, "got batch, which the task passes"),
        (load, {}, {"sink": None}, "sink is not an argument"),
        (load, {}, {"multiple_outputs": True}, "multiple_outputs is not available"),
        (load, {}, {"wait": False, "timeout": 1}, "without wait=True"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_when_the_dag_is_parsed(function, call, arguments, text):
    with pytest.raises(ConfigurationError, match=text):
        operator_of(function, call, **arguments)


def test_arguments_by_position_are_refused_since_rows_and_batch_come_first():
    with DAG("functions", schedule=None), pytest.raises(ConfigurationError, match="pass them by name"):
        task.delta_batch(stream=ORDERS)(load)(5)


def test_a_stream_that_reads_data_intervals_is_refused():
    days = DeltaStream("days", table="s3://lake/orders", read="data_interval")
    with pytest.raises(ConfigurationError, match="intervals in any order"), DAG("functions", schedule=None):
        task.delta_batch(stream=days)(load)()


def context(map_index=-1):
    ti = SimpleNamespace(map_index=map_index, dag_id="d", run_id="r", task_id="load", try_number=1)
    return {"ti": ti, "dag_run": SimpleNamespace(run_id="manual__1", run_type="manual", run_after=None)}


def test_a_mapped_task_fails_without_a_retry_because_a_stream_has_one_reader():
    with pytest.raises(AirflowFailException, match="is mapped"):
        operator_of().load(context(map_index=0), deadline=None)


@pytest.mark.parametrize(
    ("extra", "arguments", "text"),
    [
        ({}, {"jars": "a.jar", "driver_memory": "2g"}, "jars, driver_memory cannot be given"),
        ({"deploy-mode": "cluster"}, {}, "deploy-mode 'cluster'"),
        ({"spark-binary": "spark3-submit"}, {}, "names a spark-submit"),
    ],
)
def test_arguments_that_only_spark_submit_supports_are_refused_before_anything_is_planned(
    airflow_database, monkeypatch, extra, arguments, text
):
    value = {"conn_type": "spark", "host": "local[1]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(value))
    with pytest.raises(AirflowFailException, match=text):
        operator_of(**arguments).load(context(), deadline=None)


def test_a_function_of_this_process_is_found_by_its_name_as_long_as_its_job_runs():
    with function_here("task:load", load):
        assert load_function("task:load", "function", ("df", "batch")) is load
    with pytest.raises(Exception, match="cannot be imported on the driver"):
        load_function("task:load", "function", ("df", "batch"))


def test_a_time_limit_ends_spark_in_the_middle_of_a_call_and_leaves_the_batch_to_the_next_run(
    installation, lake, tmp_path
):
    """The JVM would sleep for ten minutes, and what is said to it meanwhile would wait for that."""
    lake.append("orders", 1)
    dag = installation.add(
        f"""
        import os, signal, threading
        from datetime import datetime
        from airflow.sdk import DAG, task
        from airflow.sdk.exceptions import AirflowTaskTimeout
        from airflow_provider_fds import DeltaStream

        def over(*_):
            raise AirflowTaskTimeout("the time is over")

        with DAG("limited", schedule=None, start_date=datetime(2026, 1, 1)):

            @task.delta_batch(stream=DeltaStream("limited", table="{lake.uri}/orders"))
            def load(df):
                from pyspark import SparkContext

                with open("{tmp_path}/pid", "w") as pid:
                    pid.write(str(SparkContext._gateway.proc.pid))
                signal.signal(signal.SIGUSR1, over)
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
                df.sparkSession._jvm.java.lang.Thread.sleep(600_000)

            load()
        """
    )
    assert installation.run(dag).state("load") == "failed"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    from pyspark import SparkContext

    assert (SparkContext._gateway, SparkContext._active_spark_context) == (None, None)
    state = Ledger(open_storage((tmp_path / "staging").as_uri()), "limited").find()
    assert (len(state.planned), state.last_committed) == (1, None)
