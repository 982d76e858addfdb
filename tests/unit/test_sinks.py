from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone

import pytest

from airflow_provider_fds.sinks import (
    DeltaAppendSink,
    DeltaMergeSink,
    DeltaReplaceSink,
    ForeachBatchSink,
    sink_from_dict,
)
from airflow_provider_fds.table_names import name_uri

SINKS = pytest.mark.parametrize(
    "sink",
    [
        DeltaAppendSink("s3://lake/sink", partition_by=["day"], provenance=True),
        DeltaAppendSink(
            "s3://lake/sink",
            where="id > 1",
            transform="jobs.orders:cleaned",
            columns=["id", "name"],
            target_file_size="128m",
            cluster_by=["id"],
            properties={"delta.enableChangeDataFeed": True},
        ),
        DeltaAppendSink(
            "s3://lake/sink",
            constant_columns={
                "source_system": "crm",
                "tier": 1,
                "weight": 1.0,
                "is_test": False,
                "since": date(2026, 1, 31),
                "begun": datetime(2026, 1, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
            },
        ),
        DeltaAppendSink("s3://lake/sink", like_source=["partition_by", "properties"]),
        DeltaMergeSink("s3://lake/sink", keys=["id"], sequence_by="at"),
        DeltaMergeSink("s3://lake/sink", keys=["id"], scd=2),
        DeltaReplaceSink("s3://lake/sink", replace_where="day = DATE '2026-01-01'"),
        DeltaReplaceSink("s3://lake/sink", provenance=True),
        DeltaReplaceSink("s3://lake/sink", partition_by=["day"], dynamic_partition_overwrite=True),
        ForeachBatchSink("jobs.orders:load", writes={"all": "s3://lake/sink"}),
        ForeachBatchSink("jobs.orders:load", writes=["all"]),
    ],
)


@SINKS
def test_a_sink_is_the_same_after_a_round_trip(sink):
    assert sink_from_dict(sink.to_dict()) == sink


@SINKS
def test_a_sink_is_the_same_after_a_round_trip_through_json(sink):
    assert sink_from_dict(json.loads(json.dumps(sink.to_dict()))) == sink


@SINKS
def test_airflow_is_shown_a_sink_as_json_values_because_airflow_3_1_takes_no_tuples(sink):
    assert json.loads(json.dumps(sink.serialize())) == sink.serialize()


@pytest.mark.parametrize(
    "arguments", [{}, {"replace_where": "a = 1", "dynamic_partition_overwrite": True}, {"replace_where": " "}]
)
def test_a_sink_that_replaces_needs_exactly_one_way_to_say_what(arguments):
    with pytest.raises(ValueError, match="replace_where"):
        DeltaReplaceSink("s3://lake/sink", **arguments)


def test_templates_of_uri_and_predicate_are_rendered_and_change_no_identity():
    sink = DeltaReplaceSink("s3://lake/{{ x }}", replace_where="day = '{{ x }}'")
    rendered = sink.rendered(lambda text: text.replace("{{ x }}", "1"))
    assert (rendered.uri, rendered.replace_where) == ("s3://lake/1", "day = '1'")
    assert rendered.identity() == {"kind": "delta_replace", "target": "s3://lake/1"}


def test_a_kind_of_another_version_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown sink kind 'delta_elsewhere'"):
        sink_from_dict({"kind": "delta_elsewhere", "uri": "s3://lake/sink"})


def test_with_provenance_alone_a_run_replaces_the_rows_of_its_own_versions():
    sink = DeltaReplaceSink("s3://lake/sink", provenance=True)
    assert sink.for_versions(3, 7).replace_where == "_source_version BETWEEN 3 AND 7"
    dynamic = DeltaReplaceSink("s3://lake/sink", provenance=True, dynamic_partition_overwrite=True)
    assert dynamic.for_versions(3, 7).replace_where is None


def test_a_sink_from_json_is_the_same_as_the_one_it_was_made_of():
    sink = DeltaMergeSink("s3://lake/sink", keys=["id"], columns=["id"], properties={"delta.appendOnly": "false"})
    assert sink_from_dict(json.loads(json.dumps(sink.to_dict()))) == sink


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "id"}, "columns must be a list"),
        ({"provenance": "no"}, "provenance must be True or False, got 'no'"),
        ({"merge_schema": 1}, "merge_schema must be True or False, got 1"),
        ({"allow_single_driver_s3": "{{ var.value.x }}"}, "allow_single_driver_s3 must be True or False"),
        ({"columns": ["id", "ID"]}, "twice"),
        ({"where": " "}, "where must be a SQL predicate"),
        ({"transform": "function"}, "pkg.module:function"),
        ({"transform": len}, "pkg.module:function"),
        ({"transform": "import os; os:system"}, "pkg.module:function"),
        ({"target_file_size": "0.5"}, "1 MiB"),
        ({"target_file_size": 1000}, "1 MiB"),
        ({"partition_by": ["a"], "cluster_by": ["b"]}, "cannot be combined"),
        ({"like_source": "properties"}, "like_source must be a list of 'partition_by', 'properties'; got 'prop"),
        ({"like_source": True}, "must be a list of"),
        ({"like_source": ["schema"]}, r"must be a list of .*; got \['schema'\]"),
        ({"like_source": ["partition_by"], "partition_by": ["a"]}, "partition_by and like_source=.* cannot be"),
        ({"like_source": ["partition_by"], "cluster_by": ["a"]}, "cluster_by and like_source=.* cannot be"),
        ({"constant_columns": ["crm"]}, "constant_columns must be a mapping of column names to values"),
        ({"constant_columns": {"": 1}}, "column names must be strings, got ''"),
        ({"constant_columns": {"a": None}}, "the value of a must be a str, int, float, bool, date or datetime"),
        ({"constant_columns": {"a": ["b"]}}, "the value of a must be a str"),
        ({"constant_columns": {"a": 1, "A": 2}}, "names the column A twice"),
        ({"constant_columns": {"a": 1 << 63}}, "64 bits"),
        ({"constant_columns": {"a": float("nan")}}, "finite"),
        ({"constant_columns": {"a": datetime(2026, 1, 1)}}, "without a time zone"),
        ({"constant_columns": {"a": {"date": "yesterday"}}}, "must be a date in ISO format, got 'yesterday'"),
        ({"constant_columns": {"a": "{{ ds }}"}}, "is a template"),
        ({"constant_columns": {"_Source_Version": 1}}, "_Source_Version is reserved"),
        ({"constant_columns": {"A": 1}, "columns": ["a"]}, "A is also in columns"),
        ({"properties": ["delta.a"]}, "mapping"),
        ({"properties": {"comment": "mine"}}, "would be ignored"),
        ({"properties": {"delta.setTransactionRetentionDuration": "interval 30 days"}}, "forgets"),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_the_dag_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        DeltaAppendSink("s3://lake/sink", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "keys="),
        ({"keys": "id"}, "keys must be a list"),
        ({"keys": ["id"], "sequence_by": ["at"]}, "one column"),
        ({"keys": ["id"], "scd": 3}, "1 .* or 2"),
        ({"keys": ["id"], "scd": True}, "1 .* or 2"),
        ({"keys": ["id"], "scd": 2, "sequence_by": "at"}, "Omit sequence_by"),
        ({"keys": ["id"], "sequence_by": "at", "columns": ["ID", "name"]}, "missing: at"),
        ({"keys": ["id"], "scd": 2, "constant_columns": {"_is_current": True}}, "_is_current, which scd=2 adds"),
    ],
)
def test_a_merge_that_cannot_work_is_refused_when_the_dag_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        DeltaMergeSink("s3://lake/sink", **options)


