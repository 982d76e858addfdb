from __future__ import annotations

import json

import pytest

from airflow_provider_fds.delta.actions import Metadata, Protocol
from airflow_provider_fds.delta.schema import schema_change

NAME_MODE = {"delta.columnMapping.mode": "name"}
WIDENING = Protocol(3, 7, ("typeWidening",), ("typeWidening",))
PLAIN = Protocol(1, 2)


def f(name, type_="long", *, nullable=True, physical=None, **metadata):
    if physical:
        metadata["delta.columnMapping.physicalName"] = physical
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def array(element, *, nulls=True):
    return {"type": "array", "elementType": element, "containsNull": nulls}


def map_(key, value, *, nulls=True):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}


def table(*fields, partitions=(), configuration=None):
    return Metadata("t", json.dumps(struct(*fields)), tuple(partitions), configuration or {})


def kind(old, new, protocol=PLAIN):
    return schema_change(old, new, protocol).kind


@pytest.mark.parametrize(
    "new",
    [
        table(f("a"), f("b", "string")),
        table(f("b", "string"), f("a")),
        table(f("a", comment="words"), f("b", "string"), configuration={"delta.appendOnly": "true"}),
        Metadata("t", table(f("a"), f("b", "string")).schemaString, name="x", description="y", createdTime=1),
    ],
)
def test_order_comments_and_properties_change_no_rows(new):
    assert schema_change(table(f("a"), f("b", "string")), new) == schema_change(new, new)
    assert schema_change(new, new).kind == "none"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (table(f("a")), table(f("a"), f("b", "string")), "+ b: string"),
        (table(f("s", struct(f("x")))), table(f("s", struct(f("x"), f("y")))), "+ s.y: long"),
        (table(f("s", array(struct(f("x"))))), table(f("s", array(struct(f("x"), f("y"))))), "+ s.element.y: long"),
        (table(f("m", map_("string", struct()))), table(f("m", map_("string", struct(f("y"))))), "+ m.value.y: long"),
        (table(f("a", nullable=False)), table(f("a")), "~ a: not null -> nullable"),
        (table(f("a", array("long", nulls=False))), table(f("a", array("long"))), "~ a.element: not null -> nullable"),
        (
            table(f("a", map_("string", "long", nulls=False))),
            table(f("a", map_("string", "long"))),
            "~ a.value: not null -> nullable",
        ),
        (table(f("a", "void")), table(f("a", "string")), "~ a: void -> string"),
    ],
)
def test_a_change_that_reads_old_rows_the_same_is_additive(old, new, words):
    change = schema_change(old, new, PLAIN)
    assert change.kind == "additive"
    assert change.diff == (words,)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (table(f("a"), f("b")), table(f("a")), "- b: long"),
        (table(f("s", struct(f("x"), f("y")))), table(f("s", struct(f("x")))), "- s.y: long"),
        (table(f("a")), table(f("A")), "~ a -> A"),
        (table(f("a")), table(f("a"), f("b", nullable=False)), "+ b: long not null"),
        (table(f("a")), table(f("a", nullable=False)), "~ a: nullable -> not null"),
        (table(f("a", array("long"))), table(f("a", array("long", nulls=False))), "~ a.element: nullable -> not null"),
        (table(f("a", "long")), table(f("a", "string")), "~ a: long -> string"),
        (table(f("a", "long")), table(f("a", struct(f("x")))), "~ a: long -> struct<x: long>"),
        (table(f("a"), f("p")), table(f("a"), f("p"), partitions=["p"]), "~ partition columns: none -> p"),
        (
            table(f("a"), f("b"), partitions="ab"),
            table(f("a"), f("b"), partitions="ba"),
            "~ partition columns: a, b -> b, a",
        ),
        (table(f("a", "newtype(1)")), table(f("a", "newtype(2)")), "~ a: newtype(1) -> newtype(2)"),
        (table(f("a")), Metadata("t", "{torn"), "~ schema: not JSON that can be compared"),
    ],
)  # fmt: skip
def test_anything_else_is_breaking(old, new, words):
    change = schema_change(old, new, PLAIN)
    assert change.kind == "breaking"
    assert change.diff == (words,)


def test_types_that_are_not_known_are_the_same_by_their_text():
    assert kind(table(f("a", "geometry(OGC:CRS84)")), table(f("a", "geometry(OGC:CRS84)"))) == "none"
    odd = {"type": "udt", "class": "x", "sqlType": "string"}
    assert kind(table(f("a", odd)), table(f("a", dict(odd)))) == "none"
    assert kind(table(f("a", odd)), table(f("a", {**odd, "class": "y"}))) == "breaking"


