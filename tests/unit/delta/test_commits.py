from __future__ import annotations

import hashlib
import json

import msgspec
import pytest

from airflow_provider_fds.delta import commits
from airflow_provider_fds.delta.actions import decode_actions
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import LogTruncatedError, TornFileError


@pytest.fixture
def log(log_builder):
    return DeltaLog(LocalStorage(str(log_builder.root)))


@pytest.fixture
def streamed(monkeypatch):
    """Stream every commit, in chunks smaller than a line."""
    monkeypatch.setattr("airflow_provider_fds.delta.reader.log.STREAMED_ABOVE_BYTES", 0)
    monkeypatch.setattr(commits, "_CHUNK_BYTES", 64)


# decoding


def test_unknown_actions_unknown_fields_and_blank_lines_are_ignored():
    lines = (
        b'\n{"add":{"path":"a","size":1,"newField":{"x":[1]}}}\r\n\n'
        b'{"newAction":{"a":1}}\n  \n{"txn":{"appId":"b","version":2}}'
    )
    first, second, third = decode_actions(lines)
    assert first.add is not None
    assert first.add.size == 1
    assert second == type(second)()
    assert third.txn is not None


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ('{"add":{"path":"a","size":null,"tags":null,"stats":null}}', "add.size", 0),
        ('{"add":{"path":"a","modificationTime":null}}', "add.modificationTime", 0),
        ('{"add":{"path":"a","size":null,"partitionValues":{"p":null}}}', "add.partitionValues", {"p": None}),
        ('{"add":{"path":"a","dataChange":null}}', "add.changes_data", True),
        ('{"metaData":{"id":"a","partitionColumns":null,"schemaString":null}}', "metaData.partitionColumns", ()),
        ('{"metaData":{"id":"a","configuration":{"a":null,"b":"c"}}}', "metaData.configuration", {"b": "c"}),
        ('{"protocol":{"minReaderVersion":null}}', "protocol.minReaderVersion", 1),
        ('{"add":{"path":"a","deletionVector":{"storageType":"i","pathOrInlineDv":"x","cardinality":null}}}',
         "add.deletionVector.cardinality", 0),
    ],
)  # fmt: skip
def test_a_null_counts_as_absent_whatever_the_type_of_the_field(line, field, expected):
    (action,) = decode_actions(line.encode())
    for part in field.split("."):
        action = getattr(action, part)
    assert action == expected


def test_an_action_without_what_it_must_have_is_an_error():
    with pytest.raises(msgspec.ValidationError):
        decode_actions(b'{"add":{"path":null}}')


def test_a_data_change_that_is_absent_counts_as_true():
    add, remove = decode_actions(b'{"add":{"path":"a"}}\n{"remove":{"path":"a","dataChange":false}}')
    assert add.add.changes_data
    assert not remove.remove.changes_data


# whole commits


def test_a_commit_has_its_actions_in_line_order_with_size_time_and_digest(log, log_builder):
    log_builder.create()
    version = log_builder.append(3)
    commit = log.commit(version)
    content = log_builder.path_of(version).read_bytes()
    assert [a.add.path[-9:] for a in commit.actions if a.add] == ["0.parquet", "1.parquet", "2.parquet"]
    assert commit.info is not None
    assert commit.info.operation == "WRITE"
    assert (commit.version, commit.size_bytes, commit.modified_ms) == (1, len(content), log_builder.time_of(1))
    assert commit.sha256 == hashlib.sha256(content).hexdigest()


def test_a_commit_without_a_last_newline_is_whole(log, log_builder):
    # deltalake writes no newline at the end
    log_builder.write_raw(0, b'{"txn":{"appId":"a","version":1}}\n{"add":{"path":"x"}}')
    assert len(log.commit(0).actions) == 2


