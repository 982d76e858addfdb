"""Positions out of the checkpoint of a streaming query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.streaming_checkpoint import read_streaming_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

META = '{"batchWatermarkMs":0,"batchTimestampMs":1795235323000,"conf":{}}'


def written(folder: Path, offsets: dict[int, list[str]], done: list[int], *, version: str = "v1") -> LocalStorage:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for batch, lines in offsets.items():
        (folder / "offsets" / str(batch)).write_text("\n".join([version, META, *lines]))
        (folder / "offsets" / f".{batch}.crc").write_text("x")
    for batch in done:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return LocalStorage(str(folder))


def at(version: int, index: int = -1, **changed: Any) -> str:
    value = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    return json.dumps({**value, "isStartingVersion": False, **changed})


def test_the_position_is_the_end_of_the_last_batch_that_is_done(tmp_path):
    found = read_streaming_checkpoint(written(tmp_path, {8: [at(3)], 9: [at(5)], 10: [at(7, 2)]}, [8, 9, 10]), "t")
    assert (found.offset, found.batch_id, found.unfinished_batch_id) == (Offset("t", 7, 2), 10, None)


def test_a_batch_that_was_begun_is_not_the_position_but_is_named(tmp_path):
    found = read_streaming_checkpoint(written(tmp_path, {9: [at(5)], 10: [at(7)]}, [9]), "t")
    assert (found.offset, found.batch_id, found.unfinished_batch_id) == (Offset("t", 5), 9, 10)


def test_offsets_of_format_3_and_of_an_initial_snapshot_are_read(tmp_path):
    line = at(4, 17, sourceVersion=3, isStartingVersion=True)
    found = read_streaming_checkpoint(written(tmp_path, {0: [line]}, [0]), "t")
    assert found.offset == Offset("t", 4, 17, is_initial_snapshot=True)


def test_of_several_sources_the_one_that_reads_the_table_counts(tmp_path):
    lines = ['{"logOffset":3}', "-", at(2, reservoirId="other"), at(6)]
    assert read_streaming_checkpoint(written(tmp_path, {0: lines}, [0]), "t").offset == Offset("t", 6)


@pytest.mark.parametrize(
    ("offsets", "done", "version", "message"),
    [
        ({}, [], "v1", "is not a checkpoint of a streaming query"),
        ({0: [at(1)]}, [], "v1", "has not finished a batch"),
        ({0: [at(1)]}, [0, 1], "v1", "offsets/1 is missing"),
        ({0: [at(1)]}, [0], "v7", "has the format 'v7'"),
        (
            {0: [at(1, reservoirId="u")]},
            [0],
            "v1",
            "does not read the table with id t.* have the ids u",
        ),
        ({0: [at(1), at(2)]}, [0], "v1", "reads the table with id t 2 times"),
        ({0: [at(1, -20, sourceVersion=3)]}, [0], "v1", "in the middle of a schema change at version 1"),
        ({0: [at(1, sourceVersion=9)]}, [0], "v1", "has sourceVersion 9"),
    ],
)
def test_an_invalid_position_is_refused_with_the_reason(tmp_path, offsets, done, version, message):
    with pytest.raises(ConfigurationError, match=message):
        read_streaming_checkpoint(written(tmp_path, offsets, done, version=version), "t")