UNSAFE = [
    ("reflect('java.lang.System', 'exit', 1) is null", "the function reflect"),
    ("id > 0 AND Java_Method ('java.lang.System', 'getenv', 'HOME') = ''", "the function java_method"),
    ("try_reflect('a', 'b') IS NULL", "the function try_reflect"),
    ("`reflect`('a', 'b') IS NULL", "the function reflect"),
    ("\"reflect\"('a', 'b') IS NULL", "the function reflect"),
    ("system.builtin.reflect('a', 'b') IS NULL", "the function reflect"),
    ("IDENTIFIER('ref' || 'lect')('a', 'b') IS NULL", "the function identifier"),
    ("id IN (SELECT id FROM other)", "a subquery"),
    ("EXISTS (FROM other |> WHERE x = 1)", "a subquery"),
    ("id = (TABLE other)", "a subquery"),
    ("id IN (VALUES (1), (2))", "a subquery"),
    ("id IN (WITH a AS (TABLE b) TABLE a)", "a subquery"),
    ("id > 0 /* ' */ AND reflect('a', 'b') IS NULL OR name = ' '", r"a comment or a dollar quote \(/\*\)"),
    ("id > 0 -- \\\n ' \n AND reflect('a', 'b') IS NULL OR name = ' '", r"a comment or a dollar quote \(--\)"),
    ("name = $$ ' $$ AND reflect('a', 'b') IS NULL OR name = ' '", r"a comment or a dollar quote \(\$\)"),
    ("name = r'\\' OR reflect('a', 'b') IS NULL OR name = ' '", "the function reflect"),
    ("name = 'it", "an unterminated quote"),
]