@pytest.mark.parametrize("mode", ["whole", "streamed"])
def test_a_commit_that_is_cut_in_a_line_is_torn_and_names_its_version(log, log_builder, mode, request):
    if mode == "streamed":
        request.getfixturevalue("streamed")
    log_builder.create()
    log_builder.append(3)
    content = log_builder.path_of(1).read_bytes()
    for cut in (1, 5, len(content) // 2, len(content) - 2):
        if content[:cut].endswith((b"}\n", b"}")):
            continue
        log_builder.write_raw(1, content[:cut])
        with pytest.raises(TornFileError, match=r"version 1 of file:///.*0001.json is cut off or damaged") as caught:
            list(log.commit(1).actions)
        assert (caught.value.version, caught.value.retryable) == (1, True)


def test_an_empty_commit_file_is_torn(log, log_builder):
    for content in (b"", b"\n\n"):
        log_builder.write_raw(0, content)
        with pytest.raises(TornFileError, match=r"version 0 of .* is empty"):
            log.commit(0)


def test_an_action_that_is_not_as_the_protocol_has_it_is_named(log, log_builder):
    log_builder.write_raw(0, b'{"add":{"path":7}}')
    with pytest.raises(TornFileError, match=r"violates the protocol \(Expected `str`, got `int` - at `\$.add.path`"):
        log.commit(0)


@pytest.mark.parametrize("mode", ["whole", "streamed"])
@pytest.mark.parametrize(
    ("operation", "parameters"), [("WRITE", {"mode": "Append"}), ("STREAMING UPDATE", {"outputMode": "Append"})]
)
def test_an_append_cut_at_the_end_of_a_line_is_torn_by_its_own_row_count(
    log, log_builder, mode, operation, parameters, request
):
    if mode == "streamed":
        request.getfixturevalue("streamed")
    adds = [log_builder.add(f"f{i}", rows=7) for i in range(3)]
    log_builder.commit(*adds, operation=operation, parameters=parameters, metrics={"numOutputRows": "21"})
    assert len(list(log.commit(0).actions)) == 4
    lines = log_builder.path_of(0).read_bytes().splitlines(keepends=True)
    log_builder.write_raw(0, b"".join(lines[:-1]))
    with pytest.raises(TornFileError, match="lists 14 rows, but its commitInfo says 21"):
        list(log.commit(0).actions)
    log_builder.write_raw(0, lines[0])
    with pytest.raises(TornFileError, match="lists 0 rows, but its commitInfo says 21"):
        list(log.commit(0).actions)


def test_the_row_count_is_unknown_for_other_operations_missing_statistics_or_dropped_empty_files(log, log_builder):
    append = {"parameters": {"mode": "Append"}}
    log_builder.commit(operation="WRITE", metrics={"numOutputRows": "5"}, parameters={"mode": "Overwrite"})
    log_builder.commit(operation="MERGE", metrics={"numOutputRows": "5"}, **append)
    log_builder.commit(log_builder.add(stats=None), metrics={"numOutputRows": "5"}, **append)
    log_builder.commit(log_builder.add(stats='{"nullCount":{}}'), metrics={"numOutputRows": "5"}, **append)
    log_builder.commit(log_builder.add(stats="{torn"), metrics={"numOutputRows": "5"}, **append)
    log_builder.commit(log_builder.add(rows=5), metrics={"numOutputRows": "5", "numFiles": "2"}, **append)
    log_builder.commit(log_builder.add(rows=5), metrics={"numOutputRows": "many"}, **append)
    log_builder.commit(log_builder.add(rows=5), metrics=None, **append)
    assert [commit.version for commit in log.commits(0, 7)] == list(range(8))


def test_statistics_in_any_order_are_counted(log, log_builder):
    stats = json.dumps({"minValues": {"numRecords": 99}, "numRecords": 5})
    log_builder.commit(log_builder.add(stats=stats), metrics={"numOutputRows": "6"}, parameters={"mode": "Append"})
    with pytest.raises(TornFileError, match="lists 5 rows"):
        log.commit(0)


# huge commits


def test_a_huge_commit_can_be_iterated_again_and_again(log, log_builder, streamed):
    log_builder.create()
    log_builder.append(20)
    commit = log.commit(1)
    paths = [action.add.path for action in commit.actions if action.add]
    assert paths == [action.add.path for action in commit.actions if action.add]
    assert len(paths) == 20
    assert len(commit.actions) == 21
    assert commit.actions[1].add.path == paths[0]
    assert commit.actions[-1].add.path == paths[-1]
    assert [action.add.path for action in commit.actions[1:3]] == paths[:2]
    with pytest.raises(IndexError):
        commit.actions[21]
    assert commit.info.operation == "WRITE"
    assert commit.sha256 == hashlib.sha256(log_builder.path_of(1).read_bytes()).hexdigest()


def test_a_huge_commit_that_changes_after_it_was_listed_is_torn(log, log_builder, streamed):
    log_builder.append(3)
    commit = log.commit(0)
    with log_builder.path_of(0).open("ab") as file:
        file.write(b'{"add":{"path":"late"}}\n')
    with pytest.raises(TornFileError, match="but an earlier listing says"):
        list(commit.actions)


def test_a_huge_commit_that_cleanup_removes_is_truncated(log, log_builder, streamed):
    log_builder.create()
    log_builder.append(3)
    log_builder.append(3)
    commit = log.commit(1)
    log_builder.clean_up_before(2)
    with pytest.raises(LogTruncatedError):
        list(commit.actions)
