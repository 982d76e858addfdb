from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream import DeltaStream


class AnotherTasksOutput:
    """Looks like Airflow's XComArg from outside."""

    def iter_references(self):
        return iter(())


def test_a_stream_is_a_value():
    one = DeltaStream("s", "s3://lake/t", starting_version=3, storage_conn_id="aws")
    same = DeltaStream("s", "s3://lake/t", options={"startingVersion": "3"}, storage_conn_id="aws")

    assert one == same
    assert hash(one) == hash(same)
    assert one != DeltaStream("s", "s3://lake/t", starting_version=4, storage_conn_id="aws")
    with pytest.raises(AttributeError, match="immutable"):
        one.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        del one.name


def test_airflow_is_shown_a_stream_as_json_values():
    shown = DeltaStream("s", "s3://lake/t", skip_versions=[3, 4], where="p = 1").serialize()
    assert json.loads(json.dumps(shown)) == shown


def test_a_stream_survives_json_and_pickle():
    stream = DeltaStream("s", "s3://lake/t", staging="s3://lake/fds", checkpoint="file:/x", ignore_deletes=True)

    assert DeltaStream.from_dict(json.loads(json.dumps(stream.to_dict()))) == stream
    assert pickle.loads(pickle.dumps(stream)) == stream
    assert DeltaStream.coerce(stream.to_dict()) == stream
    assert DeltaStream.coerce(stream) is stream


def test_the_representation_of_a_stream_in_airflow_is_short_and_deterministic():
    stream = DeltaStream("s", "s3://lake/t", storage_conn_id="aws")

    assert repr(stream) == "DeltaStream('s', table='s3://lake/t')"
    assert json.dumps(stream.serialize()) == json.dumps(
        DeltaStream("s", "s3://lake/t", storage_conn_id="aws").serialize()
    )


# D41
def test_all_problems_are_in_one_error():
    with pytest.raises(ConfigurationError) as caught:
        DeltaStream("a b", "", staging=" ", checkpoint="Variabel", starting_version=-1, max_fils_per_batch=3)

    text = str(caught.value)
    assert len(caught.value.problems) == 6
    for part in (
        "name 'a b'",
        "table",
        "staging",
        "Did you mean 'variable'",
        "starting_version",
        "max_files_per_batch",
    ):
        assert part in text


@pytest.mark.parametrize("name", ["", "a/b", "é", "x" * 101, "..", ".x", None, 3])
def test_a_name_that_cannot_be_a_folder_is_refused(name):
    with pytest.raises(ConfigurationError, match="name"):
        DeltaStream(name, "s3://lake/t")


@pytest.mark.parametrize("name", ["{{ ds }}", "orders_{% if x %}", AnotherTasksOutput()])
def test_a_template_in_the_name_is_refused_since_the_name_finds_the_position_again(name):
    with pytest.raises(ConfigurationError, match="must be the same in every run"):
        DeltaStream(name, "s3://lake/t")


@pytest.mark.parametrize("value", ["{{ ds }}", AnotherTasksOutput()])
def test_a_template_in_an_option_is_refused_since_a_position_outlives_a_run(value):
    with pytest.raises(ConfigurationError, match="position outlives a run"):
        DeltaStream("s", "s3://lake/t", starting_timestamp=value)


def test_another_tasks_output_as_table_is_refused_since_airflow_would_not_see_it():
    with pytest.raises(ConfigurationError, match="run before its input"):
        DeltaStream("s", AnotherTasksOutput())


def test_table_and_staging_may_be_templates():
    stream = DeltaStream("s", "s3://{{ var.value.lake }}/t", staging="s3://{{ var.value.lake }}/fds")

    rendered = stream.rendered(lambda text: text.replace("{{ var.value.lake }}", "bucket"))

    assert (rendered.table, rendered.staging) == ("s3://bucket/t", "s3://bucket/fds")
    assert stream.table == "s3://{{ var.value.lake }}/t"
    plain = DeltaStream("s", "s3://lake/t")
    assert plain.rendered(lambda text: text) is plain


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("read", "everything", "must be 'offset'"),
        ("checkpoint", "xcoms", "Did you mean 'xcom'"),
        ("checkpoint", "file:", "file:<path>"),
        ("storage_conn_id", "", "storage_conn_id"),
    ],
)
def test_an_unavailable_value_is_refused_by_name(argument, value, text):
    with pytest.raises(ConfigurationError, match=text):
        DeltaStream("s", "s3://lake/t", **{argument: value})


def test_a_stream_of_data_intervals_has_no_start_or_end_and_reports_all_problems_together():
    with pytest.raises(ConfigurationError) as refused:
        DeltaStream(
            "s",
            "s3://lake/t",
            read="data_interval",
            starting_timestamp="2026-01-01",
            endingVersion=7,
            on_violation="quarantine",
            on_lost_position="earliest",
        )
    text = str(refused.value)
    assert all(word in text for word in ("starting_timestamp", "endingVersion", "on_violation", "on_lost_position"))
    assert len(refused.value.problems) == 4


def test_a_stream_of_data_intervals_keeps_limits_and_filters():
    stream = DeltaStream("s", "s3://lake/t", read="data_interval", max_files_per_batch=5, ignore_deletes=True)
    assert stream.reads_by_interval
    assert DeltaStream.from_dict(stream.to_dict()) == stream


def test_an_option_given_twice_is_refused():
    with pytest.raises(ConfigurationError, match="given twice"):
        DeltaStream("s", "s3://lake/t", options={"ignore_deletes": True}, ignore_deletes=False)


@pytest.mark.parametrize("value", [None, 3, ["s"], {"name": "s"}])
def test_a_value_that_is_not_a_stream_is_refused(value):
    with pytest.raises(ConfigurationError):
        DeltaStream.coerce(value)


def test_creating_a_stream_imports_neither_airflow_nor_spark_nor_arrow_nor_storage():
    code = (
        "import sys; from airflow_provider_fds import DeltaStream, DeltaAppendSink; "
        "DeltaStream('s', 's3://lake/t', starting_timestamp='2026-01-01'); DeltaAppendSink('s3://lake/b'); "
        "print([m for m in ('airflow', 'pyspark', 'pyarrow', 'obstore') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