@pytest.mark.parametrize(("predicate", "problem"), UNSAFE)
def test_a_predicate_calls_no_java_and_reads_no_table_unless_it_is_allowed(predicate, problem):
    with pytest.raises(ValueError, match=f"where contains {problem}"):
        DeltaAppendSink("/sink", where=predicate)
    with pytest.raises(ValueError, match=f"replace_where contains {problem}"):
        DeltaReplaceSink("/sink", replace_where=predicate)
    allowed = DeltaAppendSink("/sink", where=predicate, unsafe_sql=True)
    assert sink_from_dict(allowed.to_dict()) == allowed


@pytest.mark.parametrize(
    "predicate",
    [
        "id > 1 AND name NOT IN ('select', 'reflect(1)', 'it''s', 'it\\'s')",
        "`from` = 1 AND (table IS NULL) AND (values IN (1, 2)) AND with > 0",
        "reflect = 1 AND extract(year FROM at) = 2026 AND trim(BOTH ' ' FROM name) <> ''",
        "day = '{{ data_interval_start | ds }}'",
        "exists(items, x -> x > 0) AND transform(items, x -> x + 1)[0] = 1 AND map('a', 1)['a'] = 1",
        "name = r'\\d+' OR name RLIKE '^[a-z]+$'",
        "amount - -1 > 0 AND amount / 2 * 3 > 1",
    ],
)
def test_a_predicate_over_columns_is_accepted_unchanged(predicate):
    assert DeltaAppendSink("/sink", where=predicate).where == predicate


def test_a_template_is_checked_once_it_is_rendered_and_again_on_the_driver():
    sink = DeltaAppendSink("/sink", where="{{ params['where'] | default(\"it's\") }}")
    assert sink.rendered(lambda _: "id > 1").where == "id > 1"
    for rendered in (UNSAFE[0][0], f"name = '{{{{' OR {UNSAFE[0][0]}"):
        with pytest.raises(ValueError, match="the function reflect"):
            sink.rendered(lambda _, rendered=rendered: rendered)
        with pytest.raises(ValueError, match="the function reflect"):
            sink_from_dict({**sink.to_dict(), "where": rendered})


def test_a_constant_may_be_part_of_the_key_and_is_not_asked_of_the_batch():
    sink = DeltaMergeSink("/sink", keys=["id", "System"], columns=["id", "name"], constant_columns={"system": "crm"})
    assert sink.needed_columns == ("id", "id", "name")


def test_constants_change_neither_the_number_of_rows_nor_the_identity():
    sink = DeltaAppendSink("/sink", constant_columns={"system": "crm"})
    assert sink.writes_rows_as_they_are
    assert sink.leaves_session_as_it_is
    assert sink.identity() == DeltaAppendSink("/sink").identity()


def test_the_rows_are_counted_unless_the_sink_chooses_or_merges_them():
    assert DeltaAppendSink("/sink", columns=["id"], target_file_size=1 << 27).writes_rows_as_they_are
    assert not DeltaAppendSink("/sink", where="id > 1").writes_rows_as_they_are
    assert not DeltaAppendSink("/sink", transform="a.b:c").writes_rows_as_they_are
    assert not DeltaMergeSink("/sink", keys=["id"]).writes_rows_as_they_are


def test_file_sizes_are_bytes_however_they_are_given():
    sizes = [DeltaAppendSink("/sink", target_file_size=size).target_file_size for size in ("128m", "1GB", 2097152)]
    assert sizes == [134217728, 1073741824, 2097152]


def test_a_clustered_table_is_not_created_by_a_run_that_replaces():
    with pytest.raises(ValueError, match="Create the table first"):
        DeltaReplaceSink("/sink", provenance=True, cluster_by=["id"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": "load"}, "pkg.module:function"),
        ({"function": "jobs:load", "writes": "bronze"}, "writes must be a list"),
        ({"function": "jobs:load", "writes": ["bronze", "bronze"]}, "twice"),
        ({"function": "jobs:load", "writes": ["bronze orders"]}, "letters, digits"),
    ],
)
def test_a_function_that_cannot_work_is_refused_when_the_dag_is_read(arguments, message):
    with pytest.raises(ValueError, match=message):
        ForeachBatchSink(**arguments)


