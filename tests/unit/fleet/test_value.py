"""Streams and table patterns of a fleet, as values."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from urllib.parse import unquote

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.value import FleetStream, problems_between
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink, ForeachBatchSink
from airflow_provider_fds.stream import DeltaStream

ORDERS = DeltaStream("orders", table="s3://lake/orders", max_files_per_batch=10)
BRONZE = DeltaAppendSink("s3://bronze/{schema}/{table}", partition_by=["day"])


def folders(tree):
    """List the folders of a nested dict of names below s3://lake; a table is ``True``."""

    def list_folders(uri):
        inner = tree
        for name in unquote(uri).removeprefix("s3://lake").strip("/").split("/"):
            inner = inner.get(name, {}) if name else inner
            if inner is True:
                return ["_delta_log"]
        return list(inner)

    return list_folders


def test_a_fleet_stream_survives_json_and_pickle():
    one = FleetStream(ORDERS, DeltaMergeSink("s3://bronze/orders", keys=["id"]), timedelta(minutes=5))
    assert FleetStream.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert FleetStream.coerce(one) is one


def test_a_fleet_stream_is_built_from_dicts():
    one = FleetStream.coerce(
        {"stream": {"name": "a", "table": "/lake/a"}, "sink": {"uri": "/bronze/a"}, "batch_timeout": "5m"}
    )
    assert (one.name, one.sink, one.batch_timeout) == ("a", DeltaAppendSink("/bronze/a"), timedelta(minutes=5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stream": ORDERS}, "needs 'sink'"),
        ({"stream": ORDERS, "sink": {"uri": "/b"}, "when": 1}, "no argument 'when'"),
        ({"stream": ORDERS, "sink": {"uri": "/b"}, "batch_timeout": 0}, "batch_timeout must be a positive duration"),
        (
            {"stream": ORDERS, "sink": {"uri": "/b"}, "batch_timeout": "soon"},
            "batch_timeout must be a positive duration",
        ),
        (
            {"stream": DeltaStream("a", table="/a", read="data_interval"), "sink": {"uri": "/b"}},
            "loads data intervals, but a fleet reads by offset",
        ),
        ({"stream": ORDERS, "sink": DeltaReplaceSink("/b", provenance=True)}, "loads data intervals"),
        (
            {"stream": DeltaStream("a", table="/a", columns=["x"]), "sink": DeltaMergeSink("/b", keys=["id"])},
            "reads only the columns x, but its DeltaMergeSink needs id",
        ),
    ],
)
def test_a_bad_fleet_stream_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        FleetStream.coerce(arguments)


def test_something_else_is_no_fleet_stream():
    with pytest.raises(ConfigurationError, match="must be a FleetStream or a dict"):
        FleetStream.coerce("orders")
    with pytest.raises(ConfigurationError, match="must be a TablePattern or a dict"):
        TablePattern.coerce("s3://lake/*")


def test_a_pattern_finds_tables_and_fills_its_templates():
    pattern = TablePattern("s3://lake/raw/*", sink=BRONZE, name="bronze_{table}", options={"starting_version": 0})
    found = pattern.discover(folders({"raw": {"orders": True, "lines": True, "tmp": {"x": {}}, "_bin": True}}))
    assert [one.name for one in found.streams] == ["bronze_lines", "bronze_orders"]
    assert [one.sink.uri for one in found.streams] == ["s3://bronze/raw/lines", "s3://bronze/raw/orders"]
    assert found.streams[0].stream.options.starting_version == 0
    assert found.streams[0].sink.partition_by == ("day",)
    assert found.problems == ()


def test_each_star_is_a_level_of_folders():
    pattern = TablePattern("s3://lake/*/raw_*", sink=DeltaAppendSink("s3://bronze/{schema}/{2}"))
    found = pattern.discover(
        folders({"crm": {"raw_orders": True, "raw_lines": True}, "erp": {"raw_orders": True, "orders": True}})
    )
    assert [(one.name, one.sink.uri) for one in found.streams] == [
        ("crm.lines", "s3://bronze/crm/lines"),
        ("crm.orders", "s3://bronze/crm/orders"),
        ("erp.orders", "s3://bronze/erp/orders"),
    ]


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), ["crm.a", "crm.tmp_b", "erp.a"]),
        (["a"], (), ["crm.a", "erp.a"]),
        ((), ["tmp_*"], ["crm.a", "erp.a"]),
        (["crm/*"], ["tmp_*"], ["crm.a"]),
        (["crm/*"], ["crm/a"], ["crm.tmp_b"]),
    ],
)
def test_include_and_exclude_choose_by_name_or_path(include, exclude, names):
    pattern = TablePattern("s3://lake/*/*", sink=BRONZE, include=include, exclude=exclude)
    found = pattern.discover(folders({"crm": {"a": True, "tmp_b": True}, "erp": {"a": True}}))
    assert [one.name for one in found.streams] == names


