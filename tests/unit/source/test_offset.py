"""Offsets: Delta's wire format to the byte, order, and what is refused. Numbers: conformance cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_fds.errors import ConfigurationError, TableReplacedError
from airflow_provider_fds.source.offset import BASE_INDEX, Offset

TABLE_ID = "6f2a1c1e-0000-4000-8000-000000000001"


def wire(**changes: object) -> str:
    import json

    value = {
        "sourceVersion": 1,
        "reservoirId": TABLE_ID,
        "reservoirVersion": 7,
        "index": 3,
        "isStartingVersion": False,
        **changes,
    }
    return json.dumps({k: v for k, v in value.items() if v is not ...})


def test_an_offset_is_written_as_delta_writes_it() -> None:
    assert Offset(TABLE_ID, 7, 3, is_initial_snapshot=True).to_json() == (
        f'{{"sourceVersion":1,"reservoirId":"{TABLE_ID}","reservoirVersion":7,"index":3,"isStartingVersion":true}}'
    )


def test_13_the_base_index_is_minus_one_on_the_wire_and_minus_hundred_in_memory() -> None:
    offset = Offset.from_json(wire(index=-1))
    assert offset == Offset(TABLE_ID, 7, BASE_INDEX)
    assert BASE_INDEX == -100
    assert '"sourceVersion":1,' in offset.to_json()
    assert '"index":-1,' in offset.to_json()


def test_13_format_3_is_read_and_its_base_written_back_as_format_1() -> None:
    offset = Offset.from_json(wire(sourceVersion=3, index=-100))
    assert offset == Offset(TABLE_ID, 7)
    assert Offset.from_json(offset.to_json()) == offset
    assert '"sourceVersion":1,' in offset.to_json()


@pytest.mark.parametrize("index", [-20, -19])
def test_13_the_metadata_indexes_of_format_3_round_trip(index: int) -> None:
    offset = Offset.from_json(wire(sourceVersion=3, index=index))
    assert offset.index == index
    assert offset.next_index == 0
    assert '"sourceVersion":3,' in offset.to_json()
    assert Offset.from_json(offset.to_json()) == offset


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (wire(sourceVersion=4), ["sourceVersion 4", "reads 1 and 3", "update FDS"]),
        (wire(sourceVersion=2), ["sourceVersion 2", "1 and 3"]),
        (wire(sourceVersion=0), ["sourceVersion 0", "1 and 3"]),
        (wire(sourceVersion=...), ["sourceVersion None", "1 and 3"]),
        (wire(sourceVersion="foo"), ["sourceVersion is 'foo'"]),
        (wire(sourceVersion=True), ["sourceVersion is True"]),
        ("{", ["not JSON", "reservoirId"]),
        ("[1]", ["expected a JSON object"]),
        (wire(reservoirVersion="7"), ["reservoirVersion", "'7'"]),
        (wire(reservoirVersion=-1), ["reservoirVersion", "-1"]),
        (wire(reservoirId=""), ["reservoirId"]),
        (wire(index=-2), ["index", "-2"]),
        (wire(index=1.5), ["index", "1.5"]),
        (wire(sourceVersion=3, index=-1), ["index", "-1"]),
        (wire(index=2**63 - 1 - 100), ["index"]),
        (wire(isStartingVersion="false"), ["isStartingVersion", "'false'"]),
        (wire(index=..., isStartingVersion=...), ["index, isStartingVersion missing"]),
    ],
)
def test_14_an_invalid_offset_is_refused_with_the_reason(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Offset.from_json(text)
    for word in words:
        assert word in str(caught.value)


def test_14_all_problems_of_an_offset_are_reported_together() -> None:
    with pytest.raises(ConfigurationError, match=r"reservoirVersion.*index"):
        Offset.from_json(wire(reservoirVersion=None, index="x"))


def test_15_and_16_an_offset_of_another_table_is_refused_with_both_ids() -> None:
    Offset(TABLE_ID, 7).ensure_table(TABLE_ID, table="s3://lake/t")
    with pytest.raises(TableReplacedError) as caught:
        Offset(TABLE_ID, 7).ensure_table("other", table="s3://lake/t")
    assert TABLE_ID in str(caught.value)
    assert "other" in str(caught.value)
    assert caught.value.table == "s3://lake/t"
    assert caught.value.version == 7


def test_15_offsets_of_two_tables_have_no_order() -> None:
    for compare in (Offset.__lt__, Offset.__le__, Offset.__gt__, Offset.__ge__):
        with pytest.raises(ConfigurationError, match="different tables"):
            compare(Offset("a", 1), Offset("b", 2))


def test_offsets_are_ordered_by_version_then_index_and_the_flag_takes_no_part() -> None:
    base, first, nearly = Offset("t", 5), Offset("t", 5, 0), Offset("t", 5, 10**9)
    assert base < first < nearly < Offset.after(5, "t")
    assert Offset("t", 5, is_initial_snapshot=True) <= base
    assert Offset("t", 5, is_initial_snapshot=True) >= base
    assert Offset("t", 5, is_initial_snapshot=True) != base
    assert not first > nearly


@pytest.mark.parametrize(
    ("begin", "start", "reads_all"),
    [
        (Offset("t", 5), Offset("t", 5), True),
        (Offset("t", 5), Offset("t", 5, 2), True),
        (Offset("t", 5, 2), Offset("t", 5), False),
        (Offset("t", 5), Offset("t", 5, is_initial_snapshot=True), False),
        (Offset("t", 3), Offset("t", 5, 7, is_initial_snapshot=True), False),
        (Offset("t", 0), Offset("t", 5, is_initial_snapshot=True), True),
        (Offset("t", 5, is_initial_snapshot=True), Offset("t", 3), True),
        (Offset("t", 5, 2, is_initial_snapshot=True), Offset("t", 5, 2, is_initial_snapshot=True), True),
        (Offset("t", 5, 3, is_initial_snapshot=True), Offset("t", 5, 2, is_initial_snapshot=True), False),
        (Offset("t", 5, 2, is_initial_snapshot=True), Offset("t", 7, is_initial_snapshot=True), False),
        (Offset("t", 5, 2, is_initial_snapshot=True), Offset("t", 5), False),
        (Offset("t", 5, 2, is_initial_snapshot=True), Offset("t", 6), True),
    ],
)
def test_a_commit_has_the_rows_that_were_added_in_it_and_a_snapshot_all_rows_of_the_table(begin, start, reads_all):
    assert begin.reads_all_of(start) is reads_all


@pytest.mark.parametrize(
    ("begin", "end", "reads_rows"),
    [
        (Offset("t", 5), Offset("t", 5), False),
        (Offset("t", 5), Offset("t", 5, 0), True),
        (Offset("t", 6), Offset("t", 5, 7, is_initial_snapshot=True), False),
        (Offset("t", 5, 9), Offset("t", 5, 7, is_initial_snapshot=True), True),
        (Offset("t", 5, is_initial_snapshot=True), Offset("t", 3), True),
        (Offset("t", 5, is_initial_snapshot=True), Offset("t", 5, is_initial_snapshot=True), False),
        (Offset("t", 5, 3, is_initial_snapshot=True), Offset("t", 5, 3, is_initial_snapshot=True), False),
        (Offset("t", 5, 3, is_initial_snapshot=True), Offset("t", 5, 4, is_initial_snapshot=True), True),
    ],
)
def test_rows_are_read_again_from_any_position_before_them_and_from_a_snapshot_of_them(begin, end, reads_rows):
    assert begin.reads_rows_up_to(end) is reads_rows


def test_a_version_consumed_whole_is_the_base_of_the_next() -> None:
    assert Offset.after(5, "t") == Offset("t", 6, BASE_INDEX, is_initial_snapshot=False)


@given(
    st.builds(
        Offset,
        st.text(min_size=1, alphabet=st.characters(codec="utf-8")),
        st.integers(0, 2**62),
        st.one_of(st.just(BASE_INDEX), st.integers(0, 2**62), st.sampled_from([-20, -19])),
        is_initial_snapshot=st.booleans(),
    )
)
def test_every_offset_survives_its_wire_format(offset: Offset) -> None:
    assert Offset.from_json(offset.to_json()) == offset
    assert Offset.from_json(offset.to_json().encode()).to_json() == offset.to_json()