def test_a_function_is_neither_a_table_nor_a_template():
    sink = ForeachBatchSink("jobs:load", writes=["bronze"])
    assert (sink.table_uri, sink.connection_id, sink.writes_rows_as_they_are) == (None, None, False)
    assert sink.rendered(str.upper) is sink
    assert sink_from_dict(sink.serialize()) == sink
    assert sink.identity() == {"kind": "foreach_batch", "target": "jobs:load"}


@pytest.mark.parametrize("name", ["sales.orders", "main.sales.orders", "main.`my sales`.orders", "`my sales`.orders"])
def test_a_name_without_a_catalog_is_refused_and_not_treated_as_a_folder(name):
    with pytest.raises(ValueError, match=r"looks like a name in a catalog\. Set catalog_conn_id") as caught:
        DeltaAppendSink(name)
    assert f"DESCRIBE DETAIL {name}" in str(caught.value)
    assert DeltaAppendSink(f"./{name}").uri == f"./{name}"


@pytest.mark.parametrize("name", ["sales.orders", "main.sales.orders", "main.`my sales`.orders", "größe.表"])
def test_a_name_with_a_catalog_is_a_sink_by_name(name):
    for sink in (
        DeltaAppendSink(name, catalog_conn_id="hive", create=True, location="s3://lake/new"),
        DeltaMergeSink(name, catalog_conn_id="hive", keys=["id"]),
        DeltaReplaceSink(name, catalog_conn_id="hive", provenance=True),
    ):
        assert sink.table_uri == name_uri("hive", name)
        assert sink.identity() == {"kind": sink.kind, "target": sink.table_uri}
        assert sink.describe() == f"{name} of catalog 'hive'"
        assert sink_from_dict(json.loads(json.dumps(sink.to_dict()))) == sink
        located = sink.located(lambda uri: f"s3a://lake/{len(uri)}")
        assert located == type(sink)(f"s3a://lake/{len(sink.table_uri)}", **_more(sink))
        assert not {"catalog_conn_id", "create", "location"} & located.to_dict().keys()


def _more(sink):
    return {name: getattr(sink, name) for name in ("keys", "provenance") if getattr(sink, name, None)}


@pytest.mark.parametrize(
    ("uri", "options", "problem"),
    [
        ("orders", {}, "has 1 part, but a table in a catalog has a name such as 'sales.orders'"),
        ("a.b.c.d", {}, "has 4 parts"),
        ("sales.", {}, "its part 2 is empty"),
        ("my sales.orders", {}, "needs backticks"),
        ("`sales.orders", {}, "needs backticks"),
        ('"sales"."orders"', {}, "needs backticks"),
        ("s3://lake/orders", {}, "is a path, and a catalog has names"),
        ("/lake/orders", {}, "omit the catalog's connection"),
        ("sales.orders", {"catalog_conn_id": ""}, "must be the id of a connection"),
        ("sales.orders", {"catalog_conn_id": 1}, "must be the id of a connection"),
        ("sales.orders", {"create": "yes"}, "create must be True or False"),
        ("sales.orders", {"location": "s3://lake/new"}, "needs create=True"),
        ("sales.orders", {"create": True, "location": " "}, "location must be the URI of a folder"),
        ("sales.orders", {"create": True, "location": "s3://key:secret@lake/new"}, "visible to everyone"),
        ("s3://lake/orders", {"catalog_conn_id": None, "create": True}, "for a table that is given by its name"),
    ],
)
def test_a_sink_by_name_is_checked_when_the_dag_is_read(uri, options, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        DeltaAppendSink(uri, **{"catalog_conn_id": "hive", **options})
    assert "secret" not in str(caught.value)


def test_a_name_may_be_a_template():
    sink = DeltaAppendSink("{{ params.db }}.orders", catalog_conn_id="hive", create=True, location="/{{ params.db }}")
    rendered = sink.rendered(lambda text: text.replace("{{ params.db }}", "sales"))
    assert (rendered.uri, rendered.location) == ("sales.orders", "/sales")
    with pytest.raises(ValueError, match="has 4 parts"):
        sink.rendered(lambda text: text.replace("{{ params.db }}", "a.b.c"))


def test_writes_are_names_or_a_mapping_of_names_to_tables():
    sink = ForeachBatchSink("jobs:load", writes={"kept": "s3://lake/{{ x }}/kept", "gone": None})
    assert (sink.names, sink.tables) == (("kept", "gone"), {"kept": "s3://lake/{{ x }}/kept"})
    assert sink_from_dict(json.loads(json.dumps(sink.to_dict()))) == sink
    assert sink.rendered(lambda text: text.replace("{{ x }}", "1")).tables == {"kept": "s3://lake/1/kept"}
    assert sink.identity() == ForeachBatchSink("jobs:load", writes=["kept", "gone"]).identity()


@pytest.mark.parametrize(
    "writes", [{"kept": "sales.kept"}, {"kept": "s3://user:secret@lake/kept"}, {"a b": "s3://lake/kept"}, {"kept": 1}]
)
def test_a_table_of_a_write_is_a_place_as_that_of_a_sink_is(writes):
    with pytest.raises(ValueError, match=r"catalog|user info|names in writes|uri must be"):
        ForeachBatchSink("jobs:load", writes=writes)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on_sink_overwritten": "ignore"}, "must be 'warn' or 'fail', got 'ignore'"),
        ({"other_streams": "0b6c3a6e-7c6d-4c8e-9a51-0e3c1f6f2a11"}, "must be a list of uuids"),
        ({"other_streams": ["orders"]}, "must be a list of uuids"),
        ({"properties": {"delta.feature.catalogManaged": "supported"}}, "out of its log"),
        ({"properties": {"delta.coordinatedCommits.commitCoordinator-preview": "x"}}, "out of its log"),
    ],
)
def test_other_streams_of_a_sink_is_checked_when_the_dag_is_parsed(options, expected):
    with pytest.raises(ValueError, match=expected):
        DeltaAppendSink("s3://lake/bronze", **options)


