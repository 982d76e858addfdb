"""``PostgresSink`` as a value: names, identity, and what it refuses when the DAG is read."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.credentials import secret_part
from airflow_provider_fds.ledger.rewind_options import sink_rows_option
from airflow_provider_fds.ledger.values import SinkBinding
from airflow_provider_fds.sinks import PostgresSink, kind_of_target, needs_whole_commits, sink_from_dict
from airflow_provider_fds.sinks.postgres import quoted, table_parts

HOSTILE = 'public."a"";drop table b;--%s {x}"'


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("public.orders", ("public", "orders")),
        ('"My Schema"."a.b"', ("My Schema", "a.b")),
        ('s."He said ""no"""', ("s", 'He said "no"')),
        ("s.t$1", ("s", "t$1")),
    ],
)
def test_a_name_has_a_schema_and_quotes_as_in_sql(name, parts):
    assert table_parts(name) == parts
    assert PostgresSink(name).parts == parts


@pytest.mark.parametrize(
    "name", ["orders", "a.b.c", "public.Orders", "public.", ".orders", 'public."', "", None, 7, "public.a b", 's.""']
)
def test_a_name_that_postgresql_would_read_as_another_one_is_refused(name):
    with pytest.raises(ValueError, match=r"must be the name of a table with its schema"):
        PostgresSink(name)


def test_a_name_that_postgresql_would_cut_is_refused():
    with pytest.raises(ValueError, match="1 to 63 bytes"):
        PostgresSink(f"public.{'o' * 64}")
    with pytest.raises(ValueError, match="account must be a name of 1 to 63 bytes"):
        PostgresSink("public.orders", account="é" * 32)


def test_an_identifier_is_quoted_whatever_it_contains():
    assert quoted('a"b', "c;--") == '"a""b"."c;--"'


@pytest.mark.parametrize(
    "sink",
    [
        PostgresSink("public.orders"),
        PostgresSink("public.orders", conn_id="pg/1 é", account="a?b&c=%"),
        PostgresSink(HOSTILE, conn_id="pg"),
    ],
)
def test_a_binding_says_enough_to_close_epochs_in_the_table(sink):
    bound = SinkBinding(**sink.identity())
    assert bound.sink() == sink
    assert not bound.is_user_defined
    assert bound.is_fenced
    assert not bound.has_log


def test_the_identity_shows_connection_table_and_another_account():
    assert PostgresSink("public.orders", conn_id="pg").identity()["target"] == "postgres://pg/public.orders"
    assert PostgresSink("public.orders").identity()["target"] == "postgres:///public.orders"
    target = PostgresSink("public.orders", account="loads").identity()["target"]
    assert target == "postgres:///public.orders?account=loads"


def test_values_survive_a_job_spec():
    sink = PostgresSink(HOSTILE, "pg", provenance=True, where="id > 1", constant_columns={"tier": 1})
    assert sink_from_dict(sink.to_dict()) == sink


def test_templates_are_rendered_and_checked_afterwards():
    sink = PostgresSink("public.orders_{{ ds_nodash }}", where="day = '{{ ds }}'")
    made = sink.rendered(lambda text: text.replace("{{ ds_nodash }}", "20260101").replace("{{ ds }}", "2026-01-01"))
    assert (made.table, made.where) == ("public.orders_20260101", "day = '2026-01-01'")
    with pytest.raises(ValueError, match="must be the name of a table"):
        sink.rendered(lambda text: text.replace("{{ ds_nodash }}", "A"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "upsert"}, "mode must be 'append', 'merge' or 'replace', got 'upsert'"),
        ({"mode": "merge"}, "PostgresSink: keys is required"),
        ({"mode": "merge", "keys": "id"}, "keys must be a list of columns"),
        ({"mode": "merge", "keys": ["id"], "sequence_by": ["at"]}, "sequence_by must be one column"),
        ({"mode": "merge", "keys": ["id"], "columns": ["name"]}, "columns must include keys and sequence_by"),
        ({"mode": "merge", "keys": ["id"], "delete_rows": "no"}, "delete_rows must be True or False"),
        ({"keys": ["id"], "delete_rows": False}, "keys, delete_rows is for mode='merge'"),
        ({"sequence_by": "at"}, "sequence_by is for mode='merge'"),
        ({"conn_id": " "}, "conn_id must be the id of a connection"),
        ({"where": "reflect('a', 'b')"}, "must be a plain expression"),
        ({"transform": "nothing"}, "must name a function"),
        ({"provenance": "no"}, "provenance must be True or False"),
        ({"other_streams": ["x"]}, "must be a list of uuids"),
    ],
)
def test_what_cannot_work_is_refused_when_the_dag_is_read(arguments, message):
    with pytest.raises(ValueError, match=message):
        PostgresSink("public.orders", **arguments)


