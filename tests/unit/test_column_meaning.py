"""Which column of the source feeds which of the sink once names have moved, and what puts a sink right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_fds.batch.column_meaning import (
    SinkChange,
    column_ids,
    column_types,
    describe_moved,
    fed_after,
    moved_columns,
    renamed_in_sink,
)

FED = {"id": "c1", "x": "c2", "y": "c3", "s": "c4", "s.x": "c4/c5", "s.y": "c4/c6"}
TYPES = dict.fromkeys(FED, "string")


def schema(*fields: tuple[str, str | None, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {} if physical is None else {"delta.columnMapping.physicalName": physical},
            }
            for name, physical, kind in fields
        ],
    }


def test_a_column_is_its_physical_name_within_those_of_the_columns_around_it() -> None:
    inner = schema(("B", "p3", "long"))
    mapped = schema(
        ("Id", "p1", "long"),
        ("a", "p2", {"type": "array", "elementType": inner, "containsNull": True}),
        ("m", "p4", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}),
        ("dotted.name", "p5", "date"),
    )
    assert column_ids(mapped) == {
        "id": "p1", "a": "p2", "a.element.b": "p2/element/p3", "m": "p4", "m.value.b": "p4/value/p3",
        "`dotted.name`": "p5",
    }  # fmt: skip
    assert column_types(mapped)["a"] == "array<struct<B:bigint>>"
    assert column_ids(schema(("Id", None, "long"))) == {"id": "Id"}


def moved(batch: dict[str, str], *, by_key: bool = True, fed: dict[str, str] = FED) -> list[str]:
    return moved_columns(fed, batch, fed, by_key=by_key)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"x": "c9"}, ["x"]),
        ({"y": "c2", "x": None}, ["y"]),
        ({"x": "c3", "y": "c2"}, ["x", "y"]),
        ({"x": None, "z": "c9"}, []),
        ({"s.x": "c4/c9"}, ["s.x"]),
        ({"s": "c9", "s.x": "c9/c5", "s.y": "c9/c6"}, ["s"]),
    ],
)
def test_a_name_that_has_become_another_column_is_found_for_every_sink(
    changed: dict[str, str | None], expected: list[str]
) -> None:
    batch = {path: identity for path, identity in {**FED, **changed}.items() if identity is not None}
    assert moved(batch) == moved(batch, by_key=False) == expected


def test_a_renamed_column_is_found_only_where_rows_are_updated_by_key() -> None:
    batch = {path: identity for path, identity in {**FED, "z": "c2"}.items() if path != "x"}
    assert moved(batch) == ["z"]
    assert moved(batch, by_key=False) == []
    # an append has the values under both names, a merge only under the newest
    assert fed_after(FED, batch, by_key=False) == {**FED, "z": "c2"}
    assert fed_after(FED, batch, by_key=True) == batch


def test_a_column_that_the_sink_does_not_have_is_not_compared() -> None:
    assert moved_columns(FED, {"x": "c9"}, ["id", "y"], by_key=True) == []


def change(operation: str, sets_schema: bool = True, **parameters: Any) -> SinkChange:
    return SinkChange(operation, parameters, sets_schema)


def test_the_names_follow_the_statements_of_the_sink() -> None:
    added = json.dumps([{"column": {"name": "s.Y", "type": "string"}}])
    changes = [
        change("RENAME COLUMN", oldColumnPath="x", newColumnPath="Z"),
        change("RENAME COLUMN", oldColumnPath="s", newColumnPath="t"),
        change("DROP COLUMNS", columns='["y"]'),
        change("ADD COLUMNS", columns=added),
        change("WRITE", sets_schema=False, mode="Overwrite"),
        change("SET TBLPROPERTIES", properties="{}"),
        change("WRITE", mode="Overwrite", predicate='["true"]'),
    ]
    assert renamed_in_sink(FED, changes) == {"id": "c1", "z": "c2", "t": "c4", "t.x": "c4/c5", "t.y": "c4/c6"}
    assert renamed_in_sink(FED, [change("WRITE", mode="Overwrite")]) == {}
    assert renamed_in_sink(FED, [change("CREATE OR REPLACE TABLE")]) == {}
    # what cannot be read counts as nothing
    assert renamed_in_sink(FED, [change("DROP COLUMNS", columns="no list"), change("RENAME COLUMN")]) == FED


def statements(batch: dict[str, str], **more: Any) -> list[str]:
    text = describe_moved(moved(batch), FED, batch, TYPES, TYPES, path="/t", **more)
    return [line.strip() for line in text.splitlines()[1:]]


def test_a_field_in_the_way_is_dropped_where_a_merge_needs_the_same_fields() -> None:
    batch = {**FED, "s.x": "c4/c9", "x": "c8"}
    assert [line.split("` ", 1)[1] for line in statements(batch, by_key=True)[1:]] == [
        "DROP COLUMN `s`.`x`;",
        "RENAME COLUMN `x` TO `x_old`;",
        "ADD COLUMNS (`x` string);",
        "ADD COLUMNS (`s`.`x` string);",
    ]
    assert "RENAME COLUMN `s`.`x` TO `x_old`;" in " ".join(statements(batch))


def applied(lines: list[str], columns: dict[str, str]) -> dict[str, str]:
    """The columns of a sink after statements, each of which Delta accepts."""
    columns = dict(columns)
    for line in lines[1:]:
        words = line.removeprefix("ALTER TABLE delta.`/t` ").rstrip(";").replace("`", "").split()
        if words[0] == "RENAME":
            old, new = words[2], ".".join([*words[2].split(".")[:-1], words[4]])
            assert new not in columns, line
            columns[new] = columns.pop(old)
        else:
            assert words[:2] == ["ADD", "COLUMNS"]
            assert words[2].strip("(") not in columns, line
            columns[words[2].strip("(")] = "new"
    return columns


@pytest.mark.parametrize(
    "changed",
    [
        {"x": "c9"},
        {"y": "c2", "x": None},
        {"x": "c3", "y": "c2"},
        {"x": "c3", "y": "c2", "id": "c9"},
        {"id": "c2", "x": "c3", "y": "c1"},
        {"s.x": "c4/c6", "s.y": "c4/c5"},
        {"z": "c2", "x": "c9"},
    ],
)
def test_the_statements_leave_each_column_under_its_name(changed: dict[str, str | None]) -> None:
    batch = {path: identity for path, identity in {**FED, **changed}.items() if identity is not None}
    lines = statements(batch)
    assert lines[0] == "ALTER TABLE delta.`/t` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');"
    found = applied(lines, FED)
    known = set(FED.values())
    for path in moved(batch):
        assert found[path] == (batch[path] if batch[path] in known else "new")


def test_a_key_without_values_in_the_sink_cannot_be_put_right_by_statements() -> None:
    text = describe_moved(["id"], FED, {**FED, "id": "c9"}, TYPES, TYPES, path="/t", keys=["ID"])
    assert "no values of the new key ID" in text
    assert "`fds replan STREAM --new-sink" in text
    assert "ALTER TABLE" not in text
    assert len(statements({**FED, "id": "c2", "x": "c1"}, keys=["id"])) == 4
