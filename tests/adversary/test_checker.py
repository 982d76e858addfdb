"""The checker itself: it sees a lost row, a doubled row, a gap and a second stream; no JVM is needed."""

from __future__ import annotations

import json
from collections import Counter

import deltalake
import pyarrow as pa
import pytest

from tests.adversary.checker import Bounds, judge_chain, judge_keys
from tests.adversary.kinds_columns import wrong_values
from tests.adversary.kinds_ranges import judge_shared
from tests.adversary.play import Played, table_of
from tests.adversary.scene import Outcome, Scene, Stream, VerdictError
from tests.adversary.source import Source
from tests.adversary.ways import named


@pytest.fixture
def scene(tmp_path):
    return Scene("a test", 1, tmp_path / "scene", servers=None, host=None, commands=None)


def write(scene, ids, **facts):
    metadata = {"userMetadata": json.dumps(facts)} if facts else None
    deltalake.write_deltalake(
        scene.root / "sink",
        pa.table({"id": pa.array(ids, pa.int64())}),
        mode="append",
        commit_properties=deltalake.CommitProperties(custom_metadata=metadata),
    )


def batch(epoch, number, after, end, uuid="u"):
    offsets = [
        json.dumps({"reservoirVersion": version, "index": -1, "isStartingVersion": False}) for version in (after, end)
    ]
    return {
        "fds": 1, "stream": "orders", "uuid": uuid, "epoch": epoch, "batch_id": number,
        "after": offsets[0], "end": offsets[1],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "verdict"), [([1, 2, 3], None), ([1, 2], "lost"), ([1, 2, 3, 3], "doubled"), ([1, 2, 3, 9], "doubled")]
)
def test_rows_are_compared_by_key_and_by_number(scene, ids, verdict):
    write(scene, ids)
    if verdict is None:
        judge_keys(scene, Bounds(Counter([1, 2, 3])), scene.root / "sink")
        return
    with pytest.raises(VerdictError, match=r"silent") as failed:
        judge_keys(scene, Bounds(Counter([1, 2, 3])), scene.root / "sink")
    assert failed.value.verdict == verdict


def test_a_rewind_allows_a_row_once_more_and_a_skip_allows_it_to_be_missing(scene):
    write(scene, [1, 1, 3])
    bounds = Bounds(Counter([1, 2, 3]))
    bounds.maybe_again([1])
    bounds.maybe_missing([2])
    judge_keys(scene, bounds, scene.root / "sink")
    write(scene, [1])
    with pytest.raises(VerdictError, match="doubled"):
        judge_keys(scene, bounds, scene.root / "sink")


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (batch(1, 1, 2, 3), None),
        (batch(2, 0, 0, 3), None),
        (batch(1, 1, 3, 4), "lost"),
        (batch(1, 0, 0, 2), "doubled"),
        (batch(1, 0, 0, 2, uuid="other"), "silent"),
    ],
)
def test_the_history_of_the_sink_has_batches_in_order_each_after_the_one_before(scene, second, verdict):
    write(scene, [1], **batch(1, 0, 0, 2))
    write(scene, [2], **second)
    if verdict is None:
        judge_chain(scene, scene.root / "sink", "orders")
        return
    with pytest.raises(VerdictError) as failed:
        judge_chain(scene, scene.root / "sink", "orders")
    assert failed.value.verdict == verdict


def test_what_a_reader_has_to_see_is_read_from_the_commits(scene):
    source = Source(scene, scene.root / "orders")
    source.create(3)
    source.append(2)
    source.delete("id = 1")
    source.optimize()
    source.append(1)
    assert [source.emissions[version].kind for version in range(5)] == ["append", "append", "change", "none", "append"]
    assert source.emitted() == Counter([0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(("ids", "verdict"), [([0, 1, 2], None), ([0, 1], "lost"), ([0, 1, 2, 2], "doubled")])
def test_a_row_of_two_streams_is_there_once(scene, ids, verdict):
    source = Source(scene, scene.root / "orders")
    source.create(3)
    write(scene, ids)
    stream = Stream(scene, source.path, sink=scene.root / "sink")
    if verdict is None:
        judge_shared(scene, source, (stream,), source.emitted())
        return
    with pytest.raises(VerdictError) as failed:
        judge_shared(scene, source, (stream,), source.emitted())
    assert failed.value.verdict == verdict


def test_a_value_in_another_column_is_wrong_unless_the_new_name_was_added_beside_it():
    wanted = {"1": {"x": "old:1", "y": "other:1"}, "2": {"y": "other:2"}}
    assert not wrong_values(wanted, wanted, {"x", "y"}, has_elsewhere=False)
    swapped = {**wanted, "1": {"x": "other:1", "y": "old:1"}}
    assert len(wrong_values(wanted, swapped, {"x", "y"}, has_elsewhere=True)) == 2
    kept = {**wanted, "2": {"x": "old:2", "y": "other:2"}}
    assert wrong_values(wanted, kept, {"x", "y"}, has_elsewhere=True) == [("2", "x", None, "old:2")]
    beside = {**wanted, "1": {"y": "other:1", "before": "old:1"}}
    assert not wrong_values(wanted, beside, {"x", "y"}, has_elsewhere=True)
    assert wrong_values(wanted, beside, {"x", "y"}, has_elsewhere=False) == [("1", "x", "old:1", None)]


def test_commands_are_read_from_messages():
    said = Outcome("run", 2, "", "fds: stopped. Or `fds rewind orders --to 3 --why …` first, else `fds status orders`.")
    assert named(said) == [["rewind", "orders", "--to", "3", "--why"]]


def test_the_table_counts_each_verdict_and_leaves_out_what_was_not_run_or_broke_off():
    played = [
        Played("a", 1, "passed", "", 1.0, 1),
        Played("a", 2, "lost", "", 1.0, 1, is_silent=True),
        Played("b", 3, "stuck", "", 1.0, 1),
        Played("b", 5, "broken", "a fault of the scenario", 1.0, 1),
        Played("c", 4, "not run", "no mount", 1.0, 1),
    ]
    assert table_of(played).splitlines()[2:] == [
        "| a | 2 | 1 |  | 1 |  |",
        "| b | 1 |  |  |  | 1 |",
        "| c | not run here |  |  |  |  |",
        "| all | 3 | 1 |  | 1 | 1 |",
    ]
