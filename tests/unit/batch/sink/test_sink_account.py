"""What a sink's log says of its streams: the same answer for the driver and for Airflow."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.batch.sink.loaded_streams import Loaded, loaded, pieces
from airflow_provider_fds.batch.sink.sink_account import kept
from airflow_provider_fds.batch.sink.sink_commit import parse_commit
from airflow_provider_fds.batch.spec import BatchSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_version

UUID, OTHER = "u", "v"


def offset(version, index=-1, *, snapshot=False):
    value = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    return json.dumps({**value, "isStartingVersion": snapshot})


def batch(version, first, end, uuid=UUID, *, start=None, seen=None, same_values=None):
    """The commit of a batch with the versions from ``first`` (inclusive) to ``end`` (exclusive)."""
    start = start or offset(first)
    spec = BatchSpec(uuid, uuid, 1, first, start, offset(end), start, first, end - 1, "m", "d", 1, 1, 1, None)
    return {
        "version": version,
        "info": {
            "operation": "WRITE",
            "userMetadata": commit_metadata(spec, "try", {}, seen=seen, same_values=same_values),
        },
        "txn": {"appId": f"fds:{uuid}", "version": txn_version(1, first)},
    }


def other(at, operation, **parameters):
    return {"version": at, "info": {"operation": operation, "operationParameters": parameters}}


def restore(version, to):
    return other(version, "RESTORE", version=to, timestamp=None)


def removal(version, from_version, uuid=UUID):
    removes = {"what": "all" if from_version is None else "rows", "from_version": from_version}
    metadata = {"fds": 1, "stream": uuid, "uuid": uuid, "epoch": 2, "fence": fence_version(2), "removes": removes}
    return {"version": version, "info": {"operation": "DELETE", "userMetadata": json.dumps(metadata)}}


def commits(*described):
    found = []
    for one in described:
        actions = [{"commitInfo": one["info"]}, *([{"txn": one["txn"]}] if "txn" in one else [])]
        found.append(parse_commit(one["version"], "\n".join(map(json.dumps, actions)).encode()))
    return tuple(found)


THREE = (batch(1, 0, 1), batch(2, 1, 2), batch(3, 2, 3))

#: A log of a sink that version 0 created, and where the rows of versions 1, 2 and 3 are.
LOGS = {
    "untouched": (THREE, "there there there"),
    "restored to a version": ((*THREE, restore(4, 2)), "there there gone"),
    "restored, and restored again": ((*THREE, restore(4, 2), restore(5, 3)), "there there there"),
    "restored twice": ((*THREE, restore(4, 1), restore(5, 4)), "there gone gone"),
    "restored to a time": ((*THREE, other(4, "RESTORE", timestamp="2024-01-01")), "unsure unsure unsure"),
    "restored to a time before the last": (
        (*THREE[:2], other(3, "RESTORE", timestamp="2024-01-01"), batch(4, 2, 3)),
        "unsure unsure",
    ),
    "replaced": ((*THREE, other(4, "CREATE OR REPLACE TABLE AS SELECT")), "unsure unsure unsure"),
    "cloned over": ((*THREE, other(4, "CLONE")), "unsure unsure unsure"),
    "replaced, and restored": ((*THREE, other(4, "REPLACE TABLE"), restore(5, 3)), "there there there"),
    "optimised": ((*THREE, other(4, "OPTIMIZE")), "there there there"),
}


@pytest.mark.parametrize("name", LOGS)
def test_where_the_rows_of_a_commit_are(name):
    log, expected = LOGS[name]
    found = kept(commits(other(0, "CREATE TABLE"), *log), f"fds:{UUID}")
    for version, place in enumerate(expected.split(), 1):
        assert found.place(version) == place
        assert (found.undone_at(version) is None) == (found.place(version) == "there")


def test_a_log_that_begins_later_tells_of_what_came_before():
    assert kept(commits(*THREE[1:]), f"fds:{UUID}").place(1) == "there"
    assert kept(commits(*THREE[1:], restore(4, 1)), f"fds:{UUID}").place(1) == "there"
    assert kept(commits(*THREE[1:], restore(4, 0)), f"fds:{UUID}").place(1) == "gone"
    assert kept(commits(*THREE[1:], other(4, "CLONE")), f"fds:{UUID}").place(1) == "unsure"


def test_many_commits_are_folded_without_a_copy_for_each():
    found = kept(commits(*(batch(n, n, n + 1) for n in range(3000)), restore(3000, 1500)), f"fds:{UUID}")
    assert (len(found.versions), found.place(1500), found.place(1501)) == (1501, "there", "gone")


# What streams have loaded --------------------------------------------------------------------------------------------


def described(account):
    return {uuid: [piece.describe() for piece in one.pieces] for uuid, one in account.streams.items() if one.pieces}


def test_batches_that_follow_each_other_are_one_piece():
    log = commits(other(0, "CREATE TABLE"), *THREE, batch(4, 7, 9), batch(5, 3, 5, OTHER))
    assert described(loaded(log)) == {UUID: ["versions 0 to 2", "versions 7 to 8"], OTHER: ["versions 3 to 4"]}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([restore(4, 2)], ["versions 0 to 1"]),
        ([restore(4, 2), restore(5, 3)], ["versions 0 to 2"]),
        ([other(4, "RESTORE", timestamp="2024-01-01")], ["versions 0 to 2"]),
        ([removal(4, 1)], ["version 0"]),
        ([removal(4, 1, OTHER)], ["version 0"]),
        ([removal(4, None)], None),
        ([other(4, "CREATE OR REPLACE TABLE")], None),
        ([other(4, "CREATE OR REPLACE TABLE AS SELECT")], ["versions 0 to 2"]),
        ([other(4, "DELETE", predicate="[]")], None),
        ([other(4, "DELETE", predicate='["(id > 1)"]')], ["versions 0 to 2"]),
        ([other(4, "OPTIMIZE")], ["versions 0 to 2"]),
    ],
)
def test_what_is_removed_does_not_count(after, expected):
    assert described(loaded(commits(other(0, "CREATE TABLE"), *THREE, *after))).get(UUID) == expected


def test_what_a_batch_has_seen_stands_for_the_commits_before_it():
    seen = loaded(commits(other(0, "CREATE TABLE"), *THREE, batch(4, 7, 9, OTHER))).to_metadata()
    log = commits(batch(5, 3, 4, seen=seen), batch(6, 4, 5))
    assert described(loaded(log)) == {UUID: ["versions 0 to 4"], OTHER: ["versions 7 to 8"]}
    # a commit that it has not seen may be any batch
    assert loaded(commits(batch(6, 3, 4, seen=seen))) is None
    assert loaded(commits(*THREE)) is None
    # log cleanup has removed what came before
    cut = loaded(commits(*THREE), are_all=True)
    assert described(cut) == {UUID: ["versions 0 to 2"]}
    assert described(loaded(commits(batch(4, 3, 4, seen=cut.to_metadata())))) == {UUID: ["versions 0 to 3"]}
    # a table that was restored to before what was seen needs the older commits
    assert loaded((*log, *commits(restore(7, 1)))) is None


@pytest.mark.parametrize(
    "seen",
    [
        {},
        {"to": 9, "streams": {}},
        {"to": 0},
        {"to": "0", "streams": []},
        7,
        {"to": 0, "streams": {"u": ["u", [["t", 0, "a", 0, 1, 0, 0]]]}},
    ],
)
def test_what_anyone_has_written_there_instead_does_not_count(seen):
    assert Loaded.of_commit(commits(batch(5, 3, 4, seen=seen))[0]) is None


SNAPSHOT = offset(5, snapshot=True)


@pytest.mark.parametrize(
    ("one", "another", "expected"),
    [
        ((offset(0), offset(3)), (offset(3), offset(5)), False),
        ((offset(0), offset(4)), (offset(3), offset(5)), True),
        ((offset(0), offset(3, 1)), (offset(3, 1), offset(5)), False),
        ((offset(0), offset(3, 2)), (offset(3, 1), offset(5)), True),
        ((SNAPSHOT, offset(6)), (offset(6), offset(8)), False),
        ((SNAPSHOT, offset(6)), (offset(5), offset(6)), True),
        ((SNAPSHOT, offset(6)), (SNAPSHOT, offset(6)), True),
        ((SNAPSHOT, offset(5, 3, snapshot=True)), (offset(5, 3, snapshot=True), offset(6)), False),
        ((SNAPSHOT, offset(8)), (offset(6), offset(7)), True),
        ((SNAPSHOT, offset(8)), (offset(8), offset(9)), False),
        ((offset(3), offset(3)), (offset(0), offset(9)), False),
    ],
)
def test_rows_that_are_in_both(one, another, expected):
    assert any(a.overlaps(b) for a in pieces(*one, 1) for b in pieces(*another, 1)) is expected
    assert any(b.overlaps(a) for a in pieces(*one, 1) for b in pieces(*another, 1)) is expected


@pytest.mark.parametrize("text", ["", "7", "{}", "[" * 100_000, offset("x"), offset(1, None)])
def test_a_text_that_is_no_offset_is_no_piece(text):
    assert pieces(text, offset(3), 1) == ()
    assert pieces(offset(3), text, 1) == ()


@pytest.mark.parametrize("removes", [7, "all", {}, {"what": "rows"}, {"what": "rows", "from_version": "1"}])
def test_a_removal_that_anyone_has_written_removes_nothing(removes):
    log = [removal(4, 1)]
    metadata = json.loads(log[0]["info"]["userMetadata"])
    log[0]["info"]["userMetadata"] = json.dumps({**metadata, "removes": removes})
    log[0]["info"]["operationParameters"] = {"predicate": '["(id > 1)"]'}
    assert described(loaded(commits(other(0, "CREATE TABLE"), *THREE, *log)))[UUID] == ["versions 0 to 2"]


def test_offsets_of_two_tables_have_nothing_between_them():
    assert pieces(offset(0).replace('"t"', '"s"'), offset(3), 1) == ()


def test_values_count_that_all_batches_of_a_stream_have():
    first = batch(1, 0, 1, same_values={"origin": "a", "n": 1})
    log = commits(other(0, "CREATE TABLE"), first, batch(2, 1, 2, same_values={"origin": "a", "n": 2}))
    assert loaded(log[:2]).streams[UUID].same_values == {("origin", "a"), ("n", 1)}
    found = loaded(log)
    assert found.streams[UUID].same_values == {("origin", "a")}
    later = commits(batch(3, 2, 3, same_values={"origin": "a"}, seen=found.to_metadata()))
    assert loaded(later).streams[UUID].same_values == {("origin", "a")}
    assert loaded((*log, *commits(batch(3, 2, 3)))).streams[UUID].same_values == frozenset()
    assert loaded((*log, *commits(removal(3, None), batch(4, 0, 1)))).streams[UUID].same_values == frozenset()


@pytest.mark.parametrize("values", [["origin"], {"origin": ["a"]}, {"origin": True}, "origin"])
def test_other_values_in_a_commit_prove_nothing(values):
    log = commits(other(0, "CREATE TABLE"), batch(1, 0, 1, same_values=values))
    assert loaded(log).streams[UUID].same_values == frozenset()
