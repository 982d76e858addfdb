"""Which types fit which, for all pairs, and how a misfit is described."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.batch.column_fit import Widening, column_fit, describe_misfit, fit, widening_of

TYPES = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(10,0)", "decimal(10,2)", "decimal(12,2)",
    "decimal(12,4)", "decimal(22,2)", "string", "binary", "date", "timestamp", "timestamp_ntz", "variant",
)  # fmt: skip

#: The types, in order, whose values the first one holds.
EXACT = {
    "short": "byte",
    "integer": "byte short",
    "long": "byte short integer",
    "double": "byte short integer float",
    "decimal(10,0)": "byte short integer",
    "decimal(12,2)": "byte short integer decimal(10,0) decimal(10,2)",
    "decimal(12,4)": "decimal(10,2)",
    "decimal(22,2)": "byte short integer long decimal(10,0) decimal(10,2) decimal(12,2)",
    "timestamp_ntz": "date",
}
PAIRS = [(source, sink) for source in TYPES for sink in TYPES]


def expected(source: str, sink: str, widening: Widening) -> str:
    if source == sink:
        return "same"
    if source in EXACT.get(sink, "").split():
        return "exact"
    evolves = {"no": (), "int32": ("short", "integer"), "all": [kind for kind in EXACT if kind != "timestamp_ntz"]}
    return "widens" if source in evolves[widening] and sink in EXACT[source].split() else "unfit"


def schema(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def nested(kind: str) -> list[tuple[str, Any]]:
    """A type alone and inside each kind of nested type, with the path of the part that has it."""
    array = {"type": "array", "elementType": kind, "containsNull": True}
    inner = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
    key = {"type": "map", "keyType": kind, "valueType": "string", "valueContainsNull": True}
    return [
        ("v", kind),
        ("v.x", schema(x=kind)),
        ("v.element", array),
        ("v.key", key),
        ("v.value", inner),
        ("v.x.element.y", schema(x={**array, "elementType": schema(y=kind)})),
    ]


@pytest.mark.parametrize("widening", ["no", "int32", "all"])
def test_every_pair_of_types_has_one_answer_alone_and_inside_others(widening: Widening) -> None:
    for source, sink in PAIRS:
        answer = expected(source, sink, widening)
        assert fit(source, sink, widening) == answer, (source, sink)
        for (path, ours), (_, theirs) in zip(nested(source), nested(sink), strict=True):
            found = column_fit(schema(v=ours), schema(V=theirs), widening)
            assert [one.column for one in found.unfit] == ([path] if answer == "unfit" else []), (source, sink, path)
            assert [one.column for one in found.widened] == ([path] if answer == "widens" else [])
            assert found.casts == ({"v": theirs} if answer == "exact" else {})


def test_types_widen_only_with_schema_evolution_and_type_widening_of_the_table() -> None:
    enabled = {"delta.enableTypeWidening": "TRUE"}
    assert [widening_of(of, merge_schema=merges) for of in ({}, enabled) for merges in (False, True)] == [
        "no", "int32", "no", "all"
    ]  # fmt: skip


def test_a_null_fits_every_type_and_no_type_fits_a_nested_one() -> None:
    for kind in TYPES:
        assert fit("void", kind) == "exact"
        for _, other in nested(kind)[1:]:
            assert fit(kind, other) == fit(other, kind) == "unfit"
            assert fit("void", other) == "exact"


def test_fields_are_found_by_name_and_one_that_the_sink_lacks_is_missing() -> None:
    ours = schema(id="integer", s=schema(b="integer", A="string", new="date"), extra="date")
    theirs = schema(ID="long", S=schema(a="string", b="long", other="date"), other="date")
    found = column_fit(ours, theirs)
    assert [one.column for one in found.missing] == ["s.new", "extra"]
    # the batch keeps its own fields, in its order, under its names
    assert found.casts == {"id": "long", "s": schema(b="long", A="string", new="date")}
    assert [one.column for one in found.problems(adds=False)] == ["s.new", "extra"]
    assert found.problems(adds=True) == []


BATCH = schema(id="long", name="string", amount="double", day="date")


def described(batch: dict[str, Any], sink: dict[str, Any]) -> str:
    problems = column_fit(batch, sink).problems(adds=False)
    return describe_misfit(batch, sink, problems, "s3://lake/t", "DeltaAppendSink")


def test_missing_columns_and_other_types_are_shown_side_by_side() -> None:
    text = described(BATCH, schema(ID="string", amount="double", day="date", note="string"))
    assert text.startswith("the batch has columns name that the sink s3://lake/t lacks, and columns of types that")
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert lines == [
        ["column", "batch", "sink"],
        ["name", "string", "-"],
        ["id", "bigint", "string"],
        ["note", "-", "string"],
    ]
    assert "merge_schema=True" in text
    assert "`fds replan STREAM --new-sink" in text
    assert "may not be the table" not in text


def test_a_sink_that_has_hardly_any_of_the_columns_is_probably_a_mistyped_one() -> None:
    text = described(BATCH, schema(id="long", city="string"))
    assert "may not be the table that you mean: correct its URI, then run `fds replan STREAM --new-sink" in text


def test_wide_tables_stay_within_the_limit_of_a_report() -> None:
    wide = schema(**{f"field_{number}": "integer" for number in range(99)})
    columns = {f"column_{number}_{'x' * 40}": wide for number in range(100)}
    names = list(columns)
    text = described(schema(**{n: columns[n] for n in names[:90]}), schema(**{n: columns[n] for n in names[50:]}))
    assert "and 52 more" in text
    assert "and 42 more that the sink" in text
    assert len(text) < 1500