WIDER = [
    ("byte", "short"), ("short", "integer"), ("byte", "long"), ("integer", "long"), ("float", "double"),
    ("integer", "double"), ("date", "timestamp_ntz"), ("decimal(5,2)", "decimal(7,2)"),
    ("decimal(5,2)", "decimal(7,4)"), ("integer", "decimal(10,0)"), ("byte", "decimal(12,2)"),
    ("long", "decimal(20,0)"),
]  # fmt: skip
NOT_WIDER = [
    ("long", "integer"), ("long", "double"), ("double", "float"), ("integer", "string"), ("integer", "float"),
    ("decimal(5,2)", "decimal(6,4)"), ("decimal(7,2)", "decimal(5,2)"), ("integer", "decimal(9,0)"),
    ("long", "decimal(19,0)"), ("date", "timestamp"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_a_wider_type_is_additive_with_the_feature_and_breaking_without(old, new):
    for wrap in (lambda t: t, array, lambda t: map_("string", t), lambda t: struct(f("x", t))):
        assert kind(table(f("a", wrap(old))), table(f("a", wrap(new))), WIDENING) == "additive"
        assert kind(table(f("a", wrap(old))), table(f("a", wrap(new)))) == "breaking"


@pytest.mark.parametrize(("old", "new"), NOT_WIDER)
def test_a_type_that_is_not_wider_is_breaking_even_with_the_feature(old, new):
    assert kind(table(f("a", old)), table(f("a", new)), WIDENING) == "breaking"


def test_without_a_protocol_the_table_property_allows_widening():
    old, new = table(f("a", "integer")), table(f("a", "long"), configuration={"delta.enableTypeWidening": "true"})
    assert schema_change(old, new).kind == "additive"
    assert schema_change(old, table(f("a", "long"))).kind == "breaking"


# column mapping


def mapped(*fields, mode="name", partitions=()):
    return table(*fields, partitions=partitions, configuration={"delta.columnMapping.mode": mode})


def test_with_column_mapping_a_rename_is_seen_as_one():
    change = schema_change(mapped(f("a", physical="c1")), mapped(f("b", physical="c1")))
    assert change.kind == "breaking"
    assert change.diff == ("~ a -> b",)


def test_a_renamed_partition_column_is_a_rename_only():
    one, two = (mapped(f(name, physical="c1"), partitions=[name]) for name in ("p", "q"))
    assert schema_change(one, two).diff == ("~ p -> q",)
    other = mapped(f("q", physical="c1"), f("r", physical="c2"), partitions=["q", "r"])
    assert "~ partition columns: p -> q, r" in schema_change(one, other).diff


@pytest.mark.parametrize(
    ("old", "new", "protocol", "kinds"),
    [
        (table(f("a")), table(f("a"), f("b")), PLAIN, ["add"]),
        (table(f("a", "integer")), table(f("a")), WIDENING, ["widen"]),
        (table(f("a", "void")), table(f("a")), PLAIN, ["widen"]),
        (table(f("a", "integer")), table(f("a")), PLAIN, ["type"]),
        (table(f("a")), table(f("A")), PLAIN, ["rename"]),
        (mapped(f("a", physical="c")), mapped(f("b", physical="c")), PLAIN, ["rename"]),
        (table(f("a"), f("b")), table(f("b")), PLAIN, ["drop"]),
        (table(f("a")), table(f("a"), f("b", nullable=False)), PLAIN, ["other"]),
        (table(f("a", nullable=False)), table(f("a")), PLAIN, ["other"]),
        (table(f("a"), f("b", "integer")), table(f("b"), f("c")), WIDENING, ["drop", "widen", "add"]),
    ],
)
def test_each_difference_has_a_kind_and_those_that_break_come_first(old, new, protocol, kinds):
    assert [change.kind for change in schema_change(old, new, protocol).columns] == kinds


def test_a_long_type_is_shortened():
    wide = struct(*(f(f"field_{n}") for n in range(50)))
    (line,) = schema_change(table(f("a")), table(f("a"), f("s", wide))).diff
    assert line.startswith("+ s: struct<field_0: long, field_1: long")
    assert len(line) < 110


def test_with_column_mapping_a_nested_rename_is_seen_as_one():
    old = mapped(f("s", struct(f("x", physical="c2")), physical="c1"))
    new = mapped(f("s", struct(f("y", physical="c2")), physical="c1"))
    assert schema_change(old, new).diff == ("~ s.x -> s.y",)


def test_a_dropped_column_that_comes_back_by_name_is_another_column():
    change = schema_change(mapped(f("a", physical="c1")), mapped(f("a", physical="c9")))
    assert change.diff == ("- a: long", "+ a: long")
    assert change.kind == "breaking"


def test_adding_a_column_under_column_mapping_is_additive():
    assert kind(mapped(f("a", physical="c1")), mapped(f("a", physical="c1"), f("b", physical="c2"))) == "additive"


def test_switching_column_mapping_on_is_additive_when_nothing_else_changed():
    assert kind(table(f("a")), mapped(f("a", physical="a"))) == "additive"
    assert kind(table(f("a")), mapped(f("b", physical="a"))) == "breaking"
    assert kind(table(f("a")), mapped(f("a", physical="c1"))) == "breaking"


@pytest.mark.parametrize(("old", "new"), [("name", "none"), ("id", "none"), ("name", "id"), ("id", "name")])
def test_any_other_change_of_the_mapping_mode_is_breaking(old, new):
    fields = f("a", physical="a")
    assert kind(mapped(fields, mode=old), mapped(fields, mode=new)) == "breaking"
