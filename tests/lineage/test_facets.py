"""Facets from values, and the settings of the Spark agent."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaMergeSink, DeltaStream, ForeachBatchSink
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.operators.lineage import spark_lineage
from airflow_provider_fds.operators.lineage.lineage_facets import fleet_lineage, operator_lineage
from airflow_provider_fds.operators.lineage.lineage_values import Lineage, TableUse
from airflow_provider_fds.operators.lineage.spark_lineage import DENIED_NODES, REMOVED_PATH, agent_settings

ORDERS = DeltaStream("orders", table="s3://lake/orders")
COLUMNS = [("id", "long"), ("Name", "string")]


def metadata(*columns):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return Metadata(id="t", schemaString=json.dumps({"type": "struct", "fields": fields}))


def lineage(sink, *columns, alias=None):
    source = TableUse("s3://lake/orders", 4, metadata(*COLUMNS), alias)
    sinks = tuple(TableUse(uri, 7, metadata(*columns)) for uri in sink.known_tables)
    return Lineage(ORDERS, source, sinks, sink, "u", {"rows": 3, "first_version": 2, "last_version": 4})


def copied(found):
    facet = operator_lineage(found).outputs[0].facets.get("columnLineage")
    return {} if facet is None else {name: value.inputFields[0].field for name, value in facet.fields.items()}


def test_a_column_of_the_sink_is_a_copy_of_the_column_of_its_name_in_any_case():
    sink = DeltaAppendSink("s3://lake/bronze", provenance=True)
    assert copied(lineage(sink, ("ID", "long"), ("name", "string"), ("_source_version", "long"))) == {
        "ID": "id",
        "name": "Name",
    }


def test_only_chosen_columns_are_copies():
    sink = DeltaMergeSink("s3://lake/merged", keys=["id"], columns=["id"])
    assert copied(lineage(sink, *COLUMNS)) == {"id": "id"}


def test_a_transform_hides_what_the_columns_are_made_of():
    assert copied(lineage(DeltaAppendSink("s3://lake/bronze", transform="a:b"), *COLUMNS)) == {}


def test_nested_columns_are_shown_as_the_spark_agent_shows_them():
    item = {"type": "struct", "fields": [{"name": "sku", "type": "string", "nullable": True, "metadata": {}}]}
    nested = {"type": "array", "elementType": item, "containsNull": True}
    tags = {"type": "map", "keyType": "string", "valueType": "decimal(10,2)", "valueContainsNull": True}
    found = lineage(DeltaAppendSink("s3://lake/bronze"), ("items", nested), ("tags", tags))
    items, shown_tags = operator_lineage(found).outputs[0].facets["schema"].fields
    assert (items.name, items.type, items.fields[0].name, items.fields[0].type) == (
        "items",
        "array",
        "_element",
        "struct",
    )
    assert items.fields[0].fields[0].name == "sku"
    assert [(one.name, one.type) for one in shown_tags.fields] == [("key", "string"), ("value", "decimal(10,2)")]


def test_the_tables_of_a_function_are_outputs_and_staging_is_another_name_of_the_source():
    sink = ForeachBatchSink("jobs:load", {"a": "s3://lake/a", "b": "s3://lake/b"})
    found = operator_lineage(lineage(sink, *COLUMNS, alias="s3://lake/_fds/orders"))
    assert [(one.namespace, one.name) for one in found.outputs] == [("s3://lake", "a"), ("s3://lake", "b")]
    # the rows of one are not those of the other
    assert not any(one.outputFacets for one in found.outputs)
    (symlink,) = found.inputs[0].facets["symlinks"].identifiers
    assert (symlink.namespace, symlink.name) == ("s3://lake", "_fds/orders")


@pytest.fixture
def made(monkeypatch):
    """Return a function that makes the settings of the agent."""
    from airflow.providers.common.compat.openlineage.utils import spark

    parent = {"spark.openlineage.parentRunId": "r"}
    monkeypatch.setattr(
        spark, "inject_parent_job_information_into_spark_properties", lambda conf, _: {**conf, **parent}
    )
    monkeypatch.setattr(
        spark,
        "inject_transport_information_into_spark_properties",
        lambda conf, _: {**conf, "spark.openlineage.transport.type": "http"},
    )

    def make(conf, sink, *, is_on=True, injects_parent=False, injects_transport=False):
        monkeypatch.setattr(spark_lineage.lineage, "is_on", lambda: is_on)
        context = {"ti": SimpleNamespace()}
        return agent_settings(conf, context, sink, injects_parent=injects_parent, injects_transport=injects_transport)

    return make


def test_the_agent_is_told_its_parent_and_to_leave_out_the_writes_of_fds(made):
    found = made({}, DeltaAppendSink("s3://lake/bronze"))
    assert set(found) == {"spark.openlineage.parentRunId", DENIED_NODES}


def test_the_agent_reports_the_writes_of_a_function(made):
    assert set(made({}, ForeachBatchSink("jobs:load"))) == {"spark.openlineage.parentRunId", REMOVED_PATH}


def test_settings_of_the_user_are_kept(made):
    conf = {DENIED_NODES: "[]", "spark.executor.memory": "1g"}
    assert set(made(conf, DeltaAppendSink("s3://lake/bronze"))) == {"spark.openlineage.parentRunId"}


def test_without_openlineage_in_airflow_the_agent_gets_what_the_user_asks_for(made):
    sink = DeltaAppendSink("s3://lake/bronze")
    assert made({}, sink, is_on=False) == {}
    assert set(made({}, sink, is_on=False, injects_parent=True)) == {"spark.openlineage.parentRunId"}
    assert set(made({}, sink, is_on=False, injects_transport=True)) == {"spark.openlineage.transport.type"}


def test_a_fleet_names_each_table_once_at_its_newest_version():
    def one(name, table, sink, version, rows):
        result = {"rows": rows, "rows_read": rows, "files": 1, "bytes": 9} if rows else {}
        stream = DeltaStream(name, table=f"s3://lake/{table}")
        uses = TableUse(f"s3://lake/{table}", version), (TableUse(f"s3://lake/{sink}", version),)
        return Lineage(stream, *uses, DeltaAppendSink(f"s3://lake/{sink}"), "u", result)

    found = fleet_lineage([one("a", "a", "all", 3, 5), one("b", "b", "all", 4, 6), one("c", "b", "c", None, 0)])
    inputs = {dataset.name: dataset for dataset in found.inputs}
    assert list(inputs) == ["a", "b"]
    assert inputs["b"].facets["version"].datasetVersion == "4"
    assert inputs["b"].inputFacets["inputStatistics"].rowCount == 6
    outputs = {dataset.name: dataset for dataset in found.outputs}
    assert list(outputs) == ["all", "c"]
    assert (outputs["all"].facets["version"].datasetVersion, outputs["all"].outputFacets) == ("4", {})
    assert outputs["c"].facets == {}
    assert fleet_lineage([]).inputs == []