def test_messages_about_a_rewind_offer_to_remove_rows_that_were_appended():
    bound = SinkBinding(**PostgresSink("public.orders").identity())
    assert sink_rows_option(bound) == " --sink-rows keep|delete|empty"
    assert (PostgresSink("public.orders").can_remove_rows, bound.all_rows_option) == (True, " --sink-rows empty")


def test_a_merge_is_another_sink_than_an_append_and_its_binding_says_so():
    append, merge = PostgresSink("public.orders", "pg"), PostgresSink("public.orders", "pg", mode="merge", keys=["id"])
    bound = SinkBinding(**merge.identity())
    assert merge.identity() == {"kind": "postgres", "target": "postgres://pg/public.orders?mode=merge"}
    assert (bound.merges, SinkBinding(**append.identity()).merges) == (True, False)
    assert bound.sink() == append
    assert [needs_whole_commits(**one.identity()) for one in (append, merge)] == [False, True]
    assert [(one.needs_keys, one.needs_whole_commits) for one in (append, merge)] == [(False, False), (True, True)]
    assert merge.writes_rows_as_they_are is False


def test_a_merge_survives_a_job_spec_and_a_template():
    sink = PostgresSink("public.{{ x }}", mode="merge", keys=["id"], sequence_by="at", delete_rows=False)
    made = sink.rendered(lambda text: text.replace("{{ x }}", "orders"))
    again = sink_from_dict(json.loads(json.dumps(made.to_dict())))
    assert (again, again.needs_keys, again.keys) == (made, True, ("id",))
    assert again.needed_columns == ("id", "at")


def test_a_stream_that_merges_is_told_to_keep_the_rows():
    bound = SinkBinding(**PostgresSink("public.orders", mode="merge", keys=["id"]).identity())
    assert sink_rows_option(bound, to_start=True) == " --sink-rows keep"
    assert (bound.can_remove_rows, bound.all_rows_option) == (False, " --sink-rows keep")


def test_a_sink_that_replaces_needs_the_source_version_of_each_row():
    with pytest.raises(ValueError, match="needs provenance=True"):
        PostgresSink("public.orders", mode="replace")
    with pytest.raises(ValueError, match="keys is for mode='merge'"):
        PostgresSink("public.orders", mode="replace", provenance=True, keys=["id"])
    sink = PostgresSink("public.orders", "pg", mode="replace", provenance=True)
    assert sink_from_dict(sink.to_dict()) == sink
    bound = sink.identity()["target"]
    assert bound == "postgres://pg/public.orders?mode=replace"
    assert PostgresSink.replaces_in(bound)
    assert not PostgresSink.replaces_in("postgres://pg/public.orders")
    assert (sink.replaces, sink.needs_order, sink.needs_keys) == (True, False, False)
    assert PostgresSink("public.orders", mode="merge", keys=["id"]).needs_order
    assert not PostgresSink("public.orders").needs_order


def test_the_target_of_a_binding_names_its_kind_and_holds_no_credential():
    for target in ("postgres://pg/public.orders?mode=merge", "postgres:///public.orders?account=a&mode=merge"):
        assert kind_of_target(target) == "postgres"
        assert secret_part(target) is None
    assert kind_of_target("s3://lake/orders") == kind_of_target("/lake/orders") == "delta_append"
    for uri in (
        "postgres://pg/a.b?password=x",
        "postgres://u:p@h/a.b?mode=merge",
        "postgres://pg/a.b?mode=merge&sig=x",
    ):
        assert secret_part(uri) is not None
