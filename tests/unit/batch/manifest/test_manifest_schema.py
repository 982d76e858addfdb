"""The schema a batch is read under."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.manifest.manifest_schema import ManifestSchema, manifest_schema
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.errors import ConfigurationError


def built(metadata: Metadata) -> ManifestSchema:
    return manifest_schema(metadata, with_row_ids=False, table="file:///t", version=4)


def fields(schema: ManifestSchema) -> list[dict]:
    return json.loads(schema.schema_string)["fields"]


def column(name: str, kind: object = "long", *, nullable: bool = False, **metadata: object) -> dict:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def test_everything_becomes_nullable_at_any_depth(metadata):
    inner = {"type": "struct", "fields": [column("x")]}
    array = {"type": "array", "elementType": inner, "containsNull": False}
    nested = {"type": "map", "keyType": inner, "valueType": array, "valueContainsNull": False}

    schema = built(metadata(column("id"), column("n", nested)))

    assert "false" not in schema.schema_string
    kind = fields(schema)[1]["type"]
    assert kind["valueContainsNull"]
    assert kind["valueType"]["containsNull"]
    assert kind["keyType"]["fields"][0]["nullable"]
    assert kind["valueType"]["elementType"]["fields"][0]["nullable"]


def test_writer_features_are_removed_and_the_rest_stays(metadata):
    kept = {
        "comment": "é",
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}],
        "__CHAR_VARCHAR_TYPE_STRING": "char(3)",
        "mine": 1,
    }
    dropped = {
        "CURRENT_DEFAULT": "1",
        "EXISTS_DEFAULT": "1",
        "delta.generationExpression": "id + 1",
        "delta.invariants": '{"expression":{"expression":"id > 0"}}',
        "delta.identity.start": 1,
        "delta.identity.highWaterMark": 9223372036854775807,
    }
    inner = {"type": "struct", "fields": [column("x", **{"delta.invariants": "1", "comment": "c"})]}

    schema = built(metadata(column("id", **kept, **dropped), column("s", inner)))

    assert fields(schema)[0]["metadata"] == kept
    assert fields(schema)[1]["type"]["fields"][0]["metadata"] == {"comment": "c"}


def test_a_user_defined_type_is_left_alone(metadata):
    udt = {
        "type": "udt",
        "class": "org.Point",
        "sqlType": {"type": "array", "elementType": "double", "containsNull": False},
    }

    assert fields(built(metadata(column("p", udt))))[0]["type"] == udt


def test_version_and_time_are_added_as_the_last_partition_columns(metadata):
    schema = built(metadata(("id", "long"), ("p", "string"), partition_columns=("p",)))

    assert [(f["name"], f["type"]) for f in fields(schema)[2:]] == [
        ("_commit_version", "long"),
        ("_commit_timestamp", "timestamp"),
    ]
    assert schema.partition_columns == ("p", "_commit_version", "_commit_timestamp")
    assert (schema.version_key, schema.timestamp_key) == ("_commit_version", "_commit_timestamp")


def test_in_a_mapped_table_the_added_columns_get_ids_and_names_that_nothing_else_has(metadata):
    ids = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-x"}
    source = metadata(column("id", **ids), delta__columnMapping__mode="name", delta__columnMapping__maxColumnId="8")

    schema = built(source)

    added = [f["metadata"] for f in fields(schema)[1:]]
    assert [m["delta.columnMapping.id"] for m in added] == [9, 10]
    assert [m["delta.columnMapping.physicalName"] for m in added] == [schema.version_key, schema.timestamp_key]
    assert schema.version_key.startswith("col-")
    assert schema.version_key != schema.timestamp_key
    assert schema.configuration == {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "10"}
    assert schema == built(source)


@pytest.mark.parametrize("recorded", ["2", None])
def test_a_highest_id_that_is_recorded_too_low_is_not_trusted(metadata, recorded):
    inner = {"type": "struct", "fields": [column("x", **{"delta.columnMapping.id": 5})]}
    recorded_id = {"delta__columnMapping__maxColumnId": recorded} if recorded else {}

    schema = built(metadata(column("s", inner), delta__columnMapping__mode="id", **recorded_id))

    assert schema.configuration["delta.columnMapping.maxColumnId"] == "7"


def test_mode_none_is_not_a_mapping(metadata):
    schema = built(metadata(delta__columnMapping__mode="none"))

    assert schema.version_key == "_commit_version"
    assert fields(schema)[1]["metadata"] == {}


@pytest.mark.parametrize("name", ["_commit_version", "_Commit_Timestamp"])
def test_a_source_with_a_column_of_that_name_is_refused_with_the_way_out(metadata, name):
    with pytest.raises(ConfigurationError, match=rf"file:///t has the column {name} at version 4.*Rename the column"):
        built(metadata(("id", "long"), (name, "string")))


def test_a_nested_field_of_that_name_is_not_a_conflict(metadata):
    built(metadata(column("s", {"type": "struct", "fields": [column("_commit_version")]})))


@pytest.mark.parametrize("text", ["", '{"type":"struct","fields":[]}'])
def test_a_table_without_columns_has_the_added_ones_only(text):
    schema = built(Metadata(id="x", schemaString=text))

    assert [f["name"] for f in fields(schema)] == ["_commit_version", "_commit_timestamp"]


def test_only_the_chosen_columns_are_there_in_the_order_of_the_table(metadata):
    source = metadata(("a", "long"), ("p", "string"), ("b", "string"), ("q", "int"), partition_columns=("q", "p"))
    schema = manifest_schema(source, with_row_ids=False, table="file:///t", version=4, columns=("P", "a"))
    assert [field["name"] for field in fields(schema)] == ["a", "p", "_commit_version", "_commit_timestamp"]
    assert schema.partition_columns == ("p", "_commit_version", "_commit_timestamp")
    assert schema.hidden_keys == {"q"}


def test_a_hidden_partition_column_of_a_mapped_table_is_known_by_its_physical_name(metadata):
    ids = {"delta.columnMapping.id": 9, "delta.columnMapping.physicalName": "col-q"}
    others = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-a"}
    source = metadata(
        column("a", **others), column("q", **ids), partition_columns=("q",), delta__columnMapping__mode="name"
    )
    schema = manifest_schema(source, with_row_ids=False, table="file:///t", version=4, columns=("a",))
    assert schema.hidden_keys == {"col-q"}
    # ids that the source has assigned are never assigned again
    assert [field["metadata"]["delta.columnMapping.id"] for field in fields(schema)] == [3, 10, 11]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pirce", "'pirce', which the table does not have. Did you mean 'Price'?"),
        ("zzz", "'zzz', which the table does not have. Its columns are Price, st"),
        ("st.x", "'st.x'; a column is read whole. Use 'st'"),
    ],
)
def test_a_column_that_the_table_lacks_is_refused_with_the_nearest(metadata, name, words):
    source = metadata(("Price", "long"), ("st", {"type": "struct", "fields": [column("x")]}))
    with pytest.raises(ConfigurationError) as caught:
        manifest_schema(source, with_row_ids=False, table="file:///t", version=4, columns=(name, "price"))
    assert words in str(caught.value)
    assert (caught.value.version, caught.value.reason_code) == (4, "INVALID_OPTION")