@pytest.mark.parametrize(
    ("predicate", "values"),
    [
        ("origin = 'crm'", {"origin": "crm"}),
        ("`Origin`='a' AND (x = 1 OR y = 2) AND n = 7", {"origin": "a", "n": 7}),
        ("n BETWEEN 1 AND 2 AND origin = 'a'", {"origin": "a"}),
        ("origin = 'a' OR origin = 'b'", {}),
        ("NOT origin = 'a' AND n = 1", {"n": 1}),
        ("(origin = 'a') AND n <> 1 AND m >= 2 AND k = -1 AND j = 1.5", {}),
        ("origin = other AND day = DATE '2024-01-01'", {}),
        ("origin = 'a' 'b'", {}),
        (r"origin = 'a\'' AND n = 1", {"n": 1}),
        ("origin = '${x}' AND n = 1", {"n": 1}),
        ("CASE WHEN true THEN origin = 'a' AND n = 1 END", {}),
        ("n = 1 -- AND", {}),
        ("origin = 'a AND n = 1", {}),
        ("s.origin = 'a' AND n = 1 IS NULL", {}),
    ],
)
def test_the_values_that_all_replaced_rows_have_are_found_only_where_they_are_certain(predicate, values):
    sink = DeltaReplaceSink("/lake/s", replace_where=predicate, unsafe_sql=True)
    assert sink.replaced_values(()) == sink.same_values == values


def test_constants_are_values_of_all_rows_and_of_the_partitions_that_a_run_replaces():
    constants = {"Origin": "crm", "n": 1, "is_new": True, "price": 1.5}
    sink = DeltaReplaceSink("/lake/s", dynamic_partition_overwrite=True, constant_columns=constants)
    assert sink.same_values == {"origin": "crm", "n": 1}
    assert sink.replaced_values(["origin", "day"]) == {"origin": "crm"}
    assert DeltaAppendSink("/lake/s", where="p = 1 AND n > 2").same_values == {"p": 1}
    assert DeltaAppendSink("/lake/s", where="p = 1", transform="jobs:change").same_values == {}


@pytest.mark.parametrize(
    ("predicate", "versions"),
    [
        ("_source_version BETWEEN {first_version} AND {last_version}", (3, 5)),
        ("day = '2024-01-01' AND _source_version between 0 and {last_version}", (0, 5)),
        ("_source_version NOT BETWEEN 0 AND 1", None),
        ("_source_version BETWEEN 0 AND 1 OR n = 1", None),
        ("_source_version >= 0", None),
    ],
)
def test_the_versions_of_replaced_rows_are_found_only_where_they_are_certain(predicate, versions):
    assert DeltaReplaceSink("/lake/s", replace_where=predicate).for_versions(3, 5).replaced_versions == versions