def test_two_tables_with_one_name_are_a_problem_and_neither_is_loaded():
    pattern = TablePattern("s3://lake/*/*", sink=BRONZE, name="{table}")
    found = pattern.discover(folders({"crm": {"a": True}, "erp": {"a": True, "b": True}}))
    assert [one.name for one in found.streams] == ["b"]
    assert len(found.problems) == 1
    assert "stream 'a' would load 2 tables: s3://lake/crm/a, s3://lake/erp/a." in found.problems[0]


def test_a_table_whose_name_cannot_be_a_stream_is_a_problem_of_its_own():
    found = TablePattern("s3://lake/*", sink=BRONZE).discover(folders({"a b": True, "c": True, "{{ x }}": True}))
    assert [one.name for one in found.streams] == ["c"]
    assert len(found.problems) == 2
    assert "s3://lake/a%20b cannot be loaded: name 'a b' must have 1 to 100 letters" in found.problems[0]
    assert "is a template" in found.problems[1]
    found = TablePattern("s3://lake/*/*", sink=BRONZE, name="{2}").discover(folders({"{{ x }}": {"a": True}}))
    assert "would be a template of Airflow" in found.problems[0]


def test_a_name_in_the_uri_of_a_sink_is_encoded():
    found = TablePattern("s3://lake/*/*", sink=BRONZE, name="{2}").stream_of("s3://lake/caf%C3%A9%20au/orders")
    assert found.sink.uri == "s3://bronze/caf%C3%A9%20au/orders"


def test_parts_are_replaced_in_texts_but_not_in_code():
    sink = DeltaAppendSink("s3://bronze/{table}", where="note = '{table}'", properties={"delta.comment": "{schema}"})
    pattern = TablePattern("s3://lake/raw/*", sink=sink)
    found = pattern.stream_of("s3://lake/raw/orders").sink
    assert (found.uri, found.where, dict(found.properties)) == (
        "s3://bronze/orders",
        "note = '{table}'",
        {"delta.comment": "raw"},
    )


def test_parts_are_replaced_in_the_tables_of_a_function():
    sink = ForeachBatchSink("jobs.load:load", writes={"bronze": "s3://bronze/{table}"})
    found = TablePattern("s3://lake/raw/*", sink=sink).stream_of("s3://lake/raw/orders").sink
    assert found.tables == {"bronze": "s3://bronze/orders"}


def test_a_template_of_airflow_is_left_to_airflow():
    sink = DeltaAppendSink("s3://{{ var.value.bucket }}/{table}")
    found = TablePattern("s3://lake/raw/*", sink=sink).stream_of("s3://lake/raw/orders").sink
    assert found.uri == "s3://{{ var.value.bucket }}/orders"


def test_a_pattern_of_names_survives_json_and_pickle_and_has_the_parts_of_a_name():
    pattern = TablePattern("main.sales.raw_*", sink=BRONZE, catalog_conn_id="unity")
    again = TablePattern.from_dict(json.loads(json.dumps(pattern.to_dict())))
    one = again.stream_of("main.Sales.raw_orders")
    assert one == pattern.stream_of("main.Sales.raw_orders")
    assert (one.name, one.stream.table, one.stream.catalog_conn_id) == ("orders", "main.Sales.raw_orders", "unity")
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    with pytest.raises(ConfigurationError, match="is not one of the tables"):
        pattern.stream_of("main.other.raw_orders")
    with pytest.raises(ConfigurationError, match="catalog_conn_id must be a non-empty string"):
        TablePattern("main.sales.*", sink=BRONZE, catalog_conn_id="")


