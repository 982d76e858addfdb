"""Damage in the middle of a log: what comes before it is planned, and the error names the version."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.errors import FdsError, StoppedError, TornFileError
from tests.manifests import commit_json

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
IN_COMMIT = {"delta.enableInCommitTimestamps": "true"}


def schema(**given: Any) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}} | given]}
    )


BAD_METADATA = {
    "no JSON": {"schemaString": "{"},
    "a list": {"schemaString": "[]"},
    "no fields": {"schemaString": '{"type":"struct"}'},
    "fields are texts": {"schemaString": '{"type":"struct","fields":["id"]}'},
    "no name": {"schemaString": '{"type":"struct","fields":[{"type":"long"}]}'},
    "no type": {"schemaString": '{"type":"struct","fields":[{"name":"id"}]}'},
    "nested": {
        "schemaString": '{"type":"struct","fields":[{"name":"id","type":' + '{"type":"array","elementType":' * 2000
    },
    "array of nothing": {"schemaString": schema(type={"type": "array", "containsNull": True})},
    "a text for nullable": {"schemaString": schema(nullable="yes")},
    "a text for an id": {"schemaString": schema(metadata={"delta.columnMapping.id": "x"})},
    "a text for the highest id": {"configuration": {**MAPPED, "delta.columnMapping.maxColumnId": "x"}},
}


@pytest.mark.parametrize("bad", BAD_METADATA.values(), ids=BAD_METADATA)
def test_damaged_metadata_stops_the_stream_before_its_version(plan: Any, log_builder: Any, bad: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.metadata(**({"configuration": {}} | bad)))
    log_builder.append()

    found = plan(0)

    assert found.paths == ["part-00001-00000.parquet"]
    assert isinstance(found.outcome.error, StoppedError)
    assert found.outcome.error.version == 2
    for batch in found.batches:
        build_manifest(batch, table_uri=log_builder.uri)


@pytest.mark.parametrize("bad", BAD_METADATA.values(), ids=BAD_METADATA)
def test_damaged_metadata_in_force_at_the_start_is_an_error_of_fds(plan: Any, log_builder: Any, bad: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.metadata(**({"configuration": {}} | bad)))
    log_builder.append()

    found = plan(2)

    assert found.paths == []
    assert isinstance(found.outcome.error, FdsError)


@pytest.mark.parametrize("time", [-(10**17), 10**15, 2**63, "soon"])
def test_an_in_commit_time_that_is_not_a_time_stops_the_stream_before_its_version(
    plan: Any, log_builder: Any, time: Any
) -> None:
    log_builder.create(configuration=IN_COMMIT)
    now = log_builder.time_of(0)
    log_builder.commit(log_builder.add("a"), inCommitTimestamp=now)
    log_builder.commit(log_builder.add("b"), inCommitTimestamp=time)

    found = plan(1)

    assert found.paths == ["a"]
    assert isinstance(found.outcome.error, TornFileError)
    assert found.outcome.error.version == 2


@pytest.mark.parametrize("text", ["x", "1e400", "9" * 5000])
def test_a_property_that_is_not_a_number_stops_the_stream_before_its_version(
    plan: Any, log_builder: Any, text: str
) -> None:
    enablement = {
        "delta.inCommitTimestampEnablementVersion": text,
        "delta.inCommitTimestampEnablementTimestamp": text,
    }
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.metadata(configuration={**IN_COMMIT, **enablement}), log_builder.add("b"))

    found = plan(1)

    assert found.paths == ["part-00001-00000.parquet"]
    assert found.outcome.error.version == 2


@pytest.mark.parametrize(
    "stats",
    [
        "{",
        "no",
        '{"numRecords":-1}',
        '{"numRecords":9223372036854775808}',
        '{"numRecords":1.5}',
        '{"x":' + "[" * 100_000,
    ],
    ids=["cut off", "no JSON", "-1", "2^63", "1.5", "nested"],
)
def test_damaged_statistics_are_ignored(plan: Any, log_builder: Any, stats: str) -> None:
    log_builder.create()
    log_builder.append(stats=stats)

    (batch,) = plan(1).batches

    assert batch.num_rows is None
    for keeps in (True, False):
        lines = commit_json(build_manifest(batch, table_uri=log_builder.uri, stats=keeps)).splitlines()
        assert "stats" not in json.loads(lines[-1])["add"]


def test_rows_and_bytes_beyond_64_bits_are_unknown_or_the_largest_number(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(3, rows=2**63 - 1, size=2**63 - 1)

    (batch,) = plan(1, max_files_per_batch=3).batches

    assert batch.num_rows is None
    assert batch.num_bytes == 2**63 - 1


def test_a_vector_that_deletes_more_rows_than_there_are_leaves_the_rows_unknown(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    vector = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 11}
    log_builder.append(rows=10, deletionVector=vector)

    assert plan(1).batches[0].num_rows is None


@pytest.mark.parametrize("parameters", [{"x": json.loads("[" * 900 + "]" * 900)}], ids=["nested"])
def test_commit_info_may_be_nested(plan: Any, log_builder: Any, parameters: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), parameters=parameters)

    found = plan(1)

    assert found.paths == ["part-00001-00000.parquet"]
    assert found.outcome.error.version == 2


def test_a_feed_of_a_file_with_more_rows_than_it_can_have_is_stopped_at(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append()
    from pyroaring import BitMap64

    from airflow_provider_fds.delta.vectors import inline_vector

    made = inline_vector(BitMap64([3]))
    vector = {name: getattr(made, name) for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")}
    stats = json.dumps({"numRecords": 2**40})
    path = "part-00001-00000.parquet"
    log_builder.commit(log_builder.remove(path, stats=stats), log_builder.add(path, stats=stats, deletionVector=vector))

    found = plan(0, read_change_feed=True)

    assert found.paths == [path]
    assert "more than a file of 1000 bytes can have" in str(found.outcome.error)
    assert found.outcome.error.version == 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["add", "remove", "cdc"])
def test_a_feed_of_a_file_that_is_named_twice_is_stopped_at(plan: Any, log_builder: Any, kind: str) -> None:
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append()
    line = {
        "add": log_builder.add("a"),
        "remove": log_builder.remove("part-00001-00000.parquet"),
        "cdc": {"cdc": {"path": "_change_data/a", "size": 1, "partitionValues": {}}},
    }[kind]
    log_builder.commit(line, line)

    found = plan(0, read_change_feed=True)

    assert found.paths == ["part-00001-00000.parquet"]
    assert f"two {kind} actions" in str(found.outcome.error)
    assert found.outcome.error.version == 2


@pytest.fixture
def with_a_vector_file(log_builder: Any) -> Any:
    """A table whose version 2 gives a file a vector that lies in ``vectors.bin``."""
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append()
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"{log_builder.uri}/vectors.bin",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    path = "part-00001-00000.parquet"
    log_builder.commit(log_builder.remove(path), log_builder.add(path, deletionVector=vector))
    return log_builder


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_vector_is_stopped_at(plan: Any, with_a_vector_file: Any) -> None:
    os.mkfifo(with_a_vector_file.root / "vectors.bin")

    found = plan(0, read_change_feed=True)

    assert found.paths == ["part-00001-00000.parquet"]
    assert "is a pipe" in str(found.outcome.error)
    assert found.outcome.error.version == 2


def test_a_vector_in_a_file_of_gigabytes_is_stopped_at(plan: Any, with_a_vector_file: Any) -> None:
    with (with_a_vector_file.root / "vectors.bin").open("wb") as file:
        file.truncate(3 << 30)

    found = plan(0, read_change_feed=True)

    assert found.paths == ["part-00001-00000.parquet"]
    assert f"has {3 << 30} bytes" in str(found.outcome.error)
    assert found.outcome.error.version == 2