def test_a_pattern_survives_json_and_pickle():
    pattern = TablePattern(
        "s3://lake/*/raw_*",
        sink=BRONZE,
        name="{schema}_{2}",
        include=["crm/*"],
        exclude=["tmp*"],
        new_tables="alert",
        storage_conn_id="lake",
        options={"max_batch_wait": "5m", "min_batch_bytes": 1, "starting_version": "3"},
        batch_timeout=60,
    )
    again = TablePattern.from_dict(json.loads(json.dumps(pattern.to_dict())))
    assert again.to_dict() == pattern.to_dict()
    assert again.stream_of("s3://lake/crm/raw_a") == pattern.stream_of("s3://lake/crm/raw_a")
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert hash(pattern)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tables": "s3://lake/raw"}, r"has no '\*'"),
        ({"tables": "s3://*/raw"}, r"has a '\*' in its bucket"),
        ({"tables": "s3://lake/**"}, r"has '\*\*'"),
        ({"tables": "s3://key:secret@lake/*"}, "contains user info"),
        ({"tables": "s3://lake/{{ ds }}/*"}, "is a template"),
        ({"name": "orders"}, "is the same for all tables"),
        ({"name": "{tabel}"}, r"unknown part \{tabel\}.* Did you mean \{table\}\?"),
        ({"name": "{table} raw"}, "must consist of parts, letters"),
        ({"name": 3}, "name must be a string"),
        ({"sink": {"uri": "s3://bronze/{2}"}}, r"unknown part \{2\}"),
        ({"sink": {"uri": "s3://bronze/x", "hows": 1}}, "invalid sink"),
        ({"options": {"starting_versoin": 1}}, "Did you mean 'starting_version'"),
        ({"include": "a*"}, "include must be a list"),
        ({"new_tables": "load"}, "new_tables must be 'start', 'alert' or 'ignore'"),
        ({"fork_of": "x"}, "no argument 'fork_of'"),
        ({"checkpoint": "file:x.json"}, r"is the same for all tables, .* such as 'file:x.\{name\}.json'"),
        ({"checkpoint": "file:{nmae}"}, r"unknown part \{nmae\}.* Did you mean \{name\}\?"),
        ({"checkpoint": "variables"}, "Did you mean 'variable'"),
        ({"checkpoint": 3}, "checkpoint must be"),
    ],
)
def test_a_bad_pattern_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        TablePattern.from_dict({"tables": "s3://lake/raw/*", "sink": {"uri": "s3://bronze/{table}"}, **arguments})


def test_each_table_of_a_pattern_may_have_its_own_checkpoint_file():
    pattern = TablePattern("s3://lake/*/*", sink=BRONZE, checkpoint="file:/offsets/{schema}/{name}.json")
    assert pattern.stream_of("s3://lake/crm/a").stream.checkpoint == "file:/offsets/crm/crm.a.json"
    assert TablePattern.from_dict(pattern.to_dict()).to_dict() == pattern.to_dict()


def test_streams_with_one_checkpoint_file_are_named():
    a, b, c = (
        FleetStream(DeltaStream(name, table=f"/lake/{name}", checkpoint=checkpoint), BRONZE)
        for name, checkpoint in (("a", "file:x/../o.json"), ("b", "file:o.json"), ("c", "variable"))
    )
    assert problems_between([a, c]) == []
    (problem,) = problems_between([a, b, c])
    assert problem.startswith("stream 'b' has the checkpoint 'file:o.json' of stream 'a'. Give each stream its own")
    assert problems_between([c, c, c]) == ["stream 'c' is given twice. Each stream needs a name of its own."]


def test_a_pattern_without_parts_in_its_sink_shares_it():
    assert TablePattern("s3://lake/*", sink=DeltaAppendSink("s3://bronze/all")).shares_sink
    assert not TablePattern("s3://lake/*", sink=BRONZE).shares_sink


def test_tables_are_found_on_disk(tmp_path):
    for name in ("raw/orders", "raw/a b", "other/orders"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
    (tmp_path / "raw/not_a_table").mkdir()
    for pattern in (f"{tmp_path}/raw/*", f"{tmp_path.as_uri()}/raw/*"):
        found = TablePattern(pattern, sink=BRONZE, exclude=["a b"]).discover(
            lambda folder: open_storage(folder).list_folders("")
        )
        assert [one.stream.table for one in found.streams] == [f"{pattern[:-1]}orders"]
        assert found.problems == ()
